"""WholeVectors: where the bound of a partial tile lies behind a vector, the vector is stored whole.

A condition on each lane makes a loop of single stores of every vector, though only those at the edge of the output need it.

Before::

    for v in T.vectorized(16):
        if i * 16 + v < 1001:
            C[i * 16 + v] = A[i * 16 + v]

After::

    if i * 16 + 15 < 1001:
        for v in T.vectorized(16):
            C[i * 16 + v] = A[i * 16 + v]
    else:
        for v in range(16):
            if i * 16 + v < 1001:
                C[i * 16 + v] = A[i * 16 + v]
"""

from __future__ import annotations

from typing import Any

from ....arith.affine import coefficient
from ....ir.expr import PrimExpr
from ....ir.prim import And, GE, GT, IntImm, LE, LT, Var, const, is_call_of, is_zero
from ...functor import substitute
from ...function import PrimFunc
from ...stmt import BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from ..base import StmtMutator, FunctionRewrite

__all__ = ["WholeVectors", "whole_vectors"]


def _parts(condition: PrimExpr) -> list[PrimExpr]:
    """The conditions that must all hold."""
    if isinstance(condition, And):
        return [*_parts(condition.a), *_parts(condition.b)]
    return _parts(condition.args[0]) if is_call_of(condition, "tir.likely") else [condition]


def _of_all_lanes(part: PrimExpr, var: Var, lanes: int) -> PrimExpr | None:
    """What holds just if a condition holds in every lane: that of its first or last one, for a bound of a linear index."""
    if not isinstance(part, (LT, LE, GT, GE)):
        return None
    low, high = coefficient(part.a, var), coefficient(part.b, var)
    if low is None or high is None:
        return None
    rising = low - high if isinstance(part, (LT, LE)) else high - low
    lane = lanes - 1 if rising > 0 else 0
    made: PrimExpr = substitute(part, {var: const(lane, var.dtype)})
    return made


def _only_stores(stmt: Stmt) -> bool:
    if isinstance(stmt, SeqStmt):
        return all(_only_stores(s) for s in stmt.seq)
    return isinstance(stmt, BufferStore)


class _Splitter(StmtMutator):
    def visit_For(self, loop: For) -> Stmt:
        made = self._split(loop) if loop.kind == ForKind.VECTORIZED else None
        return self.default_visit(loop) if made is None else made

    def _split(self, loop: For) -> Stmt | None:
        body = loop.body
        if not isinstance(body, IfThenElse) or body.else_case is not None or not _only_stores(body.then_case):
            return None
        if not isinstance(loop.extent, IntImm) or not is_zero(loop.min):
            return None
        whole: Any = None
        for part in _parts(body.condition):
            held = _of_all_lanes(part, loop.loop_var, loop.extent.value)
            if held is None:
                return None
            whole = held if whole is None else And(whole, held)
        lane = Var(loop.loop_var.name, loop.loop_var.dtype)
        single = loop.with_fields(
            loop_var=lane, kind=ForKind.SERIAL, body=substitute(body, {loop.loop_var: lane}), annotations={}
        )
        return IfThenElse(whole, loop.with_fields(body=body.then_case), single)


def whole_vectors(func: PrimFunc) -> PrimFunc:
    """See the module."""
    body = _Splitter().visit(func.body)
    return func if body is func.body else func.with_body(body)


class WholeVectors(FunctionRewrite):
    """Vectorized loops under a bound become whole vectors and single stores at the edge; see the module."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return whole_vectors(func)
