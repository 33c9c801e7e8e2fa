"""OpenCL C from lowered device functions.

Before and after::

    T.launch_thread("blockIdx.x", 4)                 __kernel __attribute__((reqd_work_group_size(64, 1, 1)))
    T.launch_thread("threadIdx.x", 64)               void add_kernel(__global float* restrict A, ...) {
    B[bx * 64 + tx] = A[bx * 64 + tx] + 1.0            int blockIdx_x = (int)get_group_id(0); ...
                                                       B[blockIdx_x * 64 + threadIdx_x] = A[...] + 1.0f;
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.expr import PrimExpr
from ...ir import dtype as dt
from ...ir.functor import all_nodes
from ...ir.module import IRModule
from ...ir.prim import Call, IntImm, Ramp, is_call_of, Var
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...tir import PrimFunc
from ...tir.buffer import Buffer
from ...tir.stmt import Allocate
from ..common.csource import KernelPrinter, Piece, device_functions
from ..common.csource.intrinsics import C_FUNCTIONS
from ..common.csource.pieces import ADD, infix, wrapped
from .prelude import HALF, SAMPLER, SHUFFLE

__all__ = ["OpenCLPrinter", "opencl_source"]

# Sixteen is in the language too, but compilers for processors stumble over it.
_WIDTHS = (2, 3, 4, 8)
_KEYWORDS = (
    "auto bool break case char const constant continue default do double else enum event_t extern float for global "
    "goto half if image2d_t inline int kernel local long private read_only register restrict return sampler_t short "
    "signed sizeof static struct switch typedef uchar uint ulong union unsigned ushort void volatile while write_only "
    "min max abs exp log sqrt sin cos tan floor ceil round pow barrier select dot length cross distance sign mix step "
    "clamp real16 mem16 image_sampler half_sqrt native_exp"
)
# Beside those of the C library.
_OWN = "exp10 rsqrt min max popcount clz isinf isfinite".split()
_SPACES = {"global": "__global", "shared": "__local", "shared.dyn": "__local", "local": "", "": "__global"}


class OpenCLPrinter(KernelPrinter):
    """Kernels as OpenCL C."""

    language = "OpenCL"
    reserved = frozenset(_KEYWORDS.split())
    scalars: ClassVar[dict[str, str]] = {
        "bool": "bool", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
        "uint32": "uint", "int64": "long", "uint64": "ulong", "float16": "real16", "float32": "float",
        "float64": "double",
    }  # fmt: skip
    memory_scalars: ClassVar[dict[str, str]] = {"bool": "uchar", "float16": "mem16"}
    # OpenCL's long has 64 bits, and its compilers know no LL.
    suffixes: ClassVar[dict[str, str]] = {"int64": "L", "uint64": "UL", "uint32": "U"}
    functions: ClassVar[dict[str, str]] = {
        **C_FUNCTIONS, **{n: n for n in _OWN}, "round": "rint", "nearbyint": "rint",
    }  # fmt: skip

    def type_name(self, dtype: str) -> str:
        self.note(dtype)
        return super().type_name(dtype)

    def memory_type(self, element: str) -> str:
        self.note(element)
        return super().memory_type(element)

    def note(self, dtype: str) -> None:
        """Remember which parts of the prelude a type needs."""
        element = dt.element_of(dtype)
        if element in ("float16", "float64"):
            self.features.add(element)

    # -- vectors -------------------------------------------------------------------------------------------

    def has_vectors(self, dtype: str) -> bool:
        return dt.lanes(dtype) in _WIDTHS and not dt.is_bool(dtype) and dt.element_of(dtype) in self.scalars

    def vector_function(self, e: Call) -> bool:
        name = e.op.name.removeprefix("tir.")
        return (
            name in self.functions
            or name in ("texture2d_load", "reinterpret", "sigmoid")
            or name.startswith(("bitwise", "shift", "call_"))
        )

    def vector_name(self, element: str, lanes: int) -> str:
        return f"real16_{lanes}" if element == "real16" else f"{element}{lanes}"

    def vector(self, dtype: str, elements: list[Piece]) -> Piece:
        return Piece(f"({self.type_name(dtype)})({', '.join(elements)})")

    def lane(self, vector: Piece, index: int) -> Piece:
        return Piece(f"{wrapped(vector, 8)}.s{index:x}")

    def cast(self, value: Piece, source: str, target: str) -> Piece:
        if source and dt.lanes(target) != 1:
            return Piece(f"convert_{self.type_name(target)}({value})")
        return super().cast(value, source, target)

    # -- memory --------------------------------------------------------------------------------------------

    # Private arrays hold values (``real16``, not ``mem16``) and are accessed element by element: they become registers,
    # which vector loads through pointers would prevent.

    def is_private(self, data: PrimExpr) -> bool:
        """Whether memory belongs to one thread."""
        return not self.spaces.get(data)

    def element(self, buffer: Buffer, element: str, index: Piece) -> Piece:
        if element == "float16" and not self.is_private(buffer.data):
            return Piece(f"load_half({self.spaces[buffer.data]}, {self.pointer(buffer.data, element)}, {index})")
        return super().element(buffer, element, index)

    def store(self, buffer: Buffer, element: str, index: Piece, value: Piece) -> None:
        if element == "float16" and not self.is_private(buffer.data):
            pointer = self.pointer(buffer.data, element)
            self.line(f"store_half({self.spaces[buffer.data]}, {value}, {pointer}, {index});")
        else:
            super().store(buffer, element, index, value)

    def load_vector(self, buffer: Buffer, element: str, count: int, index: Piece) -> Piece:
        if self.is_private(buffer.data):
            places = [infix("+", index, Piece(str(i)), ADD) if i else index for i in range(count)]
            return self.vector(dt.with_lanes(element, count), [self.element(buffer, element, p) for p in places])
        place = self.offset(self.pointer(buffer.data, element), index)
        if element == "float16":
            return Piece(f"load_half{count}({self.spaces[buffer.data]}, {place})")
        return Piece(f"vload{count}(0, {place})")

    def store_vector(self, buffer: Buffer, element: str, count: int, index: Piece, value: Piece) -> None:
        if self.is_private(buffer.data):
            name = Piece(self.supply.fresh("lanes"))
            self.line(self.declaration(dt.with_lanes(element, count), name, value))
            for i in range(count):
                place = infix("+", index, Piece(str(i)), ADD) if i else index
                self.store(buffer, element, place, self.lane(name, i))
            return
        place = self.offset(self.pointer(buffer.data, element), index)
        if element == "float16":
            self.line(f"store_half{count}({self.spaces[buffer.data]}, {value}, {place});")
        else:
            self.line(f"vstore{count}({value}, 0, {place});")

    def allocate(self, stmt: Allocate, scope: str) -> None:
        if scope not in _SPACES or scope == "global":
            raise RelaxishError(f"OpenCL kernels have no memory of scope {scope!r} ({stmt.buffer_var.name})")
        element, count = self.array_facts(stmt)
        name, space = self.bind(stmt.buffer_var), _SPACES[scope]
        self.memory_types[stmt.buffer_var], self.spaces[stmt.buffer_var] = element, space
        aligned = " __attribute__((aligned(64)))" if scope == "shared.dyn" else ""
        kind = self.memory_type(element) if space else self.type_name(element)
        self.line(f"{space} {kind} {name}[{count}]{aligned};".strip())

    # -- the kernel ----------------------------------------------------------------------------------------

    def head(self, name: str, func: PrimFunc, params: list[str]) -> str:
        block = self.facts.block_size()
        fixed = f" __attribute__((reqd_work_group_size({block[0]}, {block[1]}, {block[2]})))" if block else ""
        return f"__kernel{fixed}\nvoid {name}({', '.join(params)}) {{"

    def start(self, name: str, func: PrimFunc) -> None:
        self.noalias = bool((func.attrs or {}).get("tir.noalias"))

    def pointer_parameter(self, param: Var, name: str, element: str) -> str:
        if self.scope_of(param).startswith("global.texture"):
            self.features.add("texture")
            return f"{'__write_only' if self.texture_is_written(param) else '__read_only'} image2d_t {name}"
        self.spaces[param] = "__global"
        return f"__global {self.memory_type(element)}* restrict {name}"

    def scalar_parameter(self, param: PrimExpr, name: str) -> str:
        kind = "float" if param.dtype == "float16" else self.memory_type(param.dtype)
        return f"{kind} {name}"

    def texture_is_written(self, param: PrimExpr) -> bool:
        """Whether the kernel stores to a texture."""
        return param in self.written_textures

    def _kernel(self, name: str, func: PrimFunc) -> str:
        self.written_textures = _stored_textures(func)
        return super()._kernel(name, func)

    def thread_index(self, tag: str) -> Piece:
        where, _, axis = tag.partition(".")
        function = {"threadIdx": "get_local_id", "blockIdx": "get_group_id"}.get(where)
        if function is None:
            raise RelaxishError(f"OpenCL has no threads of the kind {tag}")
        return Piece(f"{function}({'xyz'.index(axis)})")

    # -- intrinsics ----------------------------------------------------------------------------------------

    def do_tvm_storage_sync(self, call: Call) -> None:
        scope = call.args[0].value
        if scope == "global":
            raise RelaxishError("OpenCL cannot synchronise all blocks of a kernel")
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")

    def call_call_extern(self, e: Call) -> Piece:
        made = super().call_call_extern(e)
        # Its long has 64 bits.
        return Piece(made.replace("%ll", "%l")) if e.args[0].value == "printf" else made

    def call_reinterpret(self, e: Call) -> Piece:
        if "float16" in (dt.element_of(e.dtype), dt.element_of(e.args[0].dtype)):
            raise RelaxishError("OpenCL code generation does not reinterpret halves: devices may compute with floats")
        return self.call(f"as_{self.type_name(e.dtype)}", self.expr(e.args[0]))

    def call_tvm_warp_shuffle(self, e: Call) -> Piece:
        self.features.add("shuffle")
        return self.call("warp_shuffle", *map(self.expr, e.args[1:4]))

    def call_tvm_warp_shuffle_up(self, e: Call) -> Piece:
        self.features.add("shuffle")
        return self.call("warp_shuffle_up", *map(self.expr, e.args[1:4]))

    def call_tvm_warp_shuffle_down(self, e: Call) -> Piece:
        self.features.add("shuffle")
        return self.call("warp_shuffle_down", *map(self.expr, e.args[1:4]))

    def call_tvm_warp_activemask(self, e: Call) -> Piece:
        return Piece("0xffffffffU")

    def call_texture2d_load(self, e: Call) -> Piece:
        texture, x, y, channel = e.args
        function = "read_imager16" if dt.element_of(e.dtype) == "float16" else "read_imagef"
        self.note(e.dtype)
        place = f"(int2)({self.expr(x)}, {self.expr(y)})"
        whole = self.call(function, self.expr(texture), "image_sampler", place)
        match channel:
            case Ramp():
                return whole
            case IntImm():
                return self.lane(whole, int(channel.value))
        pixel = self.supply.fresh("pixel")
        self.line(self.declaration(dt.with_lanes(dt.element_of(e.dtype), 4), pixel, whole))
        return Piece(f"(({self.type_name(dt.element_of(e.dtype))}*)&{pixel})[{self.expr(channel)}]")

    def do_texture2d_store(self, call: Call) -> None:
        texture, x, y, value = call.args
        function = "write_imager16" if dt.element_of(value.dtype) == "float16" else "write_imagef"
        self.note(value.dtype)
        place = f"(int2)({self.expr(x)}, {self.expr(y)})"
        self.line(f"{function}({self.expr(texture)}, {place}, {self.expr(value)});")


def _stored_textures(func: PrimFunc) -> set[Any]:
    calls = of_kind(all_nodes(func.body), Call)
    return {call.args[0] for call in calls if is_call_of(call, "tir.texture2d_store")}


def opencl_source(mod: IRModule) -> str:
    """One source file for all device functions of a module."""
    printer = OpenCLPrinter()
    kernels = [printer.kernel(name, func) for name, func in device_functions(mod)]
    parts = []
    if "float64" in printer.features:
        parts.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n")
    if "float16" in printer.features:
        parts.append(HALF)
    if "shuffle" in printer.features:
        parts.append(SHUFFLE)
    if "texture" in printer.features:
        parts.append(SAMPLER)
    return "\n".join([*parts, *printer.helpers.values(), *kernels])
