"""ExactExtremes: reductions to the largest or smallest element start from infinity and keep NaN.

Programs are written with the least finite number as the start of a maximum, which is wrong where every element is minus
infinity, and compare pairs of position and value with orderings that no NaN takes part in.  Written that way they are
what users, schedules and databases know; this pass puts the exact form in just before blocks are lowered:

* ``m = -3.4e38`` becomes ``m = -inf`` for a buffer that is otherwise only ever updated by ``m = max(m, x)``, and so do
  the elements that a padding guard ``if_then_else(inside, x, -3.4e38)`` adds for nothing but such updates;
* a position starts behind every other one (where ties go to the first), so that the extreme of infinities has one;
* in a pair of position and value the first NaN wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....ir.node import Node
from ....ir.prim import (
    uncast,
    EQ,
    GE,
    GT,
    LE,
    LT,
    And,
    Broadcast,
    Call,
    CommReducer,
    FloatImm,
    IntImm,
    Max,
    Min,
    Not,
    Or,
    Select,
    Var,
)  # fmt: skip
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import pre_order_visit, substitute, without_lets
from ...op import isnan, max_value, min_value
from ...stmt import Block, BufferStore, LetStmt, SeqStmt, Stmt
from ..base import StmtExprMutator, StmtExprVisitor, is_call, FunctionRewrite

__all__ = ["ExactExtremes", "exact_extremes"]

_WITH_INFINITY = ("float16", "bfloat16", "float32", "float64")


def _is_worst(value: PrimExpr, kind: type) -> bool:
    """Whether ``value`` is the least (for Max) or largest (for Min) finite number of its type."""
    if isinstance(value, Broadcast):
        value = value.value
    if not isinstance(value, FloatImm) or value.dtype not in _WITH_INFINITY:
        return False
    limit: Any = min_value(value.dtype) if kind is Max else max_value(value.dtype)
    return bool(value.value == limit.value)


def _infinite(value: PrimExpr, kind: type) -> PrimExpr:
    """The infinity that a reduction of this kind starts from, of the type of ``value``."""
    if isinstance(value, Broadcast):
        return Broadcast(_infinite(value.value, kind), value.lanes)
    return FloatImm(value.dtype, -math.inf if kind is Max else math.inf)


def _update(store: BufferStore) -> tuple[type, Any] | None:
    """(kind, new element) of ``m[i] = max(m[i], element)``."""
    value: Any = store.value
    if type(value) not in (Max, Min):
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if _is_own(own, store):
            return type(value), other
    return None


def _is_own(expr: PrimExpr, store: BufferStore) -> bool:
    if not isinstance(expr, BufferLoad) or expr.buffer is not store.buffer:
        return False
    return all(map(B.deep_equal, expr.indices, store.indices))


# ---- pairs of position and value


class _Pair:
    """One step of a reduction to position and value: which is kept, given both sides."""

    def __init__(self, position: PrimExpr, value: PrimExpr) -> None:
        if not isinstance(position, Select) or not isinstance(value, Select):
            raise LookupError
        test: Any = value.condition
        if type(test) not in (GT, LT, GE, LE) or not dt.is_scalar(value.dtype):
            raise LookupError
        self.left, self.right = value.true_value, value.false_value
        self.left_at, self.right_at = position.true_value, position.false_value
        self.test = test
        if not (B.deep_equal(test.a, self.left) and B.deep_equal(test.b, self.right)):
            raise LookupError
        self.kind = Max if type(test) in (GT, GE) else Min
        self.tie: Any = None
        given: Any = position.condition
        if isinstance(given, Or) and B.deep_equal(given.a, test) and isinstance(given.b, And):
            equal: Any = given.b.a
            order: Any = given.b.b
            if type(equal) is not EQ or type(order) not in (LT, GT):
                raise LookupError
            if not (B.deep_equal(equal.a, self.left) and B.deep_equal(equal.b, self.right)):
                raise LookupError
            if not (B.deep_equal(order.a, self.left_at) and B.deep_equal(order.b, self.right_at)):
                raise LookupError
            self.tie = order
        elif not B.deep_equal(given, test):
            raise LookupError

    @property
    def first_wins(self) -> bool:
        """Whether ties go to the smaller position."""
        return type(self.tie) is LT

    def exact(self) -> tuple[Any, Any]:
        """The new position and the new value, NaN above everything."""
        if not dt.is_float(self.left.dtype):
            keep, keep_at = self.test, self.test
            if self.tie is not None:
                keep_at = Or(self.test, And(EQ(self.left, self.right), self.tie))
            return self._chosen(keep_at, keep)
        nan = isnan(self.left)
        keep = Or(self.test, nan)
        if self.tie is None:
            return self._chosen(keep, keep)
        sure = Or(self.test, And(nan, Not(isnan(self.right))))
        return self._chosen(Or(sure, And(Or(EQ(self.left, self.right), nan), self.tie)), keep)

    def _chosen(self, keep_at: PrimExpr, keep: PrimExpr) -> tuple[Any, Any]:
        return Select(keep_at, self.left_at, self.right_at), Select(keep, self.left, self.right)


def _pair(first: PrimExpr, second: PrimExpr) -> tuple[_Pair, bool]:
    """The pair that two new values make, and whether the position is the first. Raises LookupError."""
    try:
        return _Pair(first, second), True
    except LookupError:
        return _Pair(second, first), False


def _pair_stores(body: Stmt) -> tuple[_Pair, BufferStore, BufferStore, bool] | None:
    """(pair, store of the position, store of the value, values bound first) of an update."""
    inner = body
    while isinstance(inner, LetStmt):
        inner = inner.body
    stores: Sequence[Any] = inner.seq if isinstance(inner, SeqStmt) else ()
    if len(stores) != 2 or not all(isinstance(s, BufferStore) and s.predicate is None for s in stores):
        return None
    values, _ = without_lets(body)
    first, second = (substitute(s.value, values) if values else s.value for s in stores)
    try:
        pair, in_order = _pair(first, second)
    except LookupError:
        return None
    at, value = stores if in_order else (stores[1], stores[0])
    if not (_is_own(pair.left, value) and _is_own(pair.left_at, at)):
        return None
    return pair, at, value, bool(values)


# ---- what a function does with its buffers


class _Uses(StmtExprVisitor):
    """Stores and loads of a function by buffer; shared expressions count as often as they stand in it."""

    def __init__(self, body: Stmt) -> None:
        super().__init__()
        self.stores: dict[Buffer, list[BufferStore]] = {}
        self.loads: dict[Buffer, int] = {}
        self.worst: dict[type, int] = {Max: 0, Min: 0}
        self.pairs: list[tuple[_Pair, BufferStore, BufferStore, bool]] = []
        self.local: set[Buffer] = set()
        self.shared: set[Buffer] = set()
        self.any = False
        self.visit(body)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.stores.setdefault(node.buffer, []).append(node)
        self.default_visit(node)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.loads[node.buffer] = self.loads.get(node.buffer, 0) + 1
        self.default_visit(node)

    def visit_FloatImm(self, node: FloatImm) -> None:
        for kind in (Max, Min):
            self.worst[kind] += _is_worst(node, kind)

    def visit_Max(self, node: Max | Min) -> None:
        self.any = True
        self.default_visit(node)

    visit_Min = visit_CommReducer = visit_Max

    def visit_LetStmt(self, node: LetStmt | SeqStmt) -> None:
        found = _pair_stores(node)
        if found is not None:
            self.pairs.append(found)
            self.any = True
        self.default_visit(node)

    visit_SeqStmt = visit_LetStmt

    def visit_Block(self, node: Block) -> None:
        self.local.update(node.alloc_buffers)
        for match in node.match_buffers:
            self.shared.update((match.source.buffer, match.buffer))
        self.default_visit(node)


class _Plan:
    """Which constants of a function become what, by the identity of the stores they stand in."""

    def __init__(self, body: Stmt) -> None:
        self.uses = _Uses(body)
        self.stores: dict[int, Any] = {}
        self.updates: dict[Buffer, type] = {}
        if not self.uses.any:
            return
        for buffer, stores in self.uses.stores.items():
            self._accumulator(buffer, stores)
        for pair, at, value, _ in self.uses.pairs:
            self._pair_starts(pair, at, value)
        self._pads()

    def _accumulator(self, buffer: Buffer, stores: list[BufferStore]) -> None:
        if buffer in self.uses.shared:
            return
        found = [_update(s) for s in stores]
        kinds = {f[0] for f in found if f is not None}
        if len(kinds) != 1:
            return
        kind = kinds.pop()
        starts = [s for s, f in zip(stores, found) if f is None]
        # Any other store (a copy from elsewhere) leaves the meaning of the start to the program.
        if not all(_is_worst(s.value, kind) or _is_infinity(s.value, kind) for s in starts):
            return
        self.updates[buffer] = kind
        for start in starts:
            self.stores[id(start)] = _infinite(start.value, kind)

    def _pair_starts(self, pair: _Pair, at: BufferStore, value: BufferStore) -> None:
        for start in self.uses.stores[value.buffer]:
            if _is_worst(start.value, pair.kind):
                self.stores[id(start)] = _infinite(start.value, pair.kind)
        if pair.tie is None or not pair.first_wins:
            return
        for start in self.uses.stores[at.buffer]:
            number = start.value
            if B.as_int(number) == -1:
                self.stores[id(start)] = IntImm(number.dtype, dt.max_value(number.dtype))

    # Padding: elements outside that only a reduction to the extreme ever sees.

    def _pads(self) -> None:
        for kind in (Max, Min):
            sinks: dict[Buffer, int] = {}
            direct: list[tuple[BufferStore, Any]] = []
            for buffer, how in self.updates.items():
                if how is not kind:
                    continue
                for store in self.uses.stores[buffer]:
                    found = _update(store)
                    if found is None:
                        continue
                    if isinstance(found[1], BufferLoad):
                        sinks[found[1].buffer] = sinks.get(found[1].buffer, 0) + 1
                    elif _guarded(found[1], kind):
                        direct.append((store, found[1]))
            self._padded_buffers(sinks, kind)
            starts = sum(
                1 for b, k in self.updates.items() if k is kind for s in self.uses.stores[b] if _is_worst(s.value, kind)
            )
            # Inlined padding: the constant may stand nowhere else, where something else may depend on it.
            if direct and self.uses.worst[kind] == starts + len(direct):
                for store, element in direct:
                    self.stores[id(store)] = store.value.with_fields(
                        a=BufferLoad(store.buffer, store.indices), b=_widened(element, kind)
                    )

    def _padded_buffers(self, sinks: dict[Buffer, int], kind: type) -> None:
        """Buffers read by nothing but updates, and copies of such buffers."""
        pending = list(sinks)
        while pending:
            buffer = pending.pop()
            if buffer not in self.uses.local or buffer in self.uses.shared:
                continue
            if self.uses.loads.get(buffer) != sinks[buffer]:
                continue
            for store in self.uses.stores.get(buffer, ()):
                if _guarded(store.value, kind):
                    self.stores[id(store)] = _widened(store.value, kind)
                elif isinstance(store.value, BufferLoad):
                    source = store.value.buffer
                    sinks[source] = sinks.get(source, 0) + 1
                    pending.append(source)


def _is_infinity(value: PrimExpr, kind: type) -> bool:
    return isinstance(value, FloatImm) and bool(value.value == (-math.inf if kind is Max else math.inf))


def _guarded(value: PrimExpr, kind: type) -> TypeGuard[Call]:
    """Whether this is an element where it exists, and the worst finite number outside: data decides nothing."""
    if not is_call(value, "if_then_else") or not _is_worst(value.args[2], kind):
        return False
    seen: list[Any] = []

    def look(node: Node) -> bool:
        seen.append(node)
        return True

    pre_order_visit(value.args[0], look)
    return not any(isinstance(n, BufferLoad) for n in seen) and _reads(value.args[1])


def _reads(expr: PrimExpr) -> bool:
    return isinstance(uncast(expr), BufferLoad)


def _widened(value: Call, kind: type) -> Call:
    inside, element, outside = value.args
    return Call(value.dtype, value.op, [inside, element, _infinite(outside, kind)])


# ---- rewriting


class _ExtremeRewriter(StmtExprMutator):
    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.pairs = {id(at): (pair, at, value, bound) for pair, at, value, bound in plan.uses.pairs}

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value = self.plan.stores.get(id(store))
        return store if value is None else store.with_fields(value=value)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        return self._pair_update(stmt) or Mutator.default_visit(self, stmt)

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        return self._pair_update(stmt) or StmtExprMutator.visit_SeqStmt(self, stmt)

    def _pair_update(self, stmt: Stmt) -> Stmt | None:
        body = stmt
        while isinstance(body, LetStmt):
            body = body.body
        stores: Sequence[Any] = body.seq if isinstance(body, SeqStmt) else ()
        found = next((self.pairs[id(s)] for s in stores if id(s) in self.pairs), None)
        if found is None:
            return None
        pair, at, value, bound = found
        new = pair.exact()
        if not bound:
            made = {id(at): at.with_fields(value=new[0]), id(value): value.with_fields(value=new[1])}
            return SeqStmt([made[id(s)] for s in stores])
        names = [Var(f"v_{s.buffer.name}", s.value.dtype) for s in (at, value)]
        made = {id(s): s.with_fields(value=n) for s, n in zip((at, value), names)}
        body = SeqStmt([made[id(s)] for s in stores])
        for name, number in zip(reversed(names), reversed(new)):
            body = LetStmt(name, number, body)
        return body

    def visit_CommReducer(self, reducer: CommReducer) -> CommReducer:
        return _exact_reducer(reducer)


def _exact_reducer(reducer: CommReducer) -> CommReducer:
    """The combination of partial results between threads, by the same rules."""
    results, starts = list(reducer.result), list(reducer.identity_element)
    if len(results) == 1 and type(results[0]) in (Max, Min) and _is_worst(starts[0], type(results[0])):
        return reducer.with_fields(identity_element=(_infinite(starts[0], type(results[0])),))
    if len(results) != 2:
        return reducer
    try:
        pair, in_order = _pair(*results)
    except LookupError:
        return reducer
    new = pair.exact()
    at, value = (0, 1) if in_order else (1, 0)
    results[at], results[value] = new
    if _is_worst(starts[value], pair.kind):
        starts[value] = _infinite(starts[value], pair.kind)
    number = starts[at]
    if pair.first_wins and B.as_int(number) == -1:
        starts[at] = IntImm(number.dtype, dt.max_value(number.dtype))
    return reducer.with_fields(result=tuple(results), identity_element=tuple(starts))


def exact_extremes(func: PrimFunc) -> PrimFunc:
    """``func`` with exact reductions to the largest and smallest, as :func:`ExactExtremes` makes them."""
    plan = _Plan(func.body)
    if not plan.uses.any:
        return func
    body = _ExtremeRewriter(plan).visit(func.body)
    return func if body is func.body else func.with_body(body)


class ExactExtremes(FunctionRewrite):
    """Start maxima and minima from infinity and let NaN win, in reductions of values and of positions."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return exact_extremes(func)
