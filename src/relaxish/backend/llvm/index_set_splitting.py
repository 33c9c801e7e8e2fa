"""Innermost loops without conditions on their variable: padding, concatenation and the like as plain pieces.

Before::

    for j in range(58):
        B[i, j] = if_then_else(1 <= i and 1 <= j and j < 57, A[i - 1, j - 1], 0)

After::

    B[i, 0] = 0
    if 1 <= i:
        for j in range(1, 57): B[i, j] = A[i - 1, j - 1]
    else:
        for j in range(1, 57): B[i, j] = 0
    B[i, 57] = 0

so that each loop can be made of vectors.

Where sizes are parameters, loops around such loops are cut as well, at places that are computed at run time:
the pieces are as long as it then turns out, which may be nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith.affine import affine
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import uses_var
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, Visitor, all_nodes, pre_order_visit
from ...ir.op import Op
from ...ir.prim import (
    EQ, GE, GT, LE, LT, NE, Add, And, Call, CmpOp, Div, FloorDiv, FloorMod, IntImm, Max, Min, Mod, Mul, Not, Or, Select,
    Sub, const_int,
)  # fmt: skip
from ...ir.structural import same_expression
from ...tir import BufferLoad, BufferStore, Evaluate, For, ForKind, IfThenElse, SeqStmt
from ...tir.stmt import Stmt
from .ranges import Ranges, prove
from .sizes import Sizes

_CHOICE = Op.get("tir.if_then_else")
_LIKELY = Op.get("tir.likely")
_MAX_PIECES = 8
_HOLDS = {LT: operator.lt, LE: operator.le, GT: operator.gt, GE: operator.ge, EQ: operator.eq, NE: operator.ne}


def split_loop(
    loop: For, ranges: Ranges, writes: frozenset[Any], key: Callable[[Any], Any], sizes: Sizes = Sizes()
) -> list[Any] | None:
    """Statements that do the same as ``loop`` with fewer conditions inside; None when there is nothing to gain.

    ``writes`` is what memory the loop writes, by the ``key`` of a buffer's data; None in it stands for any memory.
    ``sizes`` is what is known of sizes, where these are parameters.
    """
    if loop.kind != ForKind.SERIAL:
        return None
    if not _only_stores(loop.body):
        return _split_by_sizes(loop, sizes) if sizes.known and _is_copying(loop.body) else None
    conditions = _conditions(loop.body)
    if not conditions:
        return None
    if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
        first, end = loop.min.value, loop.min.value + loop.extent.value
        cuts = sorted({c for cond, _ in conditions for c in _cuts(cond, loop.loop_var, first, end)})
        if cuts:
            if len(cuts) >= _MAX_PIECES:
                return None
            edges = [first, *cuts, end]
            return [_piece(loop, a, b, ranges) for a, b in zip(edges, edges[1:], strict=False)]
    runs = const_int(loop.extent, 0) > 0
    fixed = next(
        (
            cond
            for cond, guarded in conditions
            if not uses_var(cond, loop.loop_var)
            and (_is_total(cond) or (runs and not guarded and _stays(cond, writes, key)))
        ),
        None,
    )
    if fixed is None:
        return _split_by_sizes(loop, sizes) if sizes.known else None
    yes, no = (_with_body(loop, _Fold({}, fixed, value).visit(loop.body)) for value in (True, False))
    return [IfThenElse(fixed, yes, no)]


def _is_copying(body: Stmt) -> bool:
    """Whether nested loops and branches end in plain stores, whose conditions choose values by position."""
    while isinstance(body, For | IfThenElse):
        if isinstance(body, For) and body.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            return False
        if isinstance(body, IfThenElse) and body.else_case:
            return False
        body = body.body if isinstance(body, For) else body.then_case
    return _only_stores(body)


@dataclass(frozen=True)
class _Limit:
    """A condition of a loop's body that is ``x >= at``, or with ``from_there`` false ``x < at``."""

    cond: CmpOp
    at: PrimExpr
    from_there: bool


def _split_by_sizes(loop: For, sizes: Sizes) -> list[Any] | None:
    """The loop in pieces between limits that are computed when it is reached; None where there are none.

    A piece ends not before it begins: limits in another order make empty pieces. In a piece, ``x`` has passed all limits
    before it and not that at its end; nor those behind, as far as they are known to be no smaller.
    """
    found = _limits(loop, sizes)
    if not found:
        return None
    line = _line_of([limit.at for limit in found], sizes)
    end: PrimExpr = Add(loop.min, loop.extent)
    edges: list[PrimExpr] = [loop.min]
    for at in line:
        edges.append(Max(edges[-1], Min(at, end)))
    edges.append(end)
    pieces = []
    for number, (begin, stop) in enumerate(zip(edges, edges[1:], strict=False)):
        body: Any = loop.body
        for limit in found:
            passed = any(same_expression(limit.at, at) for at in line[:number])
            passed = passed or (number > 0 and _in_order([limit.at, line[number - 1]], sizes))
            if passed or (number < len(line) and _no_smaller(limit.at, line[number], sizes)):
                body = _Fold({}, limit.cond, passed == limit.from_there).visit(body)
        pieces.append(_with_body(loop, body).with_fields(min=begin, extent=Sub(stop, begin)))
    return pieces


