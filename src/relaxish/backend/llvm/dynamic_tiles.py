"""Tiled loops over an extent that is known only at run time: full tiles without guards, then single rows.

Before::

    for io in range((m + 5) // 6):
        for k in range(K):
            for ii in unroll(6):
                if io * 6 + ii < m: C[io * 6 + ii] += ...

After::

    for io in range(m // 6):
        for k in range(K):
            for ii in unroll(6): C[io * 6 + ii] += ...
    for t in range(m % 6):
        for k in range(K):
            C[m // 6 * 6 + t] += ...

so that a tile's accumulators stay in registers. It holds when all stores are under such guards.
"""

from __future__ import annotations

from typing import Any

from ...arith.build import as_int
from ...arith.affine import affine
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator
from ...ir.op import Op
from ...ir.prim import LT, Call, FloorDiv, FloorMod, IntImm, Sub, Var
from ...ir.structural import same_expression
from ...tir import BufferStore, Evaluate, For, ForKind, IfThenElse
from ...tir.functor import substitute
from ...tir.stmt import Stmt

_LIKELY = Op.get("tir.likely")


def split_ragged(loop: For) -> list[Any] | None:
    """The two loops that replace ``loop``; None when it is of another form."""
    outer: Any = loop
    extent = outer.extent
    if loop.kind != ForKind.SERIAL or type(extent) is not FloorDiv or not isinstance(extent.b, IntImm):
        return None
    if not isinstance(outer.min, IntImm) or outer.min.value != 0:
        return None
    finder = _Guards(outer, extent.b.value)
    finder.visit(outer.body)
    if finder.other or finder.bound is None or not finder.tiled:
        return None
    rounded = affine(Sub(extent.a, finder.bound), digits=False, casts=False)
    if extent.a.dtype != finder.bound.dtype or rounded.terms or rounded.const != extent.b.value - 1:
        return None
    size = IntImm(outer.loop_var.dtype, extent.b.value)
    full = FloorDiv(finder.bound, size)
    main = outer.with_fields(extent=full, body=_Opened(finder, None).visit(outer.body))
    row = Var(outer.loop_var.name + "_rest", outer.loop_var.dtype)
    body = substitute(_Opened(finder, row).visit(outer.body), {outer.loop_var: full})
    return [main, outer.with_fields(loop_var=row, extent=FloorMod(finder.bound, size), body=body)]


def _is_guard(cond: PrimExpr, outer: Any, size: int, inner: PrimExpr) -> Any | None:
    """The bound when ``cond`` says ``outer * size + inner < bound``."""
    if isinstance(cond, Call) and cond.op is _LIKELY:
        cond = cond.args[0]
    if type(cond) is not LT:
        return None
    form = affine(cond.a, digits=False, casts=False)
    return cond.b if form.const == 0 and form.factors() == {outer.loop_var: size, inner: 1} else None


class _Guards(Mutator):
    """Finds the tiled inner loops, their common bound, and whether anything is stored outside of them."""

    _table = {}

    def __init__(self, outer: Stmt, size: int) -> None:
        self.outer = outer
        self.size = size
        self.bound: Any = None
        self.tiled: set[Any] = set()
        self.other = False
        self.open: list[Any] = []
        self.guarded = False

    def visit_For(self, loop: For) -> Stmt:
        fits = as_int(loop.min) == 0
        fits = fits and as_int(loop.extent) == self.size
        self.open += [loop.loop_var] if fits else []
        self.default_visit(loop)
        if fits:
            self.open.pop()
        return loop

    def is_one(self, node: IfThenElse, inner: PrimExpr) -> bool:
        """Whether a branch is a guard of a tiled loop's variable against the common bound."""
        if self.bound is None or node.else_case is not None:
            return False
        bound = _is_guard(node.condition, self.outer, self.size, inner)
        return bound is not None and same_expression(self.bound, bound)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        for inner in self.open:
            if self.bound is None and node.else_case is None:
                self.bound = _is_guard(node.condition, self.outer, self.size, inner)
            if not self.is_one(node, inner):
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
    """The body without its guards; with ``row``, the tiled loops shrink to that one iteration."""

    _table = {}

    def __init__(self, guards: _Guards, row: PrimExpr | None) -> None:
        self.guards = guards
        self.row = row
        self.open: list[Any] = []

    def visit_For(self, loop: For) -> Stmt:
        if loop.loop_var not in self.guards.tiled:
            return self.default_visit(loop)
        self.open.append(loop.loop_var)
        body = self.visit(loop.body)
        self.open.pop()
        return loop.with_fields(body=body) if self.row is None else substitute(body, {loop.loop_var: self.row})

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        for inner in self.open:
            if self.guards.is_one(node, inner):
                return self.visit(node.then_case)
        return self.default_visit(node)
