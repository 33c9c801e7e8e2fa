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

With ``masks``, on CPUs that have them, the edge is a vector, too: ``C.vstore([T.Ramp(i * 16, 1, 16)], ..., predicate=...)``.
Then all accesses of a register tile are vectors at constant places, and its accumulators stay in registers.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

from ....arith import Analyzer
from ....arith.affine import coefficient
from ....arith.functor import uses_var
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import all_nodes
from ....ir.prim import (
    And, Div, FloorDiv, FloorMod, GE, GT, IntImm, LE, LT, Mod, Ramp, Var, const, const_int, is_call_of, is_one,
    is_zero,
)  # fmt: skip
from ...expr import BufferLoad
from ...functor import substitute
from ...function import PrimFunc
from ...stmt import BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, stmt_list
from ..base import FunctionRewrite, LoweringError, SeqMutator, StmtMutator
from .vectorize_loop import NeedsScalar, _Vectorizer

__all__ = ["WholeVectors", "whole_vectors"]

_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)


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


def _all(parts: list[PrimExpr]) -> PrimExpr:
    """The condition that all parts hold."""
    return functools.reduce(And, parts)


def _only_stores(stmt: Stmt) -> bool:
    if isinstance(stmt, SeqStmt):
        return all(_only_stores(s) for s in stmt.seq)
    return isinstance(stmt, BufferStore)


class _Unmaskable(Exception):
    """A store that a mask does not make safe."""


class _Masked(SeqMutator):
    """Accesses under the condition that a mask stands for: what surely exists is read whole."""

    def __init__(self, mask: PrimExpr, analyzer: Analyzer) -> None:
        self.mask, self.analyzer = mask, analyzer

    def store(self, store: BufferStore) -> BufferStore:
        """A store of vectors with itself and its loads masked."""
        self._check(store.buffer, store.indices)
        return store.with_fields(value=self.visit(store.value), predicate=self.mask)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        if dt.lanes(load.dtype) == 1:
            if not self._exists(load):
                raise _Unmaskable
            return load
        ramp = self._check(load.buffer, load.indices)
        size = const_int(load.buffer.shape[0], 0)
        bound = self.analyzer.const_int_bound(ramp.base)
        if bound.min_value >= 0 and bound.max_value + const_int(ramp.lanes, 0) <= size:
            return load
        return load.with_fields(predicate=self.mask)

    def visit_BinaryOp(self, e: Any) -> PrimExpr:
        # Lanes that are not stored might divide by zero.
        if isinstance(e, _DIVISIONS) and not dt.is_float(e.dtype):
            raise _Unmaskable
        return self.default_visit(e)

    def _exists(self, load: BufferLoad) -> bool:
        """Whether an element that all lanes read is there even where the mask holds for none."""
        return len(load.indices) == len(load.buffer.shape) and all(
            self.analyzer.can_prove_greater_equal(index, 0) and self.analyzer.can_prove(index < size)
            for index, size in zip(load.indices, load.buffer.shape)
        )

    def _check(self, buffer: Any, indices: Any) -> Ramp:
        index = indices[0] if len(indices) == 1 else None
        if not isinstance(index, Ramp) or not is_one(index.stride) or dt.lanes(buffer.dtype) != 1:
            raise _Unmaskable
        return index


class _Splitter(StmtMutator):
    def __init__(self, narrowest: int | None) -> None:
        # Bits of the narrowest elements that masks are for.
        self.narrowest = narrowest
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Stmt:
        made = self._split(loop) if loop.kind == ForKind.VECTORIZED else None
        if made is not None:
            return made
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        return self.default_visit(loop)

    def _masked(self, loop: For, body: Stmt, condition: PrimExpr) -> Stmt | None:
        """The vectors at the edge under a mask; None where masks do not serve."""
        lanes = const_int(loop.extent, 0)
        accesses = [item for item in all_nodes(body) if isinstance(item, (BufferLoad, BufferStore))]
        if self.narrowest is None or any(dt.bits(a.buffer.dtype) < self.narrowest for a in accesses):
            return None
        try:
            vectors = _Vectorizer(loop.loop_var, lanes)
            mask = vectors.visit(condition)
            masked = _Masked(mask, self.analyzer)
            made = []
            for store in stmt_list(vectors.visit(body)):
                if not isinstance(store, BufferStore) or dt.lanes(store.value.dtype) != lanes:
                    return None
                made.append(masked.store(store))
        except (NeedsScalar, LoweringError, _Unmaskable):
            return None
        return SeqStmt(made) if len(made) > 1 else made[0]

    def _split(self, loop: For) -> Stmt | None:
        body = loop.body
        if not isinstance(body, IfThenElse) or body.else_case is not None or not _only_stores(body.then_case):
            return None
        if not isinstance(loop.extent, IntImm) or not is_zero(loop.min) or not uses_var(body.condition, loop.loop_var):
            return None
        # Conditions that are the same for all lanes stay around both: what they guard is not read without them.
        parts = _parts(body.condition)
        of_lanes = [part for part in parts if uses_var(part, loop.loop_var)]
        of_all = [part for part in parts if not uses_var(part, loop.loop_var)]
        bounds = _all(of_lanes) if of_all else body.condition
        held = [_of_all_lanes(part, loop.loop_var, loop.extent.value) for part in of_lanes]
        if any(part is None for part in held):
            return None
        with self.analyzer.constraint_scope(_all(of_all)) if of_all else nullcontext():
            edge = self._masked(loop, body.then_case, bounds)
        if edge is None:
            lane = Var(loop.loop_var.name, loop.loop_var.dtype)
            edge = loop.with_fields(
                loop_var=lane, kind=ForKind.SERIAL, annotations={},
                body=substitute(IfThenElse(bounds, body.then_case), {loop.loop_var: lane}),
            )  # fmt: skip
        made = IfThenElse(_all([p for p in held if p is not None]), loop.with_fields(body=body.then_case), edge)
        return IfThenElse(_all(of_all), made) if of_all else made


def whole_vectors(func: PrimFunc, masks: int | None = None) -> PrimFunc:
    """See the module; ``masks`` are for elements of at least so many bits."""
    body = _Splitter(masks).visit(func.body)
    return func if body is func.body else func.with_body(body)


class WholeVectors(FunctionRewrite):
    """Vectorized loops under a bound become whole vectors and single stores at the edge; see the module."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return whole_vectors(func)
