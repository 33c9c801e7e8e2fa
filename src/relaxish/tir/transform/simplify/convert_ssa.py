"""ConvertSSA: every variable is defined once; later definitions of the same variable get fresh ones.

Before: two loops over the same ``i``.
After: the second loop runs over a new variable of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ....ir.expr import PrimExpr, Range
from ....ir.module import IRModule, functions_of
from ....ir.prim import IterVar, Let, Var
from ....ir.transform import PassContext
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import Allocate, AllocateConst, AttrStmt, Block, DeclBuffer, For, LetStmt, LetT, Stmt
from ..base import FunctionRewrite


class _SSA(Substitute):
    """Renames from the second definition on; ``defined`` grows over all functions of a module."""

    def __init__(self) -> None:
        super().__init__({})
        self.defined: set[Var] = set()
        self.scope: set[Var] = set()  # thread axes stay in it: one may be launched any number of times
        self.announced: dict[Var, Var] = {}  # named by an attribute before their definition

    # -- definitions ---------------------------------------------------------------------------------------

    @contextmanager
    def _define(self, var: Var) -> Iterator[Var]:
        """The variable to define in the place of ``var``, for the length of its scope."""
        old, nested = self.values.get(var), var in self.scope
        fresh = self.announced.pop(var, None)
        if fresh is None:
            fresh = self._fresh(var)
        if fresh is not var:
            self.values[var] = fresh
        self.scope.add(var)
        yield fresh
        if old is None:
            self.values.pop(var, None)
        else:
            self.values[var] = old
        if not nested:
            self.scope.discard(var)

    def _fresh(self, var: Var) -> Var:
        if var in self.defined:
            return var.with_fields()
        self.defined.add(var)
        return var

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        if not self.values:
            return buffer
        made: Buffer = self.default_visit(buffer)
        if made is buffer:
            return buffer
        known = self.buffers.get(buffer)
        if known is not None and _same_memory(known, made):
            return known
        self.buffers[buffer] = made
        return made

    # -- statements ----------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> Stmt:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        with self._define(loop.loop_var) as var:
            body = self.visit(loop.body)
        if low is loop.min and extent is loop.extent and var is loop.loop_var and body is loop.body:
            return loop
        return loop.with_fields(loop_var=var, min=low, extent=extent, body=body)

    def _let(self, node: LetT) -> LetT:
        value = self.visit(node.value)
        with self._define(node.var) as var:
            body = self.visit(node.body)
        if value is node.value and var is node.var and body is node.body:
            return node
        return node.with_fields(var=var, value=value, body=body)

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        return self._let(node)

    def visit_Let(self, node: Let) -> PrimExpr:
        return self._let(node)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        extents, condition = self.visit(node.extents), self.visit(node.condition)
        with self._define(node.buffer_var) as var:
            body = self.visit(node.body)
        same = extents is node.extents and condition is node.condition
        if same and var is node.buffer_var and body is node.body:
            return node
        return node.with_fields(buffer_var=var, extents=extents, condition=condition, body=body)

    def visit_AllocateConst(self, node: AllocateConst) -> Stmt:
        with self._define(node.buffer_var) as var:
            body = self.visit(node.body)
        return node if var is node.buffer_var and body is node.body else node.with_fields(buffer_var=var, body=body)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        return self.default_visit(node)

    def visit_Block(self, block: Block) -> Block:
        with ExitStack() as scope:
            iters = []
            for iv in block.iter_vars:
                dom = self.visit(iv.dom)
                var = scope.enter_context(self._define(iv.var))
                same = var is iv.var and dom is iv.dom
                iters.append(iv if same else IterVar(dom, var, iv.iter_type, iv.thread_tag))
            for buffer in block.alloc_buffers:
                scope.enter_context(self._define(buffer.data))
            made: Any = self.default_visit(block)
        return made if all(a is b for a, b in zip(iters, block.iter_vars)) else made.with_fields(iter_vars=tuple(iters))

    def visit_IterVar(self, iv: IterVar) -> IterVar:
        return iv

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if isinstance(attr.node, IterVar):
            return self._thread(attr, attr.node)
        if not isinstance(attr.node, Var):
            return self.default_visit(attr)
        var = attr.node
        if var in self.defined and var not in self.scope:
            # It names a definition to come, and another statement had the first one.
            self.announced[var] = var.with_fields()
        node = self.announced.get(var, self.values.get(var, var))
        value, body = self.visit(attr.value), self.visit(attr.body)
        self.announced.pop(var, None)
        same = node is var and value is attr.value and body is attr.body
        return attr if same else attr.with_fields(node=node, value=value, body=body)

    def _thread(self, attr: AttrStmt, axis: IterVar) -> Stmt:
        dom = axis.dom
        if dom is not None:
            low, extent = self.visit(dom.min), self.visit(dom.extent)
            if low is not dom.min or extent is not dom.extent:
                dom = Range.from_min_extent(low, extent)
        self._parameters([axis.var])
        var = self.values.get(axis.var, axis.var)
        value, body = self.visit(attr.value), self.visit(attr.body)
        if dom is not axis.dom or var is not axis.var:
            axis = IterVar(dom, var, axis.iter_type, axis.thread_tag)
        same = axis is attr.node and value is attr.value and body is attr.body
        return attr if same else attr.with_fields(node=axis, value=value, body=body)

    # -- functions -----------------------------------------------------------------------------------------

    def function(self, func: PrimFunc) -> PrimFunc:
        """One function, whose parameters and shape variables may belong to a function before it."""
        self.values, self.buffers, self.scope, self.announced = {}, {}, set(), {}
        self._parameters(func.params)
        for buffer in func.buffer_map.values():
            symbols = (*buffer.shape, *buffer.strides, buffer.elem_offset)
            self._parameters(of_kind(symbols, Var))
            self._parameters([buffer.data])
        params = tuple(self.values.get(p, p) for p in func.params)
        buffer_map = {self.values.get(p, p): self.visit(b) for p, b in func.buffer_map.items()}
        body = self.visit(func.body)
        same = all(a is b for a, b in zip(params, func.params)) and body is func.body
        if same and all(buffer_map.get(p) is b for p, b in func.buffer_map.items()):
            return func
        return func.with_fields(params=params, buffer_map=buffer_map, body=body)

    def _parameters(self, variables: Iterable[Any]) -> None:
        """Define variables that stay in scope to the end of the function."""
        for var in variables:
            if var in self.scope:
                continue
            self.scope.add(var)
            fresh = self._fresh(var)
            if fresh is not var:
                self.values[var] = fresh


def _same_memory(a: Buffer, b: Buffer) -> bool:
    parts = [(a.data, b.data), (a.elem_offset, b.elem_offset), *zip(a.shape, b.shape), *zip(a.strides, b.strides)]
    return all(x is y for x, y in parts)


def convert(func: PrimFunc) -> PrimFunc:
    """Bring one function to single assignment."""
    return _SSA().function(func)


def convert_body(body: Stmt) -> Stmt:
    """Bring one statement to single assignment."""
    return _SSA().visit(body)


class ConvertSSA(FunctionRewrite):
    """Make every variable definition of a module unique.

    Before (both loops define the same variable ``i``)::

        for i in range(8): A[i] = 0.0
        for i in range(8): A[i] = 1.0

    After (the second loop has a variable of its own)::

        for i in range(8): A[i] = 0.0
        for i_1 in range(8): A[i_1] = 1.0

    The first definition keeps its variable. Parameters that two functions share become two; a thread axis may be
    launched any number of times within one function.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        ssa = _SSA()  # one memory of what is defined for all functions
        out = mod
        for var, func in functions_of(mod, PrimFunc):
            made = ssa.function(func)
            if made is not func:
                out = mod.clone() if out is mod else out
                out.update_func(var, made)
        return out
