"""Fast walks over the loop/block skeleton of a program and cheap rebuilding of single nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, Rewritable, Visitor
from ...ir.node import Node
from ...ir.prim import IterVar, Var
from ..stmt import AllocateConst, Block, BlockRealize, BufferRegion, DeclBuffer, For, IfThenElse, SeqStmt, Stmt

__all__ = [
    "block_realizes_below",
    "driving_loops",
    "replace_child",
    "replace_stmts",
    "seq_or_single",
    "stmt_children",
    "unwrap",
    "uses_var",
    "vars_in",
    "with_body",
]


def stmt_children(stmt: Stmt) -> list[Any]:
    """The outermost loops and blocks in a statement (itself, if it is one)."""
    if isinstance(stmt, For):
        return [stmt]
    if isinstance(stmt, BlockRealize):
        return [stmt.block]
    if isinstance(stmt, Block):
        return [stmt]
    if isinstance(stmt, SeqStmt):
        out: list[Any] = []
        for part in stmt.seq:
            if isinstance(part, For):
                out.append(part)
            elif isinstance(part, BlockRealize):
                out.append(part.block)
            else:
                out.extend(stmt_children(part))
        return out
    found: list[Any] = []
    for name in getattr(stmt, "_child_fields", ()):
        child = getattr(stmt, name)
        if isinstance(child, Stmt):
            found.extend(stmt_children(child))
    return found


def driving_loops(loops: Sequence[For], variables: Iterable[Any]) -> list[For]:
    """Those of ``loops`` (outer to inner) that are among ``variables``, and those that say how far these run."""
    wanted, found = set(variables), []
    for loop in reversed(loops):
        if loop.loop_var in wanted:
            found.append(loop)
            wanted.update(vars_in((loop.min, loop.extent)))
    return found[::-1]


_R = TypeVar("_R")
#: A node, or nodes in tuples and lists of any depth.
Nodes: TypeAlias = "Node | Sequence[Nodes]"
_Bodied = TypeVar("_Bodied", For, Block, BlockRealize)


def unwrap(body: Stmt) -> tuple[list[Any], Any]:
    """The constants and declared buffers that a body begins with, and the body within them."""
    wrappers = []
    while isinstance(body, (AllocateConst, DeclBuffer)):
        wrappers.append(body)
        body = body.body
    return wrappers, body


def with_body(node: _Bodied, body: Stmt) -> _Bodied:
    """``node`` (a loop, block or realize) with another body."""
    if isinstance(node, BlockRealize):
        return node.with_fields(block=node.block.with_fields(body=body))
    return node.with_fields(body=body)


class _ReplaceOne(Mutator):
    def __init__(self, mapping: dict[int, Any]) -> None:
        self.mapping = mapping

    def visit(self, x: Any) -> Any:
        found = self.mapping.get(id(x))
        return found if found is not None else super().visit(x)

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node


def replace_stmts(stmt: Rewritable[_R], mapping: dict[int, Any]) -> _R:
    """``stmt`` with statements, given by ``id``, replaced; expressions are not entered."""
    return _ReplaceOne(mapping).visit(stmt)


def _swap(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt | None:
    """``stmt`` with the child ``old`` replaced, None when it does not occur."""
    if stmt is old:
        return new
    if isinstance(stmt, BlockRealize):
        if stmt.block is old:
            return new if isinstance(new, (BlockRealize, For, SeqStmt)) else stmt.with_fields(block=new)
        return None
    if isinstance(stmt, SeqStmt):
        for index, part in enumerate(stmt.seq):
            if part is old or (isinstance(part, BlockRealize) and part.block is old):
                made = new if part is old else _swap(part, old, new)
                assert made is not None
                return SeqStmt((*stmt.seq[:index], made, *stmt.seq[index + 1 :]))
        for index, part in enumerate(stmt.seq):
            if isinstance(part, (For, BlockRealize)):
                continue
            made = _swap(part, old, new)
            if made is not None:
                return SeqStmt((*stmt.seq[:index], made, *stmt.seq[index + 1 :]))
        return None
    if isinstance(stmt, (For, Block)):
        return None
    for name in getattr(stmt, "_child_fields", ()):
        child = getattr(stmt, name)
        if isinstance(child, Stmt):
            made = _swap(child, old, new)
            if made is not None:
                return stmt.with_fields(**{name: made})
    return None


def replace_child(parent: Block | For, old: Stmt, new: Stmt) -> Stmt:
    """The loop or block ``parent`` with its direct child loop or block ``old`` replaced by ``new``."""
    body = _swap(parent.body, old, new)
    if body is None:
        raise AssertionError("the statement to replace is not a child of its parent")
    return parent.with_fields(body=body)


def seq_or_single(stmts: Iterable[Any]) -> Stmt:
    """One statement out of several; nested sequences are flattened."""
    flat: list[Any] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            flat.extend(stmt.seq)
        else:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def block_realizes_below(stmt: Stmt, out: list[Any] | None = None) -> list[Any]:
    """The nearest block realizes in a statement, in program order; blocks are not entered."""
    if out is None:
        out = []
    while isinstance(stmt, For):
        stmt = stmt.body
    if isinstance(stmt, BlockRealize):
        out.append(stmt)
    elif isinstance(stmt, SeqStmt):
        for part in stmt.seq:
            block_realizes_below(part, out)
    elif isinstance(stmt, IfThenElse):
        block_realizes_below(stmt.then_case, out)
        if stmt.else_case is not None:
            block_realizes_below(stmt.else_case, out)
    elif isinstance(stmt, Stmt):
        for name in stmt._child_fields:
            child = getattr(stmt, name)
            if isinstance(child, Stmt):
                block_realizes_below(child, out)
    return out


class _VarCollector(Visitor):
    def __init__(self) -> None:
        self.found: dict[Any, None] = {}

    def visit_Var(self, node: Var) -> None:
        self.found[node] = None


def vars_in(expr: Nodes) -> dict[Any, None]:
    """The variables of an expression or statement, in order of first occurrence."""
    collector = _VarCollector()
    collector.visit(expr)
    return collector.found


class _Uses(Visitor):
    def __init__(self, test: Callable[[Any], bool]) -> None:
        self.test = test
        self.hit = False

    def visit(self, x: Any) -> Any:
        if not self.hit:
            super().visit(x)

    def visit_Var(self, node: Var) -> None:
        if self.test(node):
            self.hit = True


def uses_var(node: Nodes, test: Callable[[Any], bool]) -> bool:
    """Whether some variable in ``node`` passes ``test``."""
    visitor = _Uses(test)
    visitor.visit(node)
    return visitor.hit
