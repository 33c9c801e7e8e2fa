"""Metal Shading Language from lowered device functions.

Scalar arguments come in one structure behind the buffers, as the host sends them::

    struct add_kernel_args { int64_t n; };
    kernel void add_kernel(device float* A [[buffer(0)]], device float* B [[buffer(1)]],
                           constant add_kernel_args& arg [[buffer(2)]],
                           uint3 blockIdx [[threadgroup_position_in_grid]],
                           uint3 threadIdx [[thread_position_in_threadgroup]]) { ... }
"""

from __future__ import annotations

from typing import ClassVar

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...ir.prim import Call, Var
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ...tir.buffer import Buffer
from ...tir.stmt import Allocate
from ..common.csource import KernelPrinter, Piece, device_functions
from ..common.csource.intrinsics import C_FUNCTIONS
from ..common.csource.pieces import UNARY, wrapped

__all__ = ["MetalPrinter", "metal_source"]

_KEYWORDS = (
    "alignas array as_type auto bool break case char class const constant continue default device do double else enum "
    "extern float for fragment goto half if inline int kernel long namespace operator private register return sampler "
    "short signed sizeof static struct switch template texture thread threadgroup typedef uchar uint ulong union unsigned "
    "ushort using vertex void volatile while true false min max abs exp log sqrt sin cos tan pow floor ceil round rint "
    "select dot length cross distance sign mix step clamp blockIdx threadIdx simd_lane arg access metal bfloat"
)
# Beside those of the C library.
_OWN = "exp10 rsqrt min max popcount clz isinf isfinite".split()
# Source of erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (absolute error below 1.5e-7).
_LACKING = {
    "erf": """\
inline T NAME(T given) {
  float x = fabs((float)given), t = 1.0f / (1.0f + 0.3275911f * x);
  float y = 1.0f - t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f)))) * exp(-x * x);
  return (T)(given < 0 ? -y : y);
}
""",
    "log1p": "inline T NAME(T x) { return log(1 + x); }\n",
    "hypot": "inline T NAME(T x, T y) { return sqrt(x * x + y * y); }\n",
}
_SPACES = {"global": "device", "shared": "threadgroup", "shared.dyn": "threadgroup", "local": "thread"}
_SIMDGROUP = "metal.simdgroup"
_HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


