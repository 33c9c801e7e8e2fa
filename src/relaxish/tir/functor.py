"""Walking, substituting and transforming tensor programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TYPE_CHECKING, TypeAlias, TypeVar, overload

from ..ir.expr import ExprLike, PrimExpr, as_expr
from ..ir.functor import Mutator, Rewritable, Visitor
from ..ir.node import Node
from ..ir.prim import IntImm, IterVar, Let, Var
from .buffer import Buffer
from .stmt import Allocate, AllocateConst, AttrStmt, Block, DeclBuffer, For, LetStmt, MatchBufferRegion, Stmt
from .walk import post_order_visit, pre_order_visit

if TYPE_CHECKING:
    from .function import PrimFunc

__all__ = [
    "Mutator",
    "Substitute",
    "Visitor",
    "ir_transform",
    "post_order_visit",
    "pre_order_visit",
    "renew_defs",
    "substitute",
    "substitute_buffers",
]


_R = TypeVar("_R")
_N = TypeVar("_N", bound=Node)
#: What variables are replaced by: a table, or a function that returns None for variables to keep.
Values: TypeAlias = Mapping[Var, ExprLike] | Callable[[Var], ExprLike | None]
#: A callback of :func:`ir_transform`: the node's replacement, or None to keep it.
Callback: TypeAlias = Callable[[Any], PrimExpr | Stmt | None]


class Substitute(Mutator):
    """Replace variables by expressions, and buffers along with the variables in their shapes and pointers."""

    def __init__(self, values: Mapping[Var, PrimExpr], buffers: Mapping[Buffer, Buffer] | None = None) -> None:
        self.values = dict(values)
        self.buffers: dict[Buffer, Buffer] = dict(buffers or {})

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.values.get(var, var)

    def visit_IntImm(self, node: IntImm) -> PrimExpr:
        return node

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        known = self.buffers.get(buffer)
        if known is not None:
            return known
        made: Buffer = self.default_visit(buffer)
        self.buffers[buffer] = made
        return made

    def visit_PrimFunc(self, func: PrimFunc) -> PrimFunc:
        buffer_map = {p: self.visit(b) for p, b in func.buffer_map.items()}
        body = self.visit(func.body)
        if body is func.body and all(buffer_map[p] is b for p, b in func.buffer_map.items()):
            return func
        return func.with_fields(body=body, buffer_map=buffer_map)


@overload
def substitute(node: Rewritable[_R], vmap: Values) -> _R: ...
@overload
def substitute(node: Sequence[Rewritable[_R]], vmap: Values) -> tuple[_R, ...]: ...
def substitute(node: Rewritable[_R] | Sequence[Rewritable[_R]], vmap: Values) -> _R | tuple[_R, ...]:
    """Replace variables in an expression, statement, region, or a sequence of them.

    ``vmap`` maps variables to expressions, or is a function that returns None for variables to keep.
    Buffers whose shape, strides or pointer mention a replaced variable are rebuilt.

    >>> from relaxish import tir
    >>> x = tir.Var("x"); print(tir.stmt_functor.substitute(x * 2, {x: tir.const(3)}))
    T.Mul(3, 2)
    """
    if callable(vmap):
        return _SubstituteByFunction(vmap).visit(node)
    if not vmap:
        return node  # type: ignore[return-value]  # where nothing is replaced, a node is its own rewrite
    values = {k.var if isinstance(k, IterVar) else k: as_expr(v) for k, v in vmap.items()}
    return Substitute(values).visit(node)


class _SubstituteByFunction(Substitute):
    def __init__(self, function: Callable[[Var], ExprLike | None]) -> None:
        super().__init__({})
        self.function = function

    def visit_Var(self, var: Var) -> PrimExpr:
        found = self.function(var)
        return var if found is None else as_expr(found)


def without_lets(body: Stmt) -> tuple[dict[Var, PrimExpr], Stmt]:
    """Values bound by let statements above a statement, in terms of other values, and the statement without them."""
    bound = Substitute({})
    while isinstance(body, LetStmt):
        bound.values[body.var] = bound.visit(body.value)
        body = body.body
    return bound.values, body


@overload
def substitute_buffers(
    node: Rewritable[_R], values: Mapping[Var, PrimExpr], buffers: Mapping[Buffer, Buffer]
) -> _R: ...
@overload
def substitute_buffers(
    node: Sequence[Rewritable[_R]], values: Mapping[Var, PrimExpr], buffers: Mapping[Buffer, Buffer]
) -> tuple[_R, ...]: ...
def substitute_buffers(
    node: Rewritable[_R] | Sequence[Rewritable[_R]], values: Mapping[Var, PrimExpr], buffers: Mapping[Buffer, Buffer]
) -> _R | tuple[_R, ...]:
    """:func:`substitute` with some buffers replaced outright; their data pointers follow."""
    all_values = dict(values)
    for old, new in buffers.items():
        if old.data is not new.data:
            all_values.setdefault(old.data, new.data)
    return Substitute(all_values, buffers).visit(node)


class _IRTransform(Mutator):
    """Callbacks see statements and expressions; buffers and ranges are parts of them."""

    def __init__(self, pre: Callback | None, post: Callback | None, only: Sequence[str] | None) -> None:
        self.pre = pre
        self.post = post
        self.only = None if only is None else {name.split(".")[-1] for name in only}

    def visit(self, x: Any) -> Any:
        if isinstance(x, Buffer):
            return x
        if not isinstance(x, (Stmt, PrimExpr)):
            return super().visit(x)
        wanted = self.only is None or type(x).__name__ in self.only
        if wanted and self.pre is not None:
            replaced = self.pre(x)
            if replaced is not None:
                return replaced
        new = super().visit(x)
        if wanted and self.post is not None:
            replaced = self.post(new)
            if replaced is not None:
                return replaced
        return new


def ir_transform(
    stmt: Rewritable[_R],
    preorder: Callback | None,
    postorder: Callback | None,
    only_enable: Sequence[str] | None = None,
) -> _R:
    """Rewrite with callbacks: a ``preorder`` answer replaces a node unvisited, a ``postorder`` one after its children.

    ``only_enable`` limits the callbacks to type names such as ``"tir.For"``.
    """
    return _IRTransform(preorder, postorder, only_enable).visit(stmt)


class _RenewDefs(Mutator):
    """Gives every variable and buffer that the program defines a fresh identity."""

    def __init__(self) -> None:
        self.map: dict[Any, Any] = {}

    def _fresh(self, var: Var) -> Var:
        if var not in self.map:
            self.map[var] = var.with_fields()
        made: Var = self.map[var]
        return made

    def visit_Var(self, var: Var) -> Var:
        return self.map.get(var, var)

    def visit_IterVar(self, iv: IterVar) -> IterVar:
        if iv in self.map:
            return self.map[iv]
        dom = self.visit(iv.dom) if iv.dom is not None else None
        self.map[iv] = made = IterVar(dom, self._fresh(iv.var), iv.iter_type, iv.thread_tag, iv.span)
        return made

    def define_buffer(self, buffer: Buffer) -> Buffer:
        """A fresh buffer with fresh pointer and shape variables."""
        if buffer in self.map:
            known: Buffer = self.map[buffer]
            return known
        self._fresh(buffer.data)
        self.define_shape(buffer)
        made: Buffer = self.default_visit(buffer)
        self.map[buffer] = made
        return made

    def define_shape(self, buffer: Buffer) -> None:
        """Fresh variables for the symbols that a buffer defines."""
        for dim in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            if isinstance(dim, Var):
                self._fresh(dim)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.map.get(buffer, buffer)

    def _alloc(self, buffer: Buffer) -> Buffer:
        if buffer not in self.map:
            self._fresh(buffer.data)
            self.map[buffer] = self.default_visit(buffer)
        made: Buffer = self.map[buffer]
        return made

    def visit_PrimFunc(self, func: PrimFunc) -> PrimFunc:
        for param in func.params:
            self._fresh(param)
        for buffer in func.buffer_map.values():
            self.define_shape(buffer)  # all first: one argument may be ``[s * t]`` where a later one defines ``s``
        for buffer in func.buffer_map.values():
            self.define_buffer(buffer)
        return func.with_fields(
            params=tuple(self.map[p] for p in func.params),
            buffer_map={self.map[p]: self.map[b] for p, b in func.buffer_map.items()},
            body=self.visit(func.body),
        )

    def visit_For(self, loop: For) -> Stmt:
        self._fresh(loop.loop_var)
        return self.default_visit(loop)

    def visit_LetStmt(self, stmt: LetStmt | Let) -> Stmt | PrimExpr:
        value = self.visit(stmt.value)
        self._fresh(stmt.var)
        return stmt.with_fields(var=self.map[stmt.var], value=value, body=self.visit(stmt.body))

    visit_Let = visit_LetStmt

    def visit_Allocate(self, stmt: Allocate | AllocateConst) -> Stmt:
        self._fresh(stmt.buffer_var)
        return self.default_visit(stmt)

    visit_AllocateConst = visit_Allocate

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        self._alloc(stmt.buffer)
        return self.default_visit(stmt)

    def visit_Block(self, block: Block) -> Block:
        for iv in block.iter_vars:
            self.visit(iv)
        for buffer in block.alloc_buffers:
            self._alloc(buffer)
        for match in block.match_buffers:
            self.define_buffer(match.buffer)
        return self.default_visit(block)

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        return match.with_fields(buffer=self.define_buffer(match.buffer), source=self.visit(match.source))

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        return self.default_visit(stmt)


def renew_defs(func: _N) -> _N:
    """A copy of a PrimFunc in which everything it defines is new; two copies can then stand in one program."""
    made: Any = _RenewDefs().visit(func)
    return made