def _limits(loop: For, sizes: Sizes) -> list[_Limit]:
    """The conditions of a loop's body that one place in the loop decides, and that may be asked before it."""
    inside = {inner.loop_var for inner in all_nodes(loop.body) if isinstance(inner, For)} | {loop.loop_var}
    found = []
    for cond, _ in _conditions(loop.body):
        at = _limit(cond, loop.loop_var)
        if at is not None and not uses_var(at[0], lambda var: var in inside) and _is_total(cond, sizes):
            found.append(_Limit(cond, *at))
    return found


def _line_of(limits: Sequence[PrimExpr], sizes: Sizes) -> list[PrimExpr]:
    """At most three different limits, in an order that is as certain as can be told."""
    line: list[PrimExpr] = []
    for at in limits:
        if len(line) == 3 or any(same_expression(at, other) for other in line):
            continue
        place = next((i for i, other in enumerate(line) if _in_order([at, other], sizes)), len(line))
        line.insert(place, at)
    return line


def _no_smaller(limit: PrimExpr, than: PrimExpr, sizes: Sizes) -> bool:
    return same_expression(limit, than) or _in_order([than, limit], sizes)


def _in_order(limits: Sequence[PrimExpr], sizes: Sizes) -> bool:
    """Whether each limit is certainly no larger than the next one."""
    for low, high in zip(limits, limits[1:], strict=False):
        form = affine(Sub(high, low), digits=False, casts=False)
        if form.const < 0 or form.rests or any(t.coef < 0 or t.var not in sizes.known for t in form.terms):
            return False
    return True


def _limit(cond: CmpOp, var: PrimExpr) -> tuple[PrimExpr, bool] | None:
    """The limit ``l`` for which ``cond`` is ``var >= l``, or with False ``var < l``; None for other conditions."""
    low, high, strict = cond.a, cond.b, isinstance(cond, LT | GT)
    if isinstance(cond, GT | GE):
        low, high = high, low
    elif not isinstance(cond, LT | LE):
        return None
    # low < high (or <=) says 0 < high - low.
    form = affine(Sub(high, low), digits=False, casts=False)
    factors: dict[Any, int] = {term.var: term.coef for term in form.terms}
    step = factors.pop(var, 0)
    if form.rests or step not in (1, -1) or cond.a.dtype != var.dtype:
        return None
    rest: PrimExpr = IntImm(var.dtype, form.const)
    for other, factor in factors.items():
        rest = Add(rest, Mul(other, IntImm(var.dtype, factor)))
    zero, one = IntImm(var.dtype, 0), IntImm(var.dtype, 1)
    if step == 1:
        # var + rest > 0, or >= 0
        limit: PrimExpr = Sub(one if strict else zero, rest)
    else:
        # var < rest, or <= rest
        limit = rest if strict else Add(rest, one)
    if not factors:
        limit = IntImm(var.dtype, (int(strict) - form.const) if step == 1 else form.const + int(not strict))
    return limit, step == 1


def _only_stores(body: Stmt) -> bool:
    return isinstance(body, BufferStore) or (
        isinstance(body, SeqStmt) and all(isinstance(part, BufferStore) for part in body.seq)
    )


def _conditions(body: Stmt) -> list[tuple[Any, bool]]:
    """What values are chosen by, taken apart at ``and``, ``or`` and ``not``; and whether other conditions guard it."""
    finder = _Conditions()
    finder.visit(body)
    return finder.found


class _Conditions(Visitor):
    """Collects conditions, what encloses others first."""

    _table = {}

    def __init__(self) -> None:
        self.found: list[tuple[Any, bool]] = []
        self.guarded = False

    def visit_Call(self, call: Call) -> None:
        if call.op is not _CHOICE:
            self.default_visit(call)
            return
        self._atoms(call.args[0], self.guarded)
        self.visit(call.args[0])
        before, self.guarded = self.guarded, True
        self.visit(call.args[1])
        self.visit(call.args[2])
        self.guarded = before

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self._atoms(node.condition, self.guarded)
        self.visit(node.condition)
        before, self.guarded = self.guarded, True
        self.visit(node.then_case)
        if node.else_case is not None:
            self.visit(node.else_case)
        self.guarded = before

    def visit_Select(self, node: Select) -> None:
        self._atoms(node.condition, self.guarded)
        self.default_visit(node)

    def _atoms(self, cond: PrimExpr, guarded: bool) -> None:
        match cond:
            case And() | Or():
                self._atoms(cond.a, guarded)
                self._atoms(cond.b, True)
            case Not():
                self._atoms(cond.a, guarded)
            case Call() if cond.op is _LIKELY:
                self._atoms(cond.args[0], guarded)
            case CmpOp() if cond.a.dtype.startswith(("int", "uint")) and "x" not in cond.a.dtype:
                self.found.append((cond, guarded))


