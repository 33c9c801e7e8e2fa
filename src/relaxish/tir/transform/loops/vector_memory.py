"""Memory under vectorized loops: accesses masked by a predicate, and a copy of an allocation for each lane."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import ExprLike, PrimExpr
from ....ir.prim import LT, Broadcast, Ramp, Var
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import AccessT, BufferStore, Stmt
from ..base import StmtExprMutator, call


class _PredicateAccesses(StmtExprMutator):
    """Masks the accesses of a statement that runs under ``Ramp(base, 1, lanes) < Broadcast(limit, lanes)``."""

    def __init__(self, base: PrimExpr, limit: PrimExpr) -> None:
        self.base = base
        self.limit = limit
        self.accesses = 0
        self.masked = 0

    def _mask(self, access: AccessT) -> AccessT:
        self.accesses += 1
        ramp = access.indices[0] if access.indices else None
        if not isinstance(ramp, Ramp) or not same_expression(ramp.base, self.base):
            return access
        self.masked += 1
        mask = call(dt.with_lanes("bool", dt.lanes(ramp.dtype)), "get_active_lane_mask", self.base, self.limit)
        return access.with_fields(predicate=mask)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._mask(self.default_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._mask(self.default_visit(store))


def predicated(stmt: Stmt, condition: PrimExpr) -> Stmt | None:
    """``stmt`` with all its accesses masked by a vector condition; None where one of them does not follow it."""
    if not isinstance(condition, LT) or not isinstance(condition.a, Ramp) or not isinstance(condition.b, Broadcast):
        return None
    rewrite = _PredicateAccesses(condition.a.base, condition.b.value)
    made: Stmt = rewrite.visit(stmt)
    return made if rewrite.accesses and rewrite.accesses == rewrite.masked else None


class OwnCopies(StmtExprMutator):
    """Gives each lane its own copy of an allocation: the last index is spread over the lanes."""

    def __init__(self, pointer: PrimExpr, var: Var, lanes: ExprLike) -> None:
        self.pointer = pointer
        self.var = var
        self.lanes = lanes
        self.buffers: dict[Any, Any] = {}
        self.analyzer = Analyzer()

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        if buffer.data is not self.pointer:
            return buffer
        if buffer not in self.buffers:
            shape, strides = list(buffer.shape), list(buffer.strides)
            shape[-1] = self.analyzer.simplify(shape[-1] * self.lanes)
            strides = [self.analyzer.simplify(s * self.lanes) for s in strides[:-1]] + strides[-1:]
            self.buffers[buffer] = buffer.with_fields(shape=tuple(shape), strides=tuple(strides))
        return self.buffers[buffer]

    def _access(self, access: AccessT) -> AccessT:
        if access.buffer.data is not self.pointer:
            return access
        indices = list(access.indices)
        indices[-1] = self.analyzer.simplify(indices[-1] * self.lanes + self.var)
        return access.with_fields(buffer=self.visit_Buffer(access.buffer), indices=tuple(indices))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._access(self._children(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._access(self._children(store))

    def _children(self, access: AccessT) -> AccessT:
        changes: dict[str, Any] = {"indices": self.visit(access.indices)}
        if isinstance(access, BufferStore):
            changes["value"] = self.visit(access.value)
        same = all(changes[k] is getattr(access, k) for k in changes)
        return access if same else access.with_fields(**changes)
