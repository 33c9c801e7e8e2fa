"""ConvertSSA: every variable is defined once; later definitions of the same variable get fresh ones.

Before: two loops over the same ``i``.
After: the second loop runs over a new variable of the same name.
"""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.prim import Let, Var
from ...ir.transform import PassContext, PassInfo
from ..buffer import Buffer
from ..function import PrimFunc
from ..functor import Substitute
from ..stmt import Allocate, DeclBuffer, For, LetStmt, Stmt
from .base import PrimFuncPass


class _SSA(Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.defined: set[Var] = set()

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        made = self.default_visit(buffer)
        if made is buffer:
            return buffer  # type: ignore[no-any-return]
        for old, new in self.buffers.items():
            if old is buffer and new.data is made.data:
                return new
        self.buffers[buffer] = made
        return made  # type: ignore[no-any-return]

    def _define(self, var: Var) -> tuple[Var, Any]:
        old = self.values.get(var)
        if var not in self.defined:
            self.defined.add(var)
            return var, old
        fresh = var.with_fields()
        self.values[var] = fresh
        return fresh, old

    def _restore(self, var: Var, old: Any) -> None:
        if old is None:
            self.values.pop(var, None)
        else:
            self.values[var] = old

    def visit_For(self, loop: For) -> Any:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        var, old = self._define(loop.loop_var)
        body = self.visit(loop.body)
        self._restore(loop.loop_var, old)
        if low is loop.min and extent is loop.extent and var is loop.loop_var and body is loop.body:
            return loop
        return loop.with_fields(loop_var=var, min=low, extent=extent, body=body)

    def _let(self, node: Any) -> Any:
        value = self.visit(node.value)
        var, old = self._define(node.var)
        body = self.visit(node.body)
        self._restore(node.var, old)
        if value is node.value and var is node.var and body is node.body:
            return node
        return node.with_fields(var=var, value=value, body=body)

    def visit_LetStmt(self, node: LetStmt) -> Any:
        return self._let(node)

    def visit_Let(self, node: Let) -> Any:
        return self._let(node)

    def visit_Allocate(self, node: Allocate) -> Any:
        extents = self.visit(node.extents)
        var, old = self._define(node.buffer_var)
        body = self.visit(node.body)
        self._restore(node.buffer_var, old)
        if extents is node.extents and var is node.buffer_var and body is node.body:
            return node
        return node.with_fields(buffer_var=var, extents=extents, body=body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        return self.default_visit(node)


def convert(func: PrimFunc) -> PrimFunc:
    """Bring one function to single assignment."""
    ssa = _SSA()
    ssa.defined.update(func.params)
    for buffer in func.buffer_map.values():
        ssa.defined.add(buffer.data)
    body = ssa.visit(func.body)
    return func if body is func.body else func.with_body(body)


def convert_body(body: Stmt) -> Stmt:
    """Bring one statement to single assignment."""
    return _SSA().visit(body)  # type: ignore[no-any-return]


class _ConvertSSA(PrimFuncPass):
    def __init__(self) -> None:
        super().__init__(lambda f, _m, _c: convert(f), PassInfo(0, "tir.ConvertSSA"))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return super().transform_module(mod, ctx)


def ConvertSSA() -> PrimFuncPass:  # noqa: N802
    """Make every variable definition unique."""
    return _ConvertSSA()
