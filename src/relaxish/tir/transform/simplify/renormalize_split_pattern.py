"""RenormalizeSplitPattern: quotients of remainders become remainders of quotients, so that split loops share terms."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from math import gcd
from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.prim import GE, GT, LE, LT, Add, Broadcast, FloorDiv, FloorMod, Mul, Not, const_int
from ...function import PrimFunc
from ..base import FunctionRewrite
from .simplify import ExprAnalyzerMutator

_MOST_REWRITES = 5


def _constant(e: PrimExpr) -> int | None:
    """The value of a constant, or that of all lanes of a constant vector."""
    value = e.value if isinstance(e, Broadcast) else e
    return B.as_int(value)


def _scaled(e: PrimExpr) -> tuple[PrimExpr, int] | None:
    """The parts of ``x * constant``."""
    if not isinstance(e, Mul) or (factor := _constant(e.b)) is None:
        return None
    return e.a, factor


class _Renormalize(ExprAnalyzerMutator):
    def __init__(self) -> None:
        super().__init__()
        self.depth = 0

    def _given(self, fact: PrimExpr) -> AbstractContextManager[Any]:
        return nullcontext()  # the form of an expression is all that counts here

    _unless = _given

    def _again(self, e: PrimExpr) -> PrimExpr:
        if self.depth >= _MOST_REWRITES:
            return e
        self.depth += 1
        made = self.visit(e)
        self.depth -= 1
        return made

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        made = B.floordiv(self.visit(e.a), self.visit(e.b))
        if not isinstance(made, FloorDiv) or (divisor := _constant(made.b)) is None:
            return made
        found = self._of_remainder(made, divisor)
        if found is None and divisor > 0:
            found = self._of_sum(made, divisor)
        return made if found is None else self._again(found)

    @staticmethod
    def _of_remainder(e: FloorDiv, divisor: int) -> PrimExpr | None:
        """``(x % (m * d)) // d`` is ``x // d % m``."""
        inner = e.a
        if not isinstance(inner, FloorMod) or (modulus := _constant(inner.b)) is None or modulus % divisor:
            return None
        return B.floormod(B.floordiv(inner.a, e.b), B.const(e.dtype, modulus // divisor))

    @staticmethod
    def _of_sum(e: FloorDiv, divisor: int) -> PrimExpr | None:
        """``(x * (c * g) + rest) // (d * g)`` is ``(x * c + rest // g) // d``."""
        if not isinstance(e.a, Add):
            return None
        term, rest = _scaled(e.a.a), e.a.b
        if term is None and isinstance(e.a.a, Add):
            term = _scaled(e.a.a.a)
            rest = B.add(e.a.a.b, e.a.b) if term is not None else rest
        if term is None or term[1] <= 0:
            return None
        common = gcd(term[1], divisor)
        if common == 1:
            return None
        dtype = e.dtype
        inner = B.add(B.mul(term[0], B.const(dtype, term[1] // common)), B.floordiv(rest, B.const(dtype, common)))
        return B.floordiv(inner, B.const(dtype, divisor // common))

    def visit_LT(self, e: LT) -> PrimExpr:
        """``x < c`` is ``x // c < 1``."""
        a, b = self.visit(e.a), self.visit(e.b)
        bound = const_int(b, 0)
        if bound > 0 and not (bound == 1 and self.depth):
            return self._again(LT(B.floordiv(a, b), B.const(b.dtype, 1)))
        return e if a is e.a and b is e.b else LT(a, b)

    def visit_LE(self, e: LE) -> PrimExpr:
        return self.visit(Not(LT(e.b, e.a)))

    def visit_GT(self, e: GT) -> PrimExpr:
        return self.visit(LT(e.b, e.a))

    def visit_GE(self, e: GE) -> PrimExpr:
        return self.visit(Not(LT(e.a, e.b)))

    def visit_Not(self, e: Not) -> PrimExpr:
        inner: Any = self.visit(e.a)
        match inner:
            case Not():
                return inner.a
            case LE() | GT():
                return LT(inner.b, inner.a) if isinstance(inner, LE) else LE(inner.a, inner.b)
            case LT() | GE():
                return LE(inner.b, inner.a) if isinstance(inner, LT) else LT(inner.a, inner.b)
        return e if inner is e.a else Not(inner)


def renormalize(func: PrimFunc) -> PrimFunc:
    """Rewrite the divisions of a function."""
    body = _Renormalize().visit(func.body)
    return func if body is func.body else func.with_body(body)


class RenormalizeSplitPattern(FunctionRewrite):
    """Bring split patterns to one form.

    Before::

        A[i // 4 % 8 // 2] = B[(j * 8 + k) // 32]

    After::

        A[i // 4 // 2 % 4] = B[(j + k // 8) // 4]

    Simplification then joins the quotients of one variable.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return renormalize(func)