def _is_total(cond: PrimExpr, sizes: Sizes = Sizes()) -> bool:
    """Whether a condition may be asked where it would not have been: no memory, no division that can fail, no calls."""
    total = True

    def look(item: PrimExpr) -> bool:
        nonlocal total
        match item:
            case BufferLoad() | Call():
                total = False
            case Div() | Mod() | FloorDiv() | FloorMod():
                total = total and sizes.is_positive(item.b)
        return total

    pre_order_visit(cond, look)
    return total


def _stays(cond: PrimExpr, writes: frozenset[Any], key: Callable[[Any], Any]) -> bool:
    """Whether a condition has one value during all of the loop."""
    stays = True

    def look(item: PrimExpr) -> bool:
        nonlocal stays
        match item:
            case BufferLoad():
                stays = stays and None not in writes and key(item.buffer.data) not in writes
            case Call():
                stays = stays and side_effect(item) <= CallEffectKind.ReadState
        return stays

    pre_order_visit(cond, look)
    return stays


def _cuts(cond: CmpOp, var: PrimExpr, first: int, end: int) -> list[int]:
    """Values of ``var`` strictly inside the loop from which on ``cond`` may have another value."""
    form = affine(Sub(cond.a, cond.b), digits=False, casts=False)
    factors = form.factors() if cond.a.dtype == cond.b.dtype else None
    if factors is None or set(factors) != {var}:
        return []
    factor, const = factors[var], form.const
    holds = _HOLDS[type(cond)]

    def value(v: int) -> bool:
        return bool(holds(factor * v + const, 0))

    zero = -const // factor
    return [c for c in (zero, zero + 1) if first < c < end and value(c - 1) != value(c)]


def _piece(loop: For, begin: int, end: int, ranges: Ranges) -> For:
    known = {**ranges, loop.loop_var: (begin, end - 1)}
    dtype = loop.loop_var.dtype
    made = _with_body(loop, _Fold(known).visit(loop.body))
    return made.with_fields(min=IntImm(dtype, begin), extent=IntImm(dtype, end - begin))


def _with_body(loop: For, body: Stmt) -> For:
    made: For = loop.with_fields(body=body)
    return made


class _Fold(Mutator):
    """Decides conditions by ranges, or one condition by decree."""

    _table = {}

    def __init__(self, ranges: Ranges, decided: PrimExpr | None = None, value: bool = False) -> None:
        self.ranges = ranges
        self.decided = decided
        self.value = value

    def visit_Call(self, call: Call) -> PrimExpr:
        if call.op is not _CHOICE:
            return self.default_visit(call)
        cond = self.condition(call.args[0])
        if isinstance(cond, bool):
            return self.visit(call.args[1] if cond else call.args[2])
        return Call(call.dtype, call.op, [cond, self.visit(call.args[1]), self.visit(call.args[2])])

    def visit_Select(self, node: Select) -> PrimExpr:
        cond = self.condition(node.condition)
        if isinstance(cond, bool):
            return self.visit(node.true_value if cond else node.false_value)
        return Select(cond, self.visit(node.true_value), self.visit(node.false_value))

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        cond = self.condition(node.condition)
        if not isinstance(cond, bool):
            return node.with_fields(
                condition=cond,
                then_case=self.visit(node.then_case),
                else_case=None if node.else_case is None else self.visit(node.else_case),
            )
        chosen = node.then_case if cond else node.else_case
        return Evaluate(IntImm("int32", 0)) if chosen is None else self.visit(chosen)

    def condition(self, cond: PrimExpr) -> PrimExpr | bool:
        """True, False, or what is left to ask."""
        match cond:
            case And() | Or():
                a, b = self.condition(cond.a), self.condition(cond.b)
                strong = isinstance(cond, Or)
                if a is strong or b is strong:
                    return strong
                if isinstance(a, bool):
                    return b
                return a if isinstance(b, bool) else type(cond)(a, b)
            case Not():
                inner = self.condition(cond.a)
                return not inner if isinstance(inner, bool) else Not(inner)
            case Call() if cond.op is _LIKELY:
                return self.condition(cond.args[0])
        if self.decided is not None and same_expression(cond, self.decided):
            return self.value
        known = prove(cond, self.ranges)
        return self.visit(cond) if known is None else known
