"""Tiled loops over an extent that is known only at run time: full tiles without guards, then smaller and smaller ones.

Before::

    for io in range((m + 5) // 6):
        for k in range(K):
            for ii in unroll(6):
                if io * 6 + ii < m: C[io * 6 + ii] += ...

After::

    for io in range(m // 6):
        for k in range(K):
            for ii in unroll(6): C[io * 6 + ii] += ...
    for t in range(m % 6 // 4):                     # runs once or never
        for k in range(K):
            for ii in unroll(4): C[m // 6 * 6 + ii] += ...
    for t in range(m % 6 // 2 % 2): ...             # a tile of 2
    for t in range(m % 6 % 2): ...                  # a tile of 1

so that a tile's accumulators stay in registers. It holds when all stores are under such guards. The loop over tiles may
also have a constant extent and its guards a start of their own, as tiles have that are part of a task:
``task * 48 + io * 6 + ii < m``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith.affine import affine
from ...arith.functor import uses_var
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator
from ...ir.op import Op
from ...ir.prim import Add, Call, FloorDiv, FloorMod, IntImm, LE, LT, Max, Min, Mul, Sub, Var, is_zero
from ...ir.structural import same_expression
from ...tir import BufferStore, Evaluate, For, ForKind, IfThenElse
from ...tir.functor import substitute
from ...tir.stmt import LetStmt, Stmt

_LIKELY = Op.get("tir.likely")


@dataclass(frozen=True)
class _Guard:
    """``outer * size + inner < room``: of so many rows (counted from the first of ``outer``) the loops may touch."""

    size: int
    room: PrimExpr


def split_ragged(loop: For) -> list[Any] | None:
    """The loops that replace ``loop``; None when it is of another form."""
    outer: Any = loop
    if loop.kind != ForKind.SERIAL or not is_zero(outer.min):
        return None
    finder = _Guards(outer)
    finder.visit(outer.body)
    guard = finder.guard
    if finder.other or guard is None or not finder.tiled or guard.size < 2:
        return None
    rows = _rows(outer, guard)
    if rows is None:
        return None
    dtype = outer.loop_var.dtype
    size = IntImm(dtype, guard.size)
    full, rest = FloorDiv(rows, size), FloorMod(rows, size)
    pieces = [outer.with_fields(extent=full, body=_Opened(finder, None, None).visit(outer.body))]
    step = 1 << (guard.size - 1).bit_length() - 1
    while step:
        # The bits of what is left say which smaller tiles there are; the larger of them lie before this one.
        once = FloorMod(FloorDiv(rest, IntImm(dtype, step)), IntImm(dtype, 2))
        start = Mul(FloorDiv(rest, IntImm(dtype, 2 * step)), IntImm(dtype, 2 * step))
        body = substitute(_Opened(finder, step, start).visit(outer.body), {outer.loop_var: full})
        pieces.append(outer.with_fields(loop_var=Var(f"{outer.loop_var.name}_{step}", dtype), extent=once, body=body))
        step //= 2
    return pieces


def _rows(outer: Any, guard: _Guard) -> PrimExpr | None:
    """How many rows the tiles of a loop have to cover; None where its extent does not follow from that."""
    extent = outer.extent
    if guard.room.dtype != outer.loop_var.dtype:
        return None
    if isinstance(extent, IntImm):
        most = IntImm(extent.dtype, extent.value * guard.size)
        return Max(Min(guard.room, most), IntImm(extent.dtype, 0))
    if type(extent) is not FloorDiv or not isinstance(extent.b, IntImm) or extent.b.value != guard.size:
        return None
    rounded = affine(Sub(extent.a, guard.room), digits=False, casts=False)
    return guard.room if not rounded.terms and rounded.const == guard.size - 1 else None


def _guard_of(cond: PrimExpr, outer: Any, sizes: dict[Any, int], inner: Any, bound: set[Any]) -> _Guard | None:
    """What ``cond`` says if it is a guard of the tiled loop of ``inner``; its limit may not be known before."""
    if isinstance(cond, Call) and cond.op is _LIKELY:
        cond = cond.args[0]
    if not isinstance(cond, LT | LE) or isinstance(cond.b, IntImm) or cond.a.dtype != cond.b.dtype:
        return None
    form = affine(cond.a, digits=False, casts=False)
    factors: dict[Any, int] = {term.var: term.coef for term in form.terms}
    size = sizes[inner]
    if form.rests or factors.pop(outer.loop_var, 0) != size or factors.pop(inner, 0) != 1:
        return None
    room: PrimExpr = cond.b
    for var, factor in factors.items():
        room = Sub(room, Mul(var, IntImm(cond.a.dtype, factor)))
    within = int(isinstance(cond, LE)) - form.const
    if within:
        room = Add(room, IntImm(cond.a.dtype, within))
    inside = bound | {outer.loop_var}
    return None if uses_var(room, lambda var: var in inside) else _Guard(size, room)


class _Guards(Mutator):
    """Finds the tiled inner loops, their common guard, and whether anything is stored outside of them."""

    _table = {}

    def __init__(self, outer: Any) -> None:
        self.outer = outer
        self.guard: _Guard | None = None
        self.tiled: set[Any] = set()
        self.other = False
        # Loops of constant extent that are open here, and all variables bound inside.
        self.open: dict[Any, int] = {}
        self.bound: set[Any] = set()
        self.guarded = False

    def visit_For(self, loop: For) -> Stmt:
        self.bound.add(loop.loop_var)
        if is_zero(loop.min) and isinstance(loop.extent, IntImm):
            self.open[loop.loop_var] = loop.extent.value
        self.default_visit(loop)
        self.open.pop(loop.loop_var, None)
        return loop

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        self.bound.add(let.var)
        return self.default_visit(let)

    def is_one(self, node: IfThenElse, inner: Any) -> bool:
        """Whether a branch is a guard of a tiled loop's variable, with the common limit."""
        if self.guard is None or node.else_case is not None:
            return False
        found = _guard_of(node.condition, self.outer, {inner: self.guard.size}, inner, self.bound)
        return found is not None and same_expression(self.guard.room, found.room)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        for inner, size in self.open.items():
            if self.guard is None and node.else_case is None:
                self.guard = _guard_of(node.condition, self.outer, self.open, inner, self.bound)
            if self.guard is None or size != self.guard.size or not self.is_one(node, inner):
                continue
            self.tiled.add(inner)
            before, self.guarded = self.guarded, True
            self.visit(node.then_case)
            self.guarded = before
            return node
        return self.default_visit(node)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        self.other = self.other or not self.guarded
        return store

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        self.other = self.other or not isinstance(node.value, IntImm)
        return node


class _Opened(Mutator):
    """The body without its guards; with ``step``, the tiled loops shrink to so many iterations from ``start`` on."""

    _table = {}

    def __init__(self, guards: _Guards, step: int | None, start: PrimExpr | None) -> None:
        self.guards = guards
        self.step = step
        self.start = start
        self.open: list[Any] = []

    def visit_For(self, loop: For) -> Stmt:
        if loop.loop_var not in self.guards.tiled:
            return self.default_visit(loop)
        self.open.append(loop.loop_var)
        body = self.visit(loop.body)
        self.open.pop()
        if self.step is None or self.start is None:
            return loop.with_fields(body=body)
        dtype = loop.loop_var.dtype
        if self.step == 1:
            return substitute(body, {loop.loop_var: self.start})
        inner = Var(loop.loop_var.name, dtype)
        body = substitute(body, {loop.loop_var: Add(self.start, inner)})
        return loop.with_fields(loop_var=inner, extent=IntImm(dtype, self.step), body=body)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        for inner in self.open:
            if self.guards.is_one(node, inner):
                return self.visit(node.then_case)
        return self.default_visit(node)
