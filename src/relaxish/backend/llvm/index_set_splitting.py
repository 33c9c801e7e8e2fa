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
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...arith.affine import affine
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import uses_var
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, Visitor, pre_order_visit
from ...ir.op import Op
from ...ir.prim import (
    const_int,
    EQ, GE, GT, LE, LT, NE, And, Call, CmpOp, Div, FloorDiv, FloorMod, IntImm, Mod, Not, Or, Select, Sub,
)  # fmt: skip
from ...ir.structural import same_expression
from ...tir import BufferLoad, BufferStore, For, ForKind, IfThenElse, SeqStmt
from ...tir.stmt import Stmt
from .ranges import Ranges, prove

_CHOICE = Op.get("tir.if_then_else")
_LIKELY = Op.get("tir.likely")
_MAX_PIECES = 8
_HOLDS = {LT: operator.lt, LE: operator.le, GT: operator.gt, GE: operator.ge, EQ: operator.eq, NE: operator.ne}


def split_loop(loop: For, ranges: Ranges, writes: frozenset[Any], key: Callable[[Any], Any]) -> list[Any] | None:
    """Statements that do the same as ``loop`` with fewer conditions inside; None when there is nothing to gain.

    ``writes`` is what memory the loop writes, by the ``key`` of a buffer's data; None in it stands for any memory.
    """
    if loop.kind != ForKind.SERIAL or not _only_stores(loop.body):
        return None
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
        return None
    yes, no = (_with_body(loop, _Fold({}, fixed, value).visit(loop.body)) for value in (True, False))
    return [IfThenElse(fixed, yes, no)]


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


def _is_total(cond: PrimExpr) -> bool:
    """Whether a condition may be asked where it would not have been: no memory, no division that can fail, no calls."""
    total = True

    def look(item: PrimExpr) -> bool:
        nonlocal total
        match item:
            case BufferLoad() | Call():
                total = False
            case Div() | Mod() | FloorDiv() | FloorMod():
                total = total and const_int(item.b, 0) > 0
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
