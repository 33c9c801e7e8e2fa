"""Intrinsics of device functions as LLVM values; a method ``call_<name>`` writes the intrinsic ``name``.

Mathematics is computed in float32 (halves are widened) from what every device has: powers and logarithms of two, square
roots, fused multiplications.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, Var
from ....support.errors import RelaxishError
from .types import llvm_type

if TYPE_CHECKING:
    from .dialect import Dialect

__all__ = ["IntrinsicWriter"]

# arctan(x) / x in powers of the square of x, |x| <= 1.
# Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 4.4.49 (error below 2e-8).
_ATAN = (
    0.0028662257, -0.0161657367, 0.0429096138, -0.0752896400, 0.1065626393, -0.1420889944, 0.1999355085, -0.3333314528,
    1.0,
)  # fmt: skip

_DIRECT = {
    "sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil", "trunc": "llvm.trunc", "fabs": "llvm.fabs",
    "round": "llvm.rint", "nearbyint": "llvm.rint", "copysign": "llvm.copysign", "fma": "llvm.fma",
}  # fmt: skip
# Source of erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (absolute error below 1.5e-7).
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)


class IntrinsicWriter:
    """The part of an expression writer that knows intrinsics."""

    if TYPE_CHECKING:
        dialect: Dialect

        def visit(self, x: Any) -> Any: ...
        def value(self, text: str) -> str: ...
        def line(self, text: str) -> None: ...
        def call(self, name: str, result: str, *args: tuple[str, str]) -> str: ...
        def intrinsic(self, name: str, kind: str, *args: str) -> str: ...
        def constant_of(self, kind: str, number: float) -> str: ...
        def convert(self, value: str, source: str, target: str) -> str: ...
        def select(self, condition: str, lanes: int, kind: str, yes: str, no: str) -> str: ...
        def pointer(self, data: Var, element: str, index: PrimExpr) -> tuple[str, str]: ...

    # -- bits ----------------------------------------------------------------------------------------------

    def _bits(self, operation: str, e: Call) -> str:
        return self.value(f"{operation} {llvm_type(e.dtype)} {self.visit(e.args[0])}, {self.visit(e.args[1])}")

    def call_bitwise_and(self, e: Call) -> str:
        return self._bits("and", e)

    def call_bitwise_or(self, e: Call) -> str:
        return self._bits("or", e)

    def call_bitwise_xor(self, e: Call) -> str:
        return self._bits("xor", e)

    def call_shift_left(self, e: Call) -> str:
        return self._bits("shl", e)

    def call_shift_right(self, e: Call) -> str:
        return self._bits("ashr" if dt.is_int(e.dtype) else "lshr", e)

    def call_bitwise_not(self, e: Call) -> str:
        kind = llvm_type(e.dtype)
        return self.value(f"xor {kind} {self.visit(e.args[0])}, {'splat (' + kind + ' -1)' if '<' in kind else '-1'}")

    def call_reinterpret(self, e: Call) -> str:
        return self.value(f"bitcast {llvm_type(e.args[0].dtype)} {self.visit(e.args[0])} to {llvm_type(e.dtype)}")

    def call_popcount(self, e: Call) -> str:
        source = e.args[0].dtype
        return self.convert(self.intrinsic("llvm.ctpop", llvm_type(source), self.visit(e.args[0])), source, e.dtype)

    def call_clz(self, e: Call) -> str:
        source = e.args[0].dtype
        kind = llvm_type(source)
        made = self.call(f"llvm.ctlz.{kind}", kind, (kind, self.visit(e.args[0])), ("i1", "false"))
        return self.convert(made, source, e.dtype)

    def call_large_uint_imm(self, e: Call) -> str:
        low, high = (int(a.value) for a in e.args)
        return str(low | high << 32)

    # -- plain ---------------------------------------------------------------------------------------------

    def call_likely(self, e: Call) -> str:
        made: str = self.visit(e.args[0])
        return made

    call_tvm_thread_invariant = call_likely

    def call_assume(self, e: Call) -> str:
        return ""

    def call_undef(self, e: Call) -> str:
        return "undef"

    def call_tvm_access_ptr(self, e: Call) -> str:
        return self.pointer(e.args[1], dt.element_of(e.args[0].dtype), e.args[2])[1]

    def call_address_of(self, e: Call) -> str:
        load = e.args[0]
        lanes = dt.lanes(load.buffer.dtype)
        index = load.indices[0] if lanes == 1 else load.indices[0] * lanes
        return self.pointer(load.buffer.data, dt.element_of(load.buffer.dtype), index)[1]

    def call_call_llvm_pure_intrin(self, e: Call) -> str:
        name = getattr(e.args[0], "value", None)
        if not isinstance(name, str):
            raise RelaxishError("device code wants LLVM intrinsics by name")
        args = [(llvm_type(a.dtype), self.visit(a)) for a in e.args[1:]]
        return self.call(name, llvm_type(e.dtype) if e.dtype not in ("", "void", "handle") else "void", *args)

    call_call_llvm_intrin = call_call_llvm_pure_intrin

    # -- threads -------------------------------------------------------------------------------------------

    def call_tvm_warp_shuffle(self, e: Call) -> str:
        return self.dialect.shuffle(self, "", e)  # type: ignore[arg-type]

    def call_tvm_warp_shuffle_up(self, e: Call) -> str:
        return self.dialect.shuffle(self, "_up", e)  # type: ignore[arg-type]

    def call_tvm_warp_shuffle_down(self, e: Call) -> str:
        return self.dialect.shuffle(self, "_down", e)  # type: ignore[arg-type]

    def call_tvm_warp_activemask(self, e: Call) -> str:
        return self.dialect.active_mask(self, e.dtype)  # type: ignore[arg-type]

    # -- mathematics ---------------------------------------------------------------------------------------

    def mathematics(self, name: str, e: Call) -> str:
        """A function of floating-point values."""
        args = [self.visit(a) for a in e.args]
        dtype = e.args[0].dtype if e.args else e.dtype
        wide = dt.with_lanes("float32", dt.lanes(dtype)) if dt.bits(dtype) < 32 else dtype
        kind = llvm_type(wide)
        if name == "isnan":
            return self.value(f"fcmp uno {llvm_type(dtype)} {args[0]}, {args[0]}")
        if name in ("isinf", "isfinite"):
            size = self.intrinsic("llvm.fabs", llvm_type(dtype), args[0])
            test = "oeq" if name == "isinf" else "one"
            return self.value(f"fcmp {test} {llvm_type(dtype)} {size}, {self.constant_of(llvm_type(dtype), math.inf)}")
        rule = _DIRECT.get(name)
        if rule is not None and name != "sqrt":
            return self.intrinsic(rule, llvm_type(dtype), *args)
        widened = [self.convert(a, dtype, wide) for a in args]
        made = self._function(name, kind, *widened)
        return self.convert(made, wide, dtype)

    def _function(self, name: str, kind: str, *args: str) -> str:
        if name == "sqrt":
            return self.intrinsic("llvm.sqrt", kind, *args)
        rule = getattr(self, f"_f_{name}", None)
        if rule is None:
            raise RelaxishError(f"{self.dialect.name} code generation does not know the intrinsic {name}")
        made: str = rule(kind, *args)
        return made

    def _op(self, operation: str, kind: str, a: str, b: str | float) -> str:
        return self.value(f"{operation} {kind} {a}, {b if isinstance(b, str) else self.constant_of(kind, b)}")

    def _from(self, operation: str, kind: str, a: float, b: str) -> str:
        return self.value(f"{operation} {kind} {self.constant_of(kind, a)}, {b}")

    def _f_exp2(self, kind: str, x: str) -> str:
        return self.dialect.exp2(self, x, kind)  # type: ignore[arg-type]

    def _f_log2(self, kind: str, x: str) -> str:
        return self.dialect.log2(self, x, kind)  # type: ignore[arg-type]

    def _f_exp(self, kind: str, x: str) -> str:
        return self._f_exp2(kind, self._op("fmul", kind, x, math.log2(math.e)))

    def _f_exp10(self, kind: str, x: str) -> str:
        return self._f_exp2(kind, self._op("fmul", kind, x, math.log2(10)))

    def _f_log(self, kind: str, x: str) -> str:
        return self._op("fmul", kind, self._f_log2(kind, x), math.log(2))

    def _f_log10(self, kind: str, x: str) -> str:
        return self._op("fmul", kind, self._f_log2(kind, x), math.log10(2))

    def _f_log1p(self, kind: str, x: str) -> str:
        return self._f_log(kind, self._op("fadd", kind, x, 1.0))

    def _f_pow(self, kind: str, x: str, y: str) -> str:
        return self._f_exp2(kind, self._op("fmul", kind, self._f_log2(kind, x), y))

    def _f_rsqrt(self, kind: str, x: str) -> str:
        return self.dialect.rsqrt(self, x, kind)  # type: ignore[arg-type]

    def _f_sin(self, kind: str, x: str) -> str:
        return self.dialect.trigonometric(self, "sin", x, kind)  # type: ignore[arg-type]

    def _f_cos(self, kind: str, x: str) -> str:
        return self.dialect.trigonometric(self, "cos", x, kind)  # type: ignore[arg-type]

    def _f_tan(self, kind: str, x: str) -> str:
        return self._op("fdiv", kind, self._f_sin(kind, x), self._f_cos(kind, x))

    def _f_sigmoid(self, kind: str, x: str) -> str:
        below = self._f_exp(kind, self.value(f"fneg {kind} {x}"))
        return self._from("fdiv", kind, 1.0, self._op("fadd", kind, below, 1.0))

    def _f_tanh(self, kind: str, x: str) -> str:
        # 1 - 2 / (exp(2x) + 1): no overflow on either side.
        above = self._op("fadd", kind, self._f_exp(kind, self._op("fmul", kind, x, 2.0)), 1.0)
        return self._from("fsub", kind, 1.0, self._from("fdiv", kind, 2.0, above))

    def _f_sinh(self, kind: str, x: str) -> str:
        return self._hyperbolic("fsub", kind, x)

    def _f_cosh(self, kind: str, x: str) -> str:
        return self._hyperbolic("fadd", kind, x)

    def _hyperbolic(self, operation: str, kind: str, x: str) -> str:
        up = self._f_exp(kind, x)
        both = self._op(operation, kind, up, self._from("fdiv", kind, 1.0, up))
        return self._op("fmul", kind, both, 0.5)

    def _f_hypot(self, kind: str, x: str, y: str) -> str:
        squares = self._op("fadd", kind, self._op("fmul", kind, x, x), self._op("fmul", kind, y, y))
        return self.intrinsic("llvm.sqrt", kind, squares)

    def _f_fmod(self, kind: str, x: str, y: str) -> str:
        return self._op("frem", kind, x, y)

    def _f_erf(self, kind: str, x: str) -> str:
        size = self.intrinsic("llvm.fabs", kind, x)
        t = self._from("fdiv", kind, 1.0, self._op("fadd", kind, self._op("fmul", kind, size, 0.3275911), 1.0))
        series = self._series(kind, t, _ERF)
        tail = self._f_exp(kind, self._op("fmul", kind, self.value(f"fneg {kind} {size}"), size))
        upper = self._from("fsub", kind, 1.0, self._op("fmul", kind, series, tail))
        return self.intrinsic("llvm.copysign", kind, upper, x)

    def _series(self, kind: str, x: str, coefficients: tuple[float, ...]) -> str:
        """A polynomial, highest power first."""
        made = self.constant_of(kind, coefficients[0])
        for coefficient in coefficients[1:]:
            made = self.intrinsic("llvm.fma", kind, made, x, self.constant_of(kind, coefficient))
        return made

    def _f_atan(self, kind: str, x: str) -> str:
        size = self.intrinsic("llvm.fabs", kind, x)
        lanes = int(kind[1:].partition(" ")[0]) if kind.startswith("<") else 1
        large = self._op("fcmp ogt", kind, size, 1.0)
        t = self.select(large, lanes, kind, self._from("fdiv", kind, 1.0, size), size)
        small = self._op("fmul", kind, self._series(kind, self._op("fmul", kind, t, t), _ATAN), t)
        angle = self.select(large, lanes, kind, self._from("fsub", kind, math.pi / 2, small), small)
        return self.intrinsic("llvm.copysign", kind, angle, x)

    def _f_atan2(self, kind: str, y: str, x: str) -> str:
        angle = self._f_atan(kind, self._op("fdiv", kind, y, x))
        lanes = int(kind[1:].partition(" ")[0]) if kind.startswith("<") else 1
        turn = self.intrinsic("llvm.copysign", kind, self.constant_of(kind, math.pi), y)
        behind = self._op("fcmp olt", kind, x, 0.0)
        return self.select(behind, lanes, kind, self._op("fadd", kind, angle, turn), angle)

    def _f_asin(self, kind: str, x: str) -> str:
        beside = self.intrinsic("llvm.sqrt", kind, self._from("fsub", kind, 1.0, self._op("fmul", kind, x, x)))
        return self._f_atan(kind, self._op("fdiv", kind, x, beside))

    def _f_acos(self, kind: str, x: str) -> str:
        return self._from("fsub", kind, math.pi / 2, self._f_asin(kind, x))

    def _f_asinh(self, kind: str, x: str) -> str:
        size = self.intrinsic("llvm.fabs", kind, x)
        root = self.intrinsic("llvm.sqrt", kind, self._op("fadd", kind, self._op("fmul", kind, x, x), 1.0))
        return self.intrinsic("llvm.copysign", kind, self._f_log(kind, self._op("fadd", kind, size, root)), x)

    def _f_acosh(self, kind: str, x: str) -> str:
        root = self.intrinsic("llvm.sqrt", kind, self._op("fsub", kind, self._op("fmul", kind, x, x), 1.0))
        return self._f_log(kind, self._op("fadd", kind, x, root))

    def _f_atanh(self, kind: str, x: str) -> str:
        above, below = self._op("fadd", kind, x, 1.0), self._from("fsub", kind, 1.0, x)
        return self._op("fmul", kind, self._f_log(kind, self._op("fdiv", kind, above, below)), 0.5)
