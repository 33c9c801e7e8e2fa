"""Recognition of commutative reductions: sums, products, extremes, argmin and argmax, pairs of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import const
from ....ir.structural import same_expression
from ...expr import Add, And, BufferLoad, FloatImm, IntImm, Max, Min, Mul, Or, Select, Var
from ...functor import substitute
from ...op import max_value, min_value
from ...stmt import BufferStore, LetStmt, Stmt, stmt_list
from ..errors import PrimitiveError

if TYPE_CHECKING:
    from ..sref import StmtSRef

__all__ = ["Reducer", "Reduction"]

Exprs = Sequence[Any]


class Reduction:
    """Combiner of partial results and its identity element."""

    def __init__(
        self,
        name: str,
        arity: int,
        combine: Callable[[Exprs, Exprs], list[Any]],
        identity: Callable[[Exprs], list[Any]],
    ) -> None:
        self.name, self.arity, self.combine, self.identity = name, arity, combine, identity


def _arg(better: Callable[[Any, Any], Any], tie: bool) -> Callable[[Exprs, Exprs], list[Any]]:
    """(index, value) pairs: the better value wins; with ``tie`` the smaller index wins among equals."""

    def combine(x: Exprs, y: Exprs) -> list[Any]:
        keep = better(x[1], y[1])
        first = Or(keep, And(x[1].equal(y[1]), x[0] < y[0])) if tie else keep
        return [Select(first, x[0], y[0]), Select(keep, x[1], y[1])]

    return combine


def _zeros(like: Exprs) -> list[Any]:
    return [const(0, x.dtype) for x in like]


_REDUCTIONS = (
    Reduction("sum", 1, lambda x, y: [Add(x[0], y[0])], _zeros),
    Reduction("product", 1, lambda x, y: [Mul(x[0], y[0])], lambda like: [const(1, like[0].dtype)]),
    Reduction("min", 1, lambda x, y: [Min(x[0], y[0])], lambda like: [max_value(like[0].dtype)]),
    Reduction("max", 1, lambda x, y: [Max(x[0], y[0])], lambda like: [min_value(like[0].dtype)]),
    Reduction("sums", 2, lambda x, y: [Add(x[0], y[0]), Add(x[1], y[1])], _zeros),
    *(
        Reduction(
            name,
            2,
            _arg(better, tie),
            lambda like, worst=worst: [const(-1, like[0].dtype), worst(like[1].dtype)],  # type: ignore[misc]
        )
        for name, better, tie, worst in (
            ("argmax", lambda a, b: a >= b, False, min_value),
            ("argmax", lambda a, b: a > b, True, min_value),
            ("argmin", lambda a, b: a <= b, False, max_value),
            ("argmin", lambda a, b: a < b, True, max_value),
        )
    ),
)


class _Match:
    """One-sided matching: variables of the pattern stand for any expression, the same one everywhere."""

    def __init__(self, variables: Sequence[Var]) -> None:
        self.values: dict[Any, Any] = {v: None for v in variables}

    def run(self, pattern: PrimExpr, expr: PrimExpr) -> bool:
        """Whether ``expr`` is an instance of ``pattern``."""
        if pattern in self.values:
            known = self.values[pattern]
            if known is None:
                if pattern.dtype != expr.dtype:
                    return False
                self.values[pattern] = expr
                return True
            return same_expression(known, expr)
        if type(pattern) is not type(expr) or pattern.dtype != expr.dtype:
            return False
        if not pattern._child_fields:
            return same_expression(pattern, expr)
        return all(
            self.run(getattr(pattern, name), getattr(expr, name))
            for name in pattern._child_fields
            if isinstance(getattr(pattern, name), PrimExpr)
        )


class Reducer:
    """Anatomy of a reduction block: its buffers, the indices it stores to, the value it adds, and its combiner."""

    def __init__(self, block_sref: StmtSRef) -> None:
        block = block_sref.stmt
        inits = _flat(block.init)
        if not all(isinstance(s, BufferStore) for s in inits):
            raise PrimitiveError("The init of {0} is not a sequence of buffer stores.", [block_sref])
        self.buffers = [s.buffer for s in inits]
        self.identities = [s.value for s in inits]
        lets, stores = _updates(block_sref, block.body)
        by_buffer = {s.buffer: s for s in stores}
        if len(by_buffer) != len(stores) or set(by_buffer) != set(self.buffers):
            raise PrimitiveError("The init and the update of {0} do not write the same buffers.", [block_sref])
        self.stores = [by_buffer[b] for b in self.buffers]
        self.indices = self.stores[0].indices
        if any(not same_expression(s.indices, self.indices) for s in (*self.stores, *inits)):
            raise PrimitiveError("The stores of {0} are not all at the same indices.", [block_sref])
        values = [substitute(s.value, lets) for s in self.stores]
        own = [BufferLoad(b, self.indices) for b in self.buffers]
        self.reduction, self.rhs = self._find(block_sref, values, own)
        self.combine = self.reduction.combine

    def _find(self, sref: StmtSRef, values: Exprs, own: Exprs) -> tuple[Reduction, list[Any]]:
        for candidate in _REDUCTIONS:
            if candidate.arity != len(values):
                continue
            neutral = candidate.identity(values)
            if not all(_same_value(a, b) for a, b in zip(neutral, self.identities, strict=True)):
                continue
            x = [Var(f"x{i}", v.dtype) for i, v in enumerate(values)]
            y = [Var(f"y{i}", v.dtype) for i, v in enumerate(values)]
            match = _Match([*x, *y])
            if not all(match.run(p, v) for p, v in zip(candidate.combine(x, y), values, strict=True)):
                continue
            if all(same_expression(match.values[a], b) for a, b in zip(x, own, strict=True)):
                return candidate, [match.values[v] for v in y]
        raise PrimitiveError(
            "No matched reducer for the identity and the combiner of the reduction block {0}.",
            [sref],
            hint="known: sum, product, min, max, argmin, argmax, pairs of sums, each starting from its neutral value "
            "and with the former result on the left",
        )


def _same_value(a: PrimExpr, b: PrimExpr) -> bool:
    if same_expression(a, b):
        return True
    if a.dtype != b.dtype or not isinstance(a, (IntImm, FloatImm)) or not isinstance(b, (IntImm, FloatImm)):
        return False
    left, right = a.value, b.value
    if dt.is_float(a.dtype):
        # A single-precision limit may be written with fewer digits than it has.
        return bool(left == right or abs(left - right) <= 1e-6 * abs(left))
    return bool(left == right)


def _flat(stmt: Stmt) -> list[Any]:
    return stmt_list(stmt)


def _updates(sref: StmtSRef, body: Stmt) -> tuple[dict[Any, Any], list[BufferStore]]:
    """The values bound by lets, and the stores below them."""
    lets: dict[Any, Any] = {}
    while isinstance(body, LetStmt):
        lets[body.var] = substitute(body.value, lets)
        body = body.body
    stores = _flat(body)
    if not all(isinstance(s, BufferStore) for s in stores):
        raise PrimitiveError("The update of {0} is not a sequence of buffer stores.", [sref])
    if len(stores) > 1 and not all(isinstance(s.value, Var) for s in stores):
        raise PrimitiveError(
            "The update of {0} stores several buffers one after the other; compute all values before any is stored.",
            [sref],
            hint="bind the new values with T.LetStmt (v_a: T.int32 = ...) and store those",
        )
    return lets, stores
