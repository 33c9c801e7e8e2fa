"""LowerIntrin: what a target has no instruction for is written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.op import Op, op_name_of
from ....ir.prim import (
    Add,
    And,
    Broadcast,
    Call,
    CmpOp,
    EQ,
    FloorDiv,
    FloorMod,
    GE,
    IntImm,
    LT,
    Let,
    Max,
    Mul,
    NE,
    Select,
    Var,
    const_int,
)
from ...buffer import Buffer
from ...function import PrimFunc
from ..base import LoweringError, call, op_name, FunctionRewrite
from .intrin_rules import RULES, Rule
from ..simplify.simplify import ExprAnalyzerMutator


def _power_of_two(e: PrimExpr) -> int | None:
    if isinstance(e, IntImm) and e.value > 0 and e.value & (e.value - 1) == 0:
        return e.value.bit_length() - 1
    return None


def _sigmoid(e: Call) -> PrimExpr:
    x = e.args[0]
    one = B.const(x.dtype, 1.0)
    return one / (one + call(x.dtype, "exp", B.const(x.dtype, 0.0) - x))


def _rsqrt(e: Call) -> PrimExpr:
    x = e.args[0]
    return B.const(x.dtype, 1.0) / call(x.dtype, "sqrt", x)


# Rules for every target, unless it has its own.
for _name, _rule in (("sigmoid", _sigmoid), ("rsqrt", _rsqrt)):
    Op.register(f"tir.{_name}").set_attr("default.FLowerIntrinsic", _rule)


class _IntrinsicLowerer(ExprAnalyzerMutator):
    def __init__(self, kind: str, mtriple: str, mathematics: bool) -> None:
        super().__init__()
        self.bitwise = kind not in ("hybrid",)
        nothing: Mapping[str, Rule] = {}
        tables = RULES if mathematics else {}
        self.sources = [(f"{k}.FLowerIntrinsic", tables.get(k, nothing)) for k in (kind, "default")]
        if mtriple.startswith("aarch64"):
            self.sources.insert(0, (f"{kind}.aarch64.FLowerIntrinsic", nothing))
        self.fused = self._rule(Op.get("tir.fma"), *self.sources[-2])

    @staticmethod
    def _rule(op: Op, key: str, table: Mapping[str, Rule]) -> Rule | None:
        """The rule that was registered under the key, else the one of the table."""
        return op.get_attr(key) or table.get(op.name.removeprefix("tir."))

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return self.default_visit(e)

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_Call(self, e: Call) -> PrimExpr:
        if op_name_of(e):
            for source in self.sources:
                rule = self._rule(e.op, *source)
                made = rule(e) if rule is not None else None
                if made is not None and made is not e:
                    return self.visit(made)
        made = self.default_visit(e)
        return self._in_width(made) if op_name(made) in ("shift_left", "shift_right") else made

    def _in_width(self, e: Call) -> PrimExpr:
        """A shift by the width and more, which no target does alike: nothing stays but the sign, if there is one."""
        value, count = e.args
        known = count.value if isinstance(count, Broadcast) else count
        width, lanes = dt.bits(e.dtype), dt.lanes(count.dtype)
        if 0 <= const_int(known, -1) < width:
            return e
        zero, bits, last = (B.const(dt.element_of(count.dtype), n) for n in (0, width, width - 1))
        if lanes == 1 and self.analyzer.can_prove(And(count >= 0, count < bits)):
            return e
        if lanes != 1:
            zero, bits, last = (Broadcast(n, lanes) for n in (zero, bits, last))
        inside = And(GE(count, zero), LT(count, bits))
        if op_name(e) == "shift_right" and dt.is_int(e.dtype):
            return Call(e.dtype, e.op, [value, Select(inside, count, last)])
        nothing = B.const(dt.element_of(e.dtype), 0)
        return Select(inside, e, nothing if dt.is_scalar(e.dtype) else Broadcast(nothing, dt.lanes(e.dtype)))

    def visit_Add(self, e: Add) -> PrimExpr:
        """A product and a sum become one operation where the target has it."""
        if self.fused is not None and dt.is_float(e.dtype):
            for product, other in ((e.b, e.a), (e.a, e.b)):
                if isinstance(product, Mul):
                    made = self.fused(call(e.dtype, "fma", product.a, product.b, other))
                    if made is not None:
                        return self.visit(made)
        return self.default_visit(e)

    # -- division ------------------------------------------------------------------------------------------

    def _at_least_zero(self, e: PrimExpr) -> bool:
        return self.analyzer.can_prove_greater_equal(e, 0)

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        made = self.default_visit(e)
        if type(made) is not FloorDiv:
            return made
        a, b, dtype = made.a, made.b, made.dtype
        if dt.is_float(dtype):
            return self.visit(call(dtype, "floor", a / b))
        shift = _power_of_two(b)
        if self.bitwise and shift is not None:
            return call(dtype, "shift_right", a, B.const(dtype, shift))
        if not self._at_least_zero(b):
            return self._any_divisor(a, b, True)
        if self._at_least_zero(a) or self._at_least_zero(made):
            return B.truncdiv(a, b)
        offset = self._shift(a, b)
        if offset is not None:
            moved = B.add(a, B.mul(B.const(dtype, offset), b))
            return B.sub(B.truncdiv(moved, b), B.const(dtype, offset))
        quotient, rest = B.truncdiv(a, b), B.truncmod(a, b)
        if dtype in ("int32", "int64") and self.bitwise:
            # The sign of the remainder, spread over all bits, is 0 or -1.
            return B.add(quotient, call(dtype, "shift_right", rest, B.const(dtype, dt.bits(dtype) - 1)))
        return Select(B.ge(rest, B.const(dtype, 0)), quotient, B.sub(quotient, B.const(dtype, 1)))

    def visit_FloorMod(self, e: FloorMod) -> PrimExpr:
        made = self.default_visit(e)
        if type(made) is not FloorMod:
            return made
        a, b, dtype = made.a, made.b, made.dtype
        if dt.is_float(dtype):
            return made
        shift = _power_of_two(b)
        if self.bitwise and shift is not None:
            return call(dtype, "bitwise_and", a, B.const(dtype, (1 << shift) - 1))
        if not self._at_least_zero(b):
            return self._any_divisor(a, b, False)
        if self._at_least_zero(a):
            return B.truncmod(a, b)
        offset = self._shift(a, b)
        if offset is not None:
            return B.truncmod(B.add(a, B.mul(B.const(dtype, offset), b)), b)
        rest = B.truncmod(a, b)
        if dtype in ("int32", "int64") and self.bitwise:
            sign = call(dtype, "shift_right", rest, B.const(dtype, dt.bits(dtype) - 1))
            return B.add(rest, call(dtype, "bitwise_and", b, sign))
        return Select(B.ge(rest, B.const(dtype, 0)), rest, B.add(rest, b))

    def _shift(self, a: PrimExpr, b: PrimExpr) -> int | None:
        """A multiple of ``b`` that, added to ``a``, makes it non-negative without overflow."""
        top = (1 << (dt.bits(a.dtype) - 1)) - 1
        low, high = self.analyzer.const_int_bound.bound(a)
        smallest, largest = self.analyzer.const_int_bound.bound(b)
        if low < -top or smallest <= 0 or largest > top:
            return None
        count = (smallest - 1 - low) // smallest
        if count <= 0 or count * largest > top or high > top - count * largest:
            return None
        return count

    def _any_divisor(self, a: PrimExpr, b: PrimExpr, quotient: bool) -> PrimExpr:
        dtype = a.dtype
        zero, one = B.const(dtype, 0), B.const(dtype, 1)
        rest = Var("rmod", dtype)
        fits = B.or_(B.and_(B.ge(b, zero), B.ge(rest, zero)), B.and_(B.lt(b, zero), B.le(rest, zero)))
        if quotient:
            whole = Var("rdiv", dtype)
            value: Any = Let(whole, B.truncdiv(a, b), Select(fits, whole, B.sub(whole, one)))
        else:
            value = Select(fits, rest, B.add(rest, b))
        return Let(rest, B.truncmod(a, b), value)

    def _against_zero(self, e: CmpOp) -> PrimExpr:
        if type(e.a) is FloorMod and B.is_zero(e.b):
            # Which remainder it is does not matter for being zero.
            a, b = self.visit(e.a.a), self.visit(e.a.b)
            if _power_of_two(b) is None:
                return type(e)(B.truncmod(a, b), e.b)
        return self.default_visit(e)

    def visit_EQ(self, e: EQ) -> PrimExpr:
        return self._against_zero(e)

    def visit_NE(self, e: NE) -> PrimExpr:
        return self._against_zero(e)

    def visit_Max(self, e: Max) -> PrimExpr:
        a, b = e.a, e.b
        if type(a) is FloorDiv and const_int(b, -1) >= 0 and self._at_least_zero(a.b):
            return B.maximum(B.truncdiv(self.visit(a.a), self.visit(a.b)), b)
        return self.default_visit(e)


def lower_intrinsics(func: PrimFunc, mathematics: bool = True) -> PrimFunc:
    """Lower the intrinsics of a function. Raises ValueError if it has no target."""
    target = func.get_attr("target")
    if target is None:
        raise LoweringError("LowerIntrin: Require the target attribute")
    mtriple = str(target.get_attr("mtriple", "") or "")
    lowering = _IntrinsicLowerer(target.kind.name, mtriple, mathematics)
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            lowering.analyzer.mark_global_non_neg_value(extent)
    body = lowering.visit(func.body)
    return func if body is func.body else func.with_body(body)


class LowerIntrin(FunctionRewrite):
    """Lower floor division, and intrinsics by the rules registered for the target.

    Before::

        B[i] = (i - n) // 3

    After (where nothing is known of the sign)::

        B[i] = T.Div(i - n, 3) + T.shift_right(T.truncmod(i - n, 3), 31)

    ``T.exp(x)`` becomes an LLVM intrinsic for ``llvm``, ``__expf(x)`` for ``cuda``; on other targets it calls ``expf``.
    Rules of one's own are registered by ``register_intrin_lowering(op_name, target, f=rule)``.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower_intrinsics(func)


class LowerDivision(FunctionRewrite, name="tir.LowerIntrin"):
    """:func:`LowerIntrin` for code generators that have mathematics of their own."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower_intrinsics(func, False)
