"""Known commutative reductions, and recognising one in the body of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.node import Node
from ....ir.prim import EQ, GE, GT, LE, LT, Add, And, CommReducer, Max, Min, Mul, Or, Select, Var, const
from ....support.sequences import of_kind
from ...expr import BufferLoad
from ...functor import substitute, without_lets
from ...op import max_value, min_value
from ...stmt import Block, BufferStore, Stmt, stmt_list

Combiner = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
Identity = Callable[[Sequence[str]], list[Any]]


def _pick(test: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Combiner:
    """The pair whose second part is better; the earlier one in a tie."""

    def combine(x: Sequence[Any], y: Sequence[Any]) -> list[Any]:
        better = test(x[1], y[1])
        return [Select(better, x[0], y[0]), Select(better, x[1], y[1])]

    return combine


def _pick_smaller_index(test: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Combiner:
    """The pair whose second part is better; the smaller first part in a tie."""

    def combine(x: Sequence[Any], y: Sequence[Any]) -> list[Any]:
        tie = And(EQ(x[1], y[1]), LT(x[0], y[0]))
        return [Select(Or(test(x[1], y[1]), tie), x[0], y[0]), Select(test(x[1], y[1]), x[1], y[1])]

    return combine


def _zeros(dtypes: Sequence[str]) -> list[Any]:
    return [const(0, d) for d in dtypes]


def _lowest(dtypes: Sequence[str]) -> list[Any]:
    return [const(-1, dtypes[0]), min_value(dtypes[1])]


def _highest(dtypes: Sequence[str]) -> list[Any]:
    return [const(-1, dtypes[0]), max_value(dtypes[1])]


def _truth(value: bool) -> Identity:
    return lambda dtypes: [const(value, "bool")] if dtypes[0] == "bool" else []


KNOWN: list[tuple[int, Combiner, Identity]] = [
    (1, lambda x, y: [Add(x[0], y[0])], _zeros),
    (1, lambda x, y: [Mul(x[0], y[0])], lambda d: [const(1, d[0])]),
    (1, lambda x, y: [Min(x[0], y[0])], lambda d: [max_value(d[0])]),
    (1, lambda x, y: [Max(x[0], y[0])], lambda d: [min_value(d[0])]),
    (1, lambda x, y: [And(x[0], y[0])], _truth(True)),
    (1, lambda x, y: [Or(x[0], y[0])], _truth(False)),
    (2, lambda x, y: [Add(x[0], y[0]), Add(x[1], y[1])], _zeros),
    (2, _pick(GE), _lowest),
    (2, _pick_smaller_index(GT), _lowest),
    (2, _pick(LE), _highest),
    (2, _pick_smaller_index(LT), _highest),
]
"""Reductions by number of values: how two partial results combine, and where one starts."""


class ReductionError(ValueError):
    """A block's update is no known reduction."""


class Reduction:
    """Reduction block: its combiner, and the buffers it reads and writes."""

    def __init__(self, block: Block) -> None:
        inits = _stores(block.init)
        lets, updates = _updates(block.body)
        starts, ends = ({s.buffer: s for s in stores} for stores in (inits, updates))
        if not len(starts) == len(inits) == len(ends) == len(updates) or set(starts) != set(ends):
            raise ReductionError("the init and the update of the block write different buffers")
        self.indices = tuple(updates[0].indices)
        for store in (*inits, *updates):
            if not all(map(B.deep_equal, store.indices, self.indices)):
                raise ReductionError("the stores of the block are not all at the same indices")
        # Which is the position and which the value is told by what they are, in the order of either sequence.
        for buffers in (list(ends), list(starts)):
            self.buffers, self.stores = buffers, [ends[b] for b in buffers]
            found = self._match([starts[b].value for b in buffers], [substitute(s.value, lets) for s in self.stores])
            if found is not None:
                self.reducer, self.rhs = found
                return
        raise ReductionError("the update of the block is no known commutative reduction")

    def _match(self, identities: list[Any], values: list[Any]) -> tuple[CommReducer, list[Any]] | None:
        own = [BufferLoad(b, self.indices) for b in self.buffers]
        dtypes = [v.dtype for v in values]
        for count, combine, identity in KNOWN:
            try:
                start = identity(dtypes) if count == len(values) else []
            except (ValueError, TypeError, KeyError):
                continue
            if not start or not all(map(B.deep_equal, start, identities)):
                continue
            lhs = [Var("x" if count == 1 else f"x{i}", d) for i, d in enumerate(dtypes)]
            rhs = [Var("y" if count == 1 else f"y{i}", d) for i, d in enumerate(dtypes)]
            result = combine(lhs, rhs)
            for mine, other in ((lhs, rhs), (rhs, lhs)):
                found = _find(result, values, lhs + rhs)
                if found is not None and all(B.deep_equal(found.get(v), o) for v, o in zip(mine, own)):
                    return CommReducer(lhs, rhs, result, start), [found[v] for v in other]
        return None


def _find(patterns: list[Any], exprs: list[Any], variables: list[Var]) -> dict[Any, Any] | None:
    found: dict[Any, Any] = {}

    def match(pattern: PrimExpr, expr: PrimExpr) -> bool:
        if isinstance(pattern, Var) and any(pattern is v for v in variables):
            if pattern in found:
                return B.deep_equal(found[pattern], expr)
            found[pattern] = expr
            return True
        if type(pattern) is not type(expr):
            return False
        if not isinstance(pattern, Node) or not pattern._child_fields:
            return B.deep_equal(pattern, expr)
        return all(match(getattr(pattern, n), getattr(expr, n)) for n in pattern._child_fields)

    return found if all(match(p, e) for p, e in zip(patterns, exprs)) else None


def _stores(stmt: Stmt | None) -> list[BufferStore]:
    parts = [] if stmt is None else stmt_list(stmt)
    stores = list(of_kind(parts, BufferStore))
    if not stores or len(stores) != len(parts):
        raise ReductionError("the init or update of the block is not a sequence of stores")
    return stores


def _updates(body: Stmt) -> tuple[dict[Any, Any], list[BufferStore]]:
    lets, body = without_lets(body)
    return lets, _stores(body)
