"""RenormalizeSplitPattern: quotients of remainders become remainders of quotients, so that split loops share terms."""

# ruff: noqa: E501
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ....arith import build as B
from ....arith.rules import RuleTable
from ....arith.statistics import RewriteSimplifyStats
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import GE, GT, LE, LT, FloorDiv, Not, const_int
from ...function import PrimFunc
from ..base import FunctionRewrite
from .simplify import ExprAnalyzerMutator

_MOST_REWRITES = 5

# A rule is one line of data; the longest ones do not wrap.
_QUOTIENTS = RuleTable("FloorDiv").with_rules("""
x % c1 // c2  =>> x // c2 % lit(c1 // c2)  if c1 % c2 == 0
(x * c1 + y) // c2  =>> (x * lit(c1 // gcd(c1, c2)) + y // lit(gcd(c1, c2))) // lit(c2 // gcd(c1, c2))  if c1 > 0 and c2 > 0 and gcd(c1, c2) > 1
(x * c1 + y + z) // c2  =>> (x * lit(c1 // gcd(c1, c2)) + (y + z) // lit(gcd(c1, c2))) // lit(c2 // gcd(c1, c2))  if c1 > 0 and c2 > 0 and gcd(c1, c2) > 1
""")
_QUOTIENTS_OF_VECTORS = RuleTable("FloorDiv", vector=True).with_rules("""
x % broadcast(c1, lanes) // broadcast(c2, lanes)  =>> x // broadcast(c2, lanes) % broadcast(lit(c1 // c2), lanes)  if c1 % c2 == 0
(x * broadcast(c1, lanes) + y) // broadcast(c2, lanes)  =>> (x * broadcast(lit(c1 // gcd(c1, c2)), lanes) + y // broadcast(lit(gcd(c1, c2)), lanes)) // broadcast(lit(c2 // gcd(c1, c2)), lanes)  if c1 > 0 and c2 > 0 and gcd(c1, c2) > 1
(x * broadcast(c1, lanes) + y + z) // broadcast(c2, lanes)  =>> (x * broadcast(lit(c1 // gcd(c1, c2)), lanes) + (y + z) // broadcast(lit(gcd(c1, c2)), lanes)) // broadcast(lit(c2 // gcd(c1, c2)), lanes)  if c1 > 0 and c2 > 0 and gcd(c1, c2) > 1
""")


class _Renormalize(ExprAnalyzerMutator):
    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.stats = RewriteSimplifyStats()

    def _given(self, fact: PrimExpr) -> AbstractContextManager[Any]:
        return nullcontext()  # the form of an expression is all that counts here

    _unless = _given

    def again(self, e: PrimExpr) -> PrimExpr:
        """Apply the rules to a rule's result, up to a fixed depth."""
        if self.depth >= _MOST_REWRITES:
            return e
        self.depth += 1
        made = self.visit(e)
        self.depth -= 1
        return made

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        made = B.floordiv(self.visit(e.a), self.visit(e.b))
        if not isinstance(made, FloorDiv):
            return made
        return (_QUOTIENTS if dt.lanes(made.dtype) == 1 else _QUOTIENTS_OF_VECTORS).run(made, self)

    def visit_LT(self, e: LT) -> PrimExpr:
        """``x < c`` is ``x // c < 1``."""
        a, b = self.visit(e.a), self.visit(e.b)
        bound = const_int(b, 0)
        if bound > 0 and not (bound == 1 and self.depth):
            return self.again(LT(B.floordiv(a, b), B.const(b.dtype, 1)))
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
