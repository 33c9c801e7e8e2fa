"""HIP C++ from lowered device functions.

Vectors are clang's extended vectors (``vec4_float``): they add and multiply elementwise; what they cannot do is computed
lane by lane. Vectors in memory (``mem4_float``) may begin at any element.
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
from ..common.csource.pieces import ADD, UNARY, infix, wrapped

__all__ = ["HIPPrinter", "hip_source"]

_KEYWORDS = (
    "alignas auto bool break case catch char class const continue default delete do double else enum extern float for "
    "friend goto half if inline int long mutable namespace new operator private protected public register return short "
    "signed sizeof static struct switch template this throw try typedef union unsigned using virtual void volatile "
    "while true false min max abs exp log sqrt sin cos tan pow warpSize threadIdx blockIdx blockDim gridDim"
)
_HEADER = """\
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif
"""


class HIPPrinter(KernelPrinter):
    """Kernels as HIP C++."""

    language = "HIP"
    reserved = frozenset(_KEYWORDS.split())
    scalars: ClassVar[dict[str, str]] = {
        "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
        "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
        "float16": "_Float16", "float32": "float", "float64": "double",
    }  # fmt: skip
    functions: ClassVar[dict[str, str]] = {
        **C_FUNCTIONS, "exp10": "exp10", "rsqrt": "rsqrt", "round": "nearbyint",
    }  # fmt: skip

    # -- vectors -------------------------------------------------------------------------------------------

    def has_vectors(self, dtype: str) -> bool:
        return dt.lanes(dtype) in (2, 4, 8, 16) and not dt.is_bool(dtype) and dt.element_of(dtype) in self.scalars

    def vector_function(self, e: Call) -> bool:
        name = e.op.name.removeprefix("tir.")
        return name in ("call_llvm_pure_intrin", "call_llvm_intrin", "reinterpret") or name.startswith(
            ("bitwise", "shift")
        )

    def vector_form(self, e: PrimExpr) -> bool:
        return type(e).__name__ not in ("Min", "Max", "Mod") and super().vector_form(e)

    def vector_name(self, element: str, lanes: int) -> str:
        plain = element.replace(" ", "_")
        vector = self.helper(
            f"vec{lanes}_{plain}", f"typedef {element} vec{lanes}_{plain} __attribute__((ext_vector_type({lanes})));\n"
        )
        self.helper(
            f"mem{lanes}_{plain}",
            f"typedef vec{lanes}_{plain} mem{lanes}_{plain} __attribute__((aligned(sizeof({element}))));\n",
        )
        return vector

    def vector(self, dtype: str, elements: list[Piece]) -> Piece:
        if len(elements) == 1:
            return Piece(f"({self.type_name(dtype)}){wrapped(elements[0], UNARY)}", UNARY)
        return Piece(f"({self.type_name(dtype)}){{{', '.join(elements)}}}")

    def cast(self, value: Piece, source: str, target: str) -> Piece:
        if source and dt.lanes(target) != 1:
            return Piece(f"__builtin_convertvector({value}, {self.type_name(target)})")
        return super().cast(value, source, target)

    def floating(self, value: float, dtype: str) -> Piece:
        plain = super().floating(value, dtype)
        return Piece(plain.replace("INFINITY", "__builtin_inff()").replace("NAN", '__builtin_nanf("")'), plain.level)

    # -- memory --------------------------------------------------------------------------------------------

    def _vector_place(self, buffer: Buffer, element: str, count: int, index: Piece) -> str:
        name = self.type_name(dt.with_lanes(element, count)).replace("vec", "mem", 1)
        place = self.offset(self.pointer(buffer.data, element), index)
        return f"*({name}*){wrapped(place, UNARY)}"

    def load_vector(self, buffer: Buffer, element: str, count: int, index: Piece) -> Piece:
        vector = self.type_name(dt.with_lanes(element, count))
        return Piece(f"({vector}){self._vector_place(buffer, element, count, index)}", UNARY)

    def store_vector(self, buffer: Buffer, element: str, count: int, index: Piece, value: Piece) -> None:
        self.line(f"{self._vector_place(buffer, element, count, index)} = {value};")

    def allocate(self, stmt: Allocate, scope: str) -> None:
        if scope == "global":
            raise RelaxishError(f"kernels cannot allocate global memory ({stmt.buffer_var.name})")
        element, count = self.array_facts(stmt)
        name = self.bind(stmt.buffer_var)
        self.memory_types[stmt.buffer_var] = element
        space = "__shared__ __attribute__((aligned(64))) " if scope.startswith("shared") else ""
        self.line(f"{space}{self.memory_type(element)} {name}[{count}];")

    # -- the kernel ----------------------------------------------------------------------------------------

    def head(self, name: str, func: PrimFunc, params: list[str]) -> str:
        block = self.facts.block_size()
        bounds = f"__launch_bounds__({block[0] * block[1] * block[2]}) " if block else ""
        return f'extern "C" __global__ {bounds}void {name}({", ".join(params)}) {{'

    def pointer_parameter(self, param: Var, name: str, element: str) -> str:
        return f"{self.memory_type(element)}* __restrict__ {name}"

    def thread_index(self, tag: str) -> Piece:
        if tag.partition(".")[0] not in ("threadIdx", "blockIdx"):
            raise RelaxishError(f"HIP has no threads of the kind {tag}")
        return Piece(tag)

    # -- intrinsics ----------------------------------------------------------------------------------------

    def function(self, name: str, dtype: str) -> str | None:
        element = dt.element_of(dtype)
        if name in ("min", "max"):
            return self._extremum(name, self.type_name(element))
        found = self.functions.get(name)
        if found is None or element == "float64":
            return found or {"isinf": "isinf", "isfinite": "isfinite"}.get(name)
        return f"{found}f" if element != "float16" else self._half_function(found, name)

    def _extremum(self, name: str, kind: str) -> str:
        made = f"{name}_{kind.replace(' ', '_')}"
        # NaN if either is.
        test = "a < b || a != a ? a : b" if name == "min" else "a > b || a != a ? a : b"
        return self.helper(made, f"static __device__ inline {kind} {made}({kind} a, {kind} b) {{ return {test}; }}\n")

    def _half_function(self, found: str, name: str) -> str:
        """Halves are computed in single precision, for which there is every function."""
        made, two = f"{name}_half", name in ("fmod", "atan2", "copysign", "hypot", "nextafter", "pow")
        inputs = ["a", "b", "c"][: 3 if name == "fma" else 2 if two else 1]
        params = ", ".join(f"_Float16 {x}" for x in inputs)
        args = ", ".join(f"(float){x}" for x in inputs)
        text = f"static __device__ inline _Float16 {made}({params}) {{ return (_Float16){found}f({args}); }}\n"
        return self.helper(made, text)

    def do_tvm_storage_sync(self, call: Call) -> None:
        scope = call.args[0].value
        if scope == "global":
            raise RelaxishError("HIP cannot synchronise all blocks of a kernel")
        self.line("__builtin_amdgcn_wave_barrier();" if scope == "warp" else "__syncthreads();")

    def call_reinterpret(self, e: Call) -> Piece:
        return self.call("__builtin_bit_cast", self.type_name(e.dtype), self.expr(e.args[0]))

    def call_popcount(self, e: Call) -> Piece:
        unsigned = f"uint{max(32, dt.bits(e.args[0].dtype))}"
        function = "__builtin_popcountll" if unsigned == "uint64" else "__builtin_popcount"
        return self.call(function, self.cast(self.expr(e.args[0]), e.args[0].dtype, unsigned))

    def call_clz(self, e: Call) -> Piece:
        wide = dt.bits(e.args[0].dtype) == 64
        made = self.call("__clzll" if wide else "__clz", self.expr(e.args[0]))
        spare = 32 - dt.bits(e.args[0].dtype)
        return infix("-", made, Piece(str(spare)), ADD) if spare > 0 else made

    def _shuffle(self, function: str, e: Call) -> Piece:
        return self.call(function, *map(self.expr, e.args[1:4]))

    def call_tvm_warp_shuffle(self, e: Call) -> Piece:
        return self._shuffle("__shfl", e)

    def call_tvm_warp_shuffle_up(self, e: Call) -> Piece:
        return self._shuffle("__shfl_up", e)

    def call_tvm_warp_shuffle_down(self, e: Call) -> Piece:
        return self._shuffle("__shfl_down", e)

    def call_tvm_warp_activemask(self, e: Call) -> Piece:
        return self.cast(self.call("__ballot", "1"), "uint64", e.dtype)

    def call_dp4a(self, e: Call) -> Piece:
        a, b = (self.call("__builtin_bit_cast", "int", self.expr(x)) for x in e.args[:2])
        return self.call("__builtin_amdgcn_sdot4", a, b, self.expr(e.args[2]) if len(e.args) > 2 else "0", "false")

    def call_call_llvm_pure_intrin(self, e: Call) -> Piece:
        name = getattr(e.args[0], "value", None)
        if not isinstance(name, str) or not name.startswith("llvm.amdgcn."):
            raise RelaxishError(f"HIP has no builtin for the LLVM intrinsic {name}")
        builtin = "__builtin_" + name.removeprefix("llvm.").replace(".", "_")
        return self.call(builtin, *map(self.expr, e.args[1:]))

    call_call_llvm_intrin = call_call_llvm_pure_intrin


def hip_source(mod: IRModule) -> str:
    """One source file for all device functions of a module."""
    printer = HIPPrinter()
    kernels = [printer.kernel(name, func) for name, func in device_functions(mod)]
    return "\n".join([_HEADER, *printer.helpers.values(), *kernels])
