"""GLSL compute shaders from lowered device functions.

A shader file has one entry point, so every kernel stands between ``#ifdef KERNEL_<name>`` and ``#endif``; whoever
compiles it defines one of them. Buffers are bound in order in set 0, scalar arguments are push constants::

    #ifdef KERNEL_copy_kernel
    layout(local_size_x = 64, local_size_y = 1, local_size_z = 1) in;
    layout(std430, set = 0, binding = 0) buffer A_block { float A[]; };
    layout(std430, set = 0, binding = 1) buffer B_block { float B[]; };
    void main() {
      int blockIdx_x = int(gl_WorkGroupID.x); ...
"""

from __future__ import annotations

import math
from typing import ClassVar

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...ir.prim import Call, Var
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ...tir.buffer import Buffer
from ..common.csource import Piece, ShaderPrinter, device_functions
from ..common.csource.pieces import ADD, MUL, UNARY, infix, wrapped
from .helpers import HELPERS

__all__ = ["GLSLPrinter", "glsl_source"]

_KEYWORDS = (
    "attribute bool break buffer case centroid coherent const continue default discard do double else false flat float "
    "for highp if image2D in inout input int invariant layout lowp main mediump noperspective out output patch precise "
    "precision readonly resource restrict return sample sampler2D shared smooth struct subroutine switch true uint "
    "uniform varying vec2 vec3 vec4 void volatile while writeonly active asm cast class common enum extern external "
    "filter fixed goto half inline input interface long namespace noinline packed partition public short sizeof static "
    "superp template this typedef union unsigned using args min max abs exp log sqrt sin cos tan floor ceil round pow "
    "dot length cross distance sign mix step clamp mod atan fma barrier not any all equal"
)
_NAMES = {
    **{n: n for n in "exp exp2 log log2 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()},
    **{n: n for n in "floor ceil trunc pow abs min max fma isnan isinf".split()},
    "rsqrt": "inversesqrt", "fabs": "abs", "round": "roundEven", "nearbyint": "roundEven", "atan2": "atan",
}  # fmt: skip
_SUFFIXES = {"int32": "", "uint32": "u", "int64": "L", "uint64": "UL"}
_EXTENSIONS = (
    "GL_EXT_shader_explicit_arithmetic_types", "GL_EXT_shader_8bit_storage", "GL_EXT_shader_16bit_storage",
    "GL_KHR_shader_subgroup_basic", "GL_KHR_shader_subgroup_shuffle", "GL_KHR_shader_subgroup_ballot",
)  # fmt: skip
_BITCASTS = {
    ("float32", "int32"): "floatBitsToInt", ("float32", "uint32"): "floatBitsToUint",
    ("int32", "float32"): "intBitsToFloat", ("uint32", "float32"): "uintBitsToFloat",
    ("int32", "uint32"): "uint", ("uint32", "int32"): "int",
}  # fmt: skip


class GLSLPrinter(ShaderPrinter):
    """Kernels as GLSL; vectors are computed lane by lane."""

    language = "GLSL"
    workgroup_barrier = "barrier();"
    reserved = frozenset(_KEYWORDS.split())
    scalars: ClassVar[dict[str, str]] = {
        "bool": "bool", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t", "int32": "int",
        "uint32": "uint", "int64": "int64_t", "uint64": "uint64_t", "float16": "float16_t", "float32": "float",
        "float64": "double",
    }  # fmt: skip
    memory_scalars: ClassVar[dict[str, str]] = {"bool": "uint8_t"}
    functions: ClassVar[dict[str, str]] = _NAMES
    templates = HELPERS

    # -- expressions ---------------------------------------------------------------------------------------

    def integer(self, value: int, dtype: str) -> Piece:
        if value == dt.min_value(dtype) and dtype in ("int32", "int64"):
            return Piece(f"-{-(value + 1)}{_SUFFIXES[dtype]} - 1", ADD)
        if dtype in _SUFFIXES:
            return Piece(f"{value}{_SUFFIXES[dtype]}", UNARY if value < 0 else 8)
        return Piece(f"{self.type_name(dtype)}({value})")

    def floating(self, value: float, dtype: str) -> Piece:
        kind = self.type_name(dtype)
        if not math.isfinite(value):
            bits = "0x7fc00000u" if math.isnan(value) else "0xff800000u" if value < 0 else "0x7f800000u"
            made = f"uintBitsToFloat({bits})"
            return Piece(made if kind == "float" else f"{kind}({made})")
        suffix = {"float": "f", "double": "lf", "float16_t": "hf"}[kind]
        return Piece(f"{value!r}{suffix}", UNARY if repr(value)[0] == "-" else 8)

    def index(self, place: PrimExpr) -> Piece:
        made = self.expr(place)
        return made if place.dtype in ("int32", "uint32") else self.call("int", made)

    def element(self, buffer: Buffer, element: str, index: Piece) -> Piece:
        place = super().element(buffer, element, index)
        return Piece(f"bool({place})") if element == "bool" else place

    def store(self, buffer: Buffer, element: str, index: Piece, value: Piece) -> None:
        super().store(buffer, element, index, Piece(f"uint8_t({value})") if element == "bool" else value)

    def remainder(self, a: Piece, b: Piece) -> Piece:
        quotient = self.call("trunc", infix("/", a, b, MUL))
        return infix("-", a, infix("*", b, quotient, MUL), ADD)

    def call_isfinite(self, e: Call) -> Piece:
        value = self.expr(e.args[0])
        return Piece(f"!(isnan({value}) || isinf({value}))", UNARY)

    def call_popcount(self, e: Call) -> Piece:
        return self.cast(self.call("bitCount", self.expr(e.args[0])), "int32", e.dtype)

    def call_reinterpret(self, e: Call) -> Piece:
        way = e.args[0].dtype, e.dtype
        if way not in _BITCASTS:
            raise RelaxishError(f"GLSL cannot see {way[0]} as {way[1]}")
        return self.call(_BITCASTS[way], self.expr(e.args[0]))

    def shuffle(self, kind: str, e: Call) -> Piece:
        lane = self.shuffled_lane(kind, Piece("gl_SubgroupInvocationID"), e)
        return self.call("subgroupShuffle", self.expr(e.args[1]), lane)

    def call_tvm_warp_activemask(self, e: Call) -> Piece:
        return self.cast(Piece("subgroupBallot(true).x"), "uint32", e.dtype)

    # -- statements ----------------------------------------------------------------------------------------

    def for_head(self, dtype: str, name: str, first: str, stop: str) -> str:
        kind = self.type_name(dtype)
        return f"for ({kind} {name} = {first}; {name} < {wrapped(stop, ADD)}; {name}++)"

    def unroll_hint(self) -> None:
        """GLSL's hint is an extension that compilers do not need."""

    # -- memory and the kernel -----------------------------------------------------------------------------

    def declare(self, name: str, element: str, count: int, shared: bool) -> None:
        declared = f"{self.memory_type(element)} {name}[{count}];"
        if shared:
            self.globals.append(f"shared {declared}")
        else:
            self.line(declared)

    def pointer_parameter(self, param: Var, name: str, element: str) -> str:
        kind = self.memory_type(element)
        place = f"layout(std430, set = 0, binding = {self.buffers})"
        self.globals.append(f"{place} buffer {name}_block {{ {kind} {name}[]; }};")
        self.buffers += 1
        return ""

    def scalar_parameter(self, param: PrimExpr, name: str) -> str:
        # Eight bytes each, as the host lays them out.
        wide = "double" if dt.is_float(param.dtype) else "int64_t" if dt.is_int(param.dtype) else "uint64_t"
        self.fields.append(f"{wide} {name};")
        self.names[param] = self.cast(Piece(f"args.{name}"), "", param.dtype)
        return ""

    def start(self, name: str, func: PrimFunc) -> None:
        if self.fields:
            self.globals.append(f"layout(push_constant) uniform Args {{ {' '.join(self.fields)} }} args;")

    def head(self, name: str, func: PrimFunc, params: list[str]) -> str:
        x, y, z = self.workgroup_size(name)
        size = f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;"
        return "\n".join([f"#ifdef KERNEL_{name}", size, *self.globals, "void main() {"])

    def _kernel(self, name: str, func: PrimFunc) -> str:
        return super()._kernel(name, func) + "#endif\n"

    def thread_index(self, tag: str) -> Piece:
        where, _, axis = tag.partition(".")
        variable = {"threadIdx": "gl_LocalInvocationID", "blockIdx": "gl_WorkGroupID"}.get(where)
        if variable is None:
            raise RelaxishError(f"GLSL has no threads of the kind {tag}")
        return Piece(f"{variable}.{axis}")


def glsl_source(mod: IRModule) -> str:
    """One file for all device functions of a module."""
    printer = GLSLPrinter()
    kernels = [printer.kernel(name, func) for name, func in device_functions(mod)]
    head = ["#version 450", *(f"#extension {name} : enable" for name in _EXTENSIONS), ""]
    return "\n".join(["\n".join(head), *printer.helpers.values(), *kernels])
