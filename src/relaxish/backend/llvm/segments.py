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
from typing import Any

from ...arith.functor import uses_var
from ...ir.functor import Mutator, pre_order_visit
from ...ir.op import Op
from ...ir.prim import EQ, GE, GT, LE, LT, NE, And, Call, CmpOp, IntImm, Not, Or, Select, Sub
from ...ir.structural import structural_equal
from ...tir import BufferStore, For, ForKind, IfThenElse, SeqStmt
from .ranges import Ranges, linear, prove

_CHOICE = Op.get("tir.if_then_else")
_LIKELY = Op.get("tir.likely")
_MAX_PIECES = 8
_HOLDS = {LT: operator.lt, LE: operator.le, GT: operator.gt, GE: operator.ge, EQ: operator.eq, NE: operator.ne}


def split_loop(loop: For, ranges: Ranges) -> list[Any] | None:
    """Statements that do the same as ``loop`` with fewer conditions inside; None when there is nothing to gain."""
    if loop.kind != ForKind.SERIAL or not _only_stores(loop.body):
        return None
    conditions = _conditions(loop.body)
    if not conditions:
        return None
    if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
        first, end = loop.min.value, loop.min.value + loop.extent.value
        cuts = sorted({c for cond in conditions for c in _cuts(cond, loop.loop_var, first, end)})
        if cuts:
            if len(cuts) >= _MAX_PIECES:
                return None
            edges = [first, *cuts, end]
            return [_piece(loop, a, b, ranges) for a, b in zip(edges, edges[1:], strict=False)]
    fixed = next((cond for cond in conditions if not uses_var(cond, loop.loop_var)), None)
    if fixed is None:
        return None
    yes, no = (_with_body(loop, _Fold({}, fixed, value).visit(loop.body)) for value in (True, False))
    return [IfThenElse(fixed, yes, no)]


def _only_stores(body: Any) -> bool:
    return isinstance(body, BufferStore) or (
        isinstance(body, SeqStmt) and all(isinstance(part, BufferStore) for part in body.seq)
    )


def _conditions(body: Any) -> list[Any]:
    """What values are chosen by, taken apart at ``and``, ``or`` and ``not``."""
    found: list[Any] = []

    def look(item: Any) -> bool:
        if isinstance(item, Call) and item.op is _CHOICE:
            _atoms(item.args[0], found)
        elif isinstance(item, Select):
            _atoms(item.condition, found)
        return True

    pre_order_visit(body, look)
    return found


def _atoms(cond: Any, found: list[Any]) -> None:
    if isinstance(cond, (And, Or)):
        _atoms(cond.a, found)
        _atoms(cond.b, found)
    elif isinstance(cond, Not):
        _atoms(cond.a, found)
    elif isinstance(cond, Call) and cond.op is _LIKELY:
        _atoms(cond.args[0], found)
    elif isinstance(cond, CmpOp) and cond.a.dtype.startswith(("int", "uint")) and "x" not in cond.a.dtype:
        found.append(cond)


def _cuts(cond: Any, var: Any, first: int, end: int) -> list[int]:
    """Values of ``var`` strictly inside the loop from which on ``cond`` may have another value."""
    form = linear(Sub(cond.a, cond.b)) if cond.a.dtype == cond.b.dtype else None
    if form is None or set(form[0]) != {var}:
        return []
    factor, const = form[0][var], form[1]
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


def _with_body(loop: For, body: Any) -> For:
    made: For = loop.with_fields(body=body)
    return made


class _Fold(Mutator):
    """Decides conditions by ranges, or one condition by decree."""

    _table = {}

    def __init__(self, ranges: Ranges, decided: Any = None, value: bool = False) -> None:
        self.ranges = ranges
        self.decided = decided
        self.value = value

    def visit_Call(self, call: Call) -> Any:
        if call.op is not _CHOICE:
            return self.default_visit(call)
        cond = self.condition(call.args[0])
        if isinstance(cond, bool):
            return self.visit(call.args[1] if cond else call.args[2])
        return Call(call.dtype, call.op, [cond, self.visit(call.args[1]), self.visit(call.args[2])])

    def visit_Select(self, node: Select) -> Any:
        cond = self.condition(node.condition)
        if isinstance(cond, bool):
            return self.visit(node.true_value if cond else node.false_value)
        return Select(cond, self.visit(node.true_value), self.visit(node.false_value))

    def condition(self, cond: Any) -> Any:
        """True, False, or what is left to ask."""
        if isinstance(cond, (And, Or)):
            a, b = self.condition(cond.a), self.condition(cond.b)
            strong = isinstance(cond, Or)
            if a is strong or b is strong:
                return strong
            if isinstance(a, bool):
                return b
            return a if isinstance(b, bool) else type(cond)(a, b)
        if isinstance(cond, Not):
            inner = self.condition(cond.a)
            return not inner if isinstance(inner, bool) else Not(inner)
        if isinstance(cond, Call) and cond.op is _LIKELY:
            return self.condition(cond.args[0])
        if self.decided is not None and structural_equal(cond, self.decided):
            return self.value
        known = prove(cond, self.ranges)
        return self.visit(cond) if known is None else known