class MetalPrinter(KernelPrinter):
    """Kernels as Metal Shading Language."""

    language = "Metal"
    reserved = frozenset(_KEYWORDS.split())
    scalars: ClassVar[dict[str, str]] = {
        "bool": "bool", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
        "uint32": "uint", "int64": "long", "uint64": "ulong", "float16": "half", "float32": "float",
    }  # fmt: skip
    suffixes: ClassVar[dict[str, str]] = {"int64": "L", "uint64": "UL", "uint32": "U"}
    functions: ClassVar[dict[str, str]] = {
        **C_FUNCTIONS, **{n: n for n in _OWN}, "round": "rint", "nearbyint": "rint",
    }  # fmt: skip
    templates = _LACKING

    def __init__(self) -> None:
        super().__init__()
        self.scalar_fields: list[str] = []
        self.buffers = 0
        self.reads_lane = False

    # -- vectors -------------------------------------------------------------------------------------------

    def has_vectors(self, dtype: str) -> bool:
        return dt.lanes(dtype) in (2, 3, 4) and not dt.is_bool(dtype) and dt.element_of(dtype) in self.scalars

    def vector_function(self, e: Call) -> bool:
        name = e.op.name.removeprefix("tir.")
        if name in self.templates:
            return False
        return name in self.functions or name == "reinterpret" or name.startswith(("bitwise", "shift"))

    def vector(self, dtype: str, elements: list[Piece]) -> Piece:
        return Piece(f"{self.type_name(dtype)}({', '.join(elements)})")

    def cast(self, value: Piece, source: str, target: str) -> Piece:
        return Piece(f"{self.type_name(target)}({value})")

    # -- memory --------------------------------------------------------------------------------------------

    def _packed(self, buffer: Buffer, element: str, count: int, index: Piece) -> str:
        """Vectors that may begin at any element."""
        space = self.spaces.get(buffer.data, "thread")
        place = self.offset(self.pointer(buffer.data, element), index)
        return f"*({space} packed_{self.type_name(dt.with_lanes(element, count))}*){wrapped(place, UNARY)}"

    def load_vector(self, buffer: Buffer, element: str, count: int, index: Piece) -> Piece:
        return self.call(self.type_name(dt.with_lanes(element, count)), self._packed(buffer, element, count, index))

    def store_vector(self, buffer: Buffer, element: str, count: int, index: Piece, value: Piece) -> None:
        self.line(f"{self._packed(buffer, element, count, index)} = {value};")

    def allocate(self, stmt: Allocate, scope: str) -> None:
        element, count = self.array_facts(stmt)
        if scope not in (*_SPACES, _SIMDGROUP) or scope == "global":
            raise RelaxishError(f"Metal kernels have no memory of scope {scope!r} ({stmt.buffer_var.name})")
        name = self.bind(stmt.buffer_var)
        self.memory_types[stmt.buffer_var] = element
        if scope == _SIMDGROUP:
            self.features.add("simdgroup")
            self.line(f"simdgroup_matrix<{self.type_name(element)}, 8, 8> {name}[{max(1, count // 64)}];")
            return
        self.spaces[stmt.buffer_var] = _SPACES[scope]
        space = "threadgroup " if scope.startswith("shared") else ""
        aligned = " __attribute__((aligned(64)))" if scope == "shared.dyn" else ""
        self.line(f"{space}{self.memory_type(element)} {name}[{count}]{aligned};")

    # -- the kernel ----------------------------------------------------------------------------------------

    def head(self, name: str, func: PrimFunc, params: list[str]) -> str:
        fixed = self.facts.block_size()
        given = [text for text in params if text]
        structure = ""
        if self.scalar_fields:
            structure = f"struct {name}_args {{ {' '.join(self.scalar_fields)} }};\n"
            given.append(f"constant {name}_args& arg [[buffer({self.buffers})]]")
        given.append("uint3 blockIdx [[threadgroup_position_in_grid]]")
        given.append("uint3 threadIdx [[thread_position_in_threadgroup]]")
        if self.reads_lane:
            given.append("uint simd_lane [[thread_index_in_simdgroup]]")
        bounds = f"[[max_total_threads_per_threadgroup({fixed[0] * fixed[1] * fixed[2]})]]\n" if fixed else ""
        return f"{structure}{bounds}kernel void {name}(\n    " + ",\n    ".join(given) + ") {"

    def pointer_parameter(self, param: Var, name: str, element: str) -> str:
        self.spaces[param] = "device"
        self.buffers += 1
        return f"device {self.memory_type(element)}* {name} [[buffer({self.buffers - 1})]]"

    def scalar_parameter(self, param: PrimExpr, name: str) -> str:
        # Eight bytes each, as the host lays them out.
        wide = "float" if dt.is_float(param.dtype) else "long" if dt.is_int(param.dtype) else "ulong"
        pad = " uint _pad_" + name + ";" if wide == "float" else ""
        self.scalar_fields.append(f"{wide} {name};{pad}")
        self.names[param] = self.cast(Piece(f"arg.{name}"), "", param.dtype)
        return ""

    def thread_index(self, tag: str) -> Piece:
        if tag.partition(".")[0] not in ("threadIdx", "blockIdx"):
            raise RelaxishError(f"Metal has no threads of the kind {tag}")
        return Piece(tag)

    # -- intrinsics ----------------------------------------------------------------------------------------

    def do_tvm_storage_sync(self, call: Call) -> None:
        scope = call.args[0].value
        if scope == "global":
            raise RelaxishError("Metal cannot synchronise all thread groups of a kernel")
        function = "simdgroup_barrier" if scope == "warp" else "threadgroup_barrier"
        self.line(f"{function}(mem_flags::mem_threadgroup);")

    def call_reinterpret(self, e: Call) -> Piece:
        return self.call(f"as_type<{self.type_name(e.dtype)}>", self.expr(e.args[0]))

    def _shuffle(self, kind: str, e: Call) -> Piece:
        self.reads_lane = True
        return self.call("simd_shuffle", self.expr(e.args[1]), self.shuffled_lane(kind, Piece("simd_lane"), e))

    def call_tvm_warp_shuffle(self, e: Call) -> Piece:
        return self._shuffle("", e)

    def call_tvm_warp_shuffle_up(self, e: Call) -> Piece:
        return self._shuffle("_up", e)

    def call_tvm_warp_shuffle_down(self, e: Call) -> Piece:
        return self._shuffle("_down", e)

    def call_tvm_warp_activemask(self, e: Call) -> Piece:
        return self.cast(Piece("(ulong)simd_active_threads_mask()"), "", e.dtype)

    def _fragment(self, data: PrimExpr, index: PrimExpr) -> str:
        return f"{self.expr(data)}[{self.expr(index)}]"

    def do_make_filled_simdgroup_matrix(self, call: Call) -> None:
        data, index, value = call.args[:3]
        kind = self.type_name(self.memory_types[data])
        fragment = self._fragment(data, index)
        self.line(f"{fragment} = make_filled_simdgroup_matrix<{kind}, 8, 8>({self.expr(value)});")

    def do_simdgroup_load(self, call: Call) -> None:
        self._copy_fragment("simdgroup_load", call)

    def do_simdgroup_store(self, call: Call) -> None:
        self._copy_fragment("simdgroup_store", call)

    def _copy_fragment(self, function: str, call: Call) -> None:
        data, index, pointer, stride = call.args[:4]
        transposed = "true" if call.args[6].value else "false"
        place = f"{self.expr(pointer)}, {self.expr(stride)}, 0, {transposed}"
        self.line(f"{function}({self._fragment(data, index)}, {place});")

    def do_simdgroup_multiply_accumulate(self, call: Call) -> None:
        parts = [self._fragment(d, i) for d, i in zip(call.args[::2], call.args[1::2], strict=True)]
        self.line(f"simdgroup_multiply_accumulate({', '.join(parts)});")


def metal_source(mod: IRModule) -> str:
    """One source file for all device functions of a module."""
    printer = MetalPrinter()
    kernels = [printer.kernel(name, func) for name, func in device_functions(mod)]
    return "\n".join([_HEADER, *printer.helpers.values(), *kernels])
