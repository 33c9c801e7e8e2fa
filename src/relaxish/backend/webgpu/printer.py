"""WGSL from lowered device functions.

Before and after::

    T.launch_thread("blockIdx.x", 4)        @group(0) @binding(0) var<storage, read_write> A : array<f32>;
    T.launch_thread("threadIdx.x", 64)      @group(0) @binding(1) var<storage, read_write> B : array<f32>;
    B[bx * 64 + tx] = A[bx * 64 + tx]       @compute @workgroup_size(64, 1, 1)
                                            fn copy_kernel(@builtin(workgroup_id) blockIdx : vec3<u32>, ...) {
                                              let blockIdx_x : i32 = i32(blockIdx.x); ...
                                              B[blockIdx_x * 64 + threadIdx_x] = A[blockIdx_x * 64 + threadIdx_x]; }

Scalar arguments follow the buffers as one uniform structure. Vectors are computed lane by lane; WGSL has no integers of
8, 16 or 64 bits.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...ir.prim import Call, IntImm, Var
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ..common.csource import Piece, ShaderPrinter, device_functions
from ..common.csource.names import NameSupply
from ..common.csource.pieces import ADD, BITS, MUL, UNARY, infix, wrapped
from .helpers import HELPERS

__all__ = ["WGSLPrinter", "wgsl_source"]

_KEYWORDS = (
    "alias array atomic bool break case const const_assert continue continuing default diagnostic discard else enable "
    "f16 f32 false fn for i32 if let loop mat2x2 override private ptr read read_write return sampler storage struct "
    "switch true u32 uniform var vec2 vec3 vec4 while workgroup write min max abs exp log sqrt sin cos tan floor ceil "
    "round pow select dot length cross distance sign mix step clamp blockIdx threadIdx subgroup_lane target macro get set self shared "
    "static super template this thread_local throw try typedef union unless unsafe unsized use using varying virtual "
    "volatile where with yield async await from final export import module new nil noexcept null class"
)
_NAMES = {
    **{n: n for n in "exp exp2 log log2 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()},
    **{n: n for n in "floor ceil trunc round atan2 pow abs min max fma".split()},
    "rsqrt": "inverseSqrt", "fabs": "abs", "nearbyint": "round", "popcount": "countOneBits", "clz": "countLeadingZeros",
}  # fmt: skip


class WGSLPrinter(ShaderPrinter):
    """Kernels as WGSL; names of buffers are of the whole file."""

    language = "WGSL"
    workgroup_barrier = "workgroupBarrier();"
    reserved = frozenset(_KEYWORDS.split())
    scalars: ClassVar[dict[str, str]] = {
        "bool": "bool", "int32": "i32", "uint32": "u32", "float16": "f16", "float32": "f32",
    }  # fmt: skip
    functions: ClassVar[dict[str, str]] = _NAMES
    templates = HELPERS

    def __init__(self) -> None:
        super().__init__()
        self.arguments = ""
        self.reads_lane = False

    def kernel(self, name: str, func: PrimFunc) -> str:
        fresh = WGSLPrinter()
        fresh.helpers, fresh.features, fresh.supply = self.helpers, self.features, self.supply
        return fresh._kernel(name, func)

    def type_name(self, dtype: str) -> str:
        if dt.element_of(dtype) == "float16":
            self.features.add("f16")
        return super().type_name(dtype)

    # -- expressions ---------------------------------------------------------------------------------------

    def integer(self, value: int, dtype: str) -> Piece:
        if dtype == "int32" and value == -(1 << 31):
            return Piece("-2147483647 - 1", ADD)
        self.type_name(dtype)
        return Piece(f"{value}{'u' if dtype == 'uint32' else ''}", UNARY if value < 0 else 8)

    def floating(self, value: float, dtype: str) -> Piece:
        kind = self.type_name(dtype)
        if not math.isfinite(value):
            # Constants must be finite, so these come out of a variable.
            name = "nan_bits" if math.isnan(value) else "infinity_bits"
            bits = "0x7fc00000u" if math.isnan(value) else "0x7f800000u"
            made = f"bitcast<f32>({self.helper(name, f'var<private> {name} : u32 = {bits};')})"
            made = f"-{made}" if value < 0 else made
            level = UNARY if value < 0 else 8
            return Piece(made, level) if kind == "f32" else Piece(f"{kind}({made})")
        suffix = {"f32": "f", "f16": "h"}[kind]
        return Piece(f"{value!r}{suffix}", UNARY if repr(value)[0] == "-" else 8)

    def choice(self, condition: Piece, yes: Piece, no: Piece) -> Piece:
        # Reads outside of a buffer are harmless in WGSL, so both sides may be evaluated.
        return self.call("select", no, yes, condition)

    def declaration(self, dtype: str, name: str, value: str) -> str:
        return f"let {name} : {self.type_name(dtype)} = {value};"

    def _shift(self, operator: str, e: Call) -> Piece:
        amount = e.args[1]
        count = Piece(f"{amount.value}u") if isinstance(amount, IntImm) else self.call("u32", self.expr(amount))
        return infix(operator, self.expr(e.args[0]), count, BITS)

    def call_shift_left(self, e: Call) -> Piece:
        return self._shift("<<", e)

    def call_shift_right(self, e: Call) -> Piece:
        return self._shift(">>", e)

    def call_reinterpret(self, e: Call) -> Piece:
        return self.call(f"bitcast<{self.type_name(e.dtype)}>", self.expr(e.args[0]))

    def remainder(self, a: Piece, b: Piece) -> Piece:
        return infix("%", a, b, MUL)

    def call_isinf(self, e: Call) -> Piece:
        value = self.expr(e.args[0])
        return Piece(f"abs({value}) > 3.4028234663852886e+38f", 4)

    def call_isfinite(self, e: Call) -> Piece:
        value = self.expr(e.args[0])
        return Piece(f"abs({value}) <= 3.4028234663852886e+38f", 4)

    def call_dp4a(self, e: Call) -> Piece:
        raise RelaxishError("WGSL code generation has no packed dot products")

    # -- statements ----------------------------------------------------------------------------------------

    def for_head(self, dtype: str, name: str, first: str, stop: str) -> str:
        kind = self.type_name(dtype)
        return f"for (var {name} : {kind} = {first}; {name} < {wrapped(stop, ADD)}; {name}++)"

    def unroll_hint(self) -> None:
        """WGSL has no word for it."""

    def shuffle(self, kind: str, e: Call) -> Piece:
        self.features.add("subgroups")
        self.reads_lane = True
        return self.call("subgroupShuffle", self.expr(e.args[1]), self.shuffled_lane(kind, Piece("subgroup_lane"), e))

    def call_tvm_warp_activemask(self, e: Call) -> Piece:
        # Shuffles take no mask here.
        return self.constant((1 << 32) - 1, "uint32")

    # -- memory and the kernel -----------------------------------------------------------------------------

    def declare(self, name: str, element: str, count: int, shared: bool) -> None:
        kind = f"array<{self.memory_type(element)}, {count}>"
        if shared:
            self.globals.append(f"var<workgroup> {name} : {kind};")
        else:
            self.line(f"var {name} : {kind};")

    def pointer_parameter(self, param: Var, name: str, element: str) -> str:
        if element == "bool":
            raise RelaxishError(f"WGSL has no storage of bool ({param.name}); use int32")
        kind = f"array<{self.memory_type(element)}>"
        self.globals.append(f"@group(0) @binding({self.buffers}) var<storage, read_write> {name} : {kind};")
        self.buffers += 1
        return ""

    def start(self, name: str, func: PrimFunc) -> None:
        if self.fields:
            self.globals.append(f"struct {name}_args {{ {' '.join(self.fields)} }}")
            self.globals.append(f"@group(0) @binding({self.buffers}) var<uniform> {self.arguments} : {name}_args;")

    def scalar_parameter(self, param: PrimExpr, name: str) -> str:
        self.arguments = self.arguments or self.supply.fresh("args")
        kind = "f32" if dt.is_float(param.dtype) else "u32" if param.dtype == "bool" else self.type_name(param.dtype)
        self.fields.append(f"{name} : {kind},")
        self.names[param] = self.cast(Piece(f"{self.arguments}.{name}"), "", param.dtype)
        return ""

    def head(self, name: str, func: PrimFunc, params: list[str]) -> str:
        x, y, z = self.workgroup_size(name)
        lane = ["    @builtin(subgroup_invocation_id) subgroup_lane : u32,"] if self.reads_lane else []
        return "\n".join([
            *self.globals,
            f"@compute @workgroup_size({x}, {y}, {z})",
            f"fn {name}(",
            "    @builtin(workgroup_id) blockIdx : vec3<u32>,",
            *lane,
            "    @builtin(local_invocation_id) threadIdx : vec3<u32>) {",
        ])  # fmt: skip

    def thread_index(self, tag: str) -> Piece:
        if tag.partition(".")[0] not in ("threadIdx", "blockIdx"):
            raise RelaxishError(f"WGSL has no threads of the kind {tag}")
        return Piece(tag)


def wgsl_source(mod: IRModule) -> str:
    """One source file for all device functions of a module; each is an entry point."""
    printer = WGSLPrinter()
    printer.supply = NameSupply(WGSLPrinter.reserved)
    kernels = [printer.kernel(name, func) for name, func in device_functions(mod)]
    enabled = [f"enable {feature};" for feature in sorted(printer.features & {"f16", "subgroups"})]
    return "\n".join([*enabled, *printer.helpers.values(), *kernels])
