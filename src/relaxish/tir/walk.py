"""Walking the statements and expressions of a program in evaluation order.

Only statements and expressions count as nodes here: buffers, ranges and iteration variables are seen through their
expressions, and variables where they are used, not where they are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from ..ir.expr import PrimExpr
from ..ir.functor import post_order_visit as visit_all_nodes
from ..ir.functor import pre_order_visit as visit_all_nodes_first
from ..ir.node import Node

if TYPE_CHECKING:
    from .stmt import Stmt

__all__ = ["operands", "post_order_visit", "pre_order_visit"]

# The fields of a node that hold what it evaluates, in order; nodes that are not listed use all their child fields.
_ORDER: dict[str, tuple[str, ...]] = {
    "Var": (), "SizeVar": (), "IntImm": (), "FloatImm": (), "StringImm": (),
    "Let": ("value", "body"), "BufferLoad": ("indices",), "ProducerLoad": ("indices",), "Call": ("args",),
    "Ramp": ("base", "stride"), "Broadcast": ("value",), "Shuffle": ("indices", "vectors"),
    "Reduce": ("axis", "source", "init", "condition"),
    "LetStmt": ("value", "body"), "AttrStmt": ("value", "body"), "For": ("min", "extent", "body"),
    "Allocate": ("extents", "body", "condition"), "AllocateConst": ("extents", "body"), "DeclBuffer": ("body",),
    "BufferStore": ("value", "indices"), "BufferRealize": ("bounds", "condition", "body"),
    "ProducerStore": ("value", "indices"), "ProducerRealize": ("bounds", "body", "condition"), "Prefetch": ("bounds",),
    "Block": ("iter_vars", "reads", "writes", "match_buffers", "init", "body"),
    "IterVar": ("dom",), "BufferRegion": ("region",), "MatchBufferRegion": ("source",),
}  # fmt: skip


def operands(node: Node) -> Iterator[PrimExpr | Stmt]:
    """The statements and expressions directly below a node, in evaluation order."""
    names = _ORDER.get(type(node).__name__)
    for name in node._child_fields if names is None else names:
        value = getattr(node, name)
        for item in value if isinstance(value, tuple) else (value,):
            if _counts(item):
                yield item
            elif type(item).__name__ in ("Range", "IterVar", "BufferRegion", "MatchBufferRegion"):
                yield from operands(item)


def _counts(value: object) -> TypeGuard[PrimExpr | Stmt]:
    from .stmt import Stmt

    return isinstance(value, (PrimExpr, Stmt))


def post_order_visit(stmt: Node | Sequence[Node], fvisit: Callable[[Any], Any]) -> None:
    """Call ``fvisit`` once on every distinct statement and expression of a program, operands first.

    >>> from relaxish import tir
    >>> x, seen = tir.Var("x"), []
    >>> post_order_visit(tir.Evaluate(x + 1), lambda n: seen.append(type(n).__name__))
    >>> seen
    ['Var', 'IntImm', 'Add', 'Evaluate']
    """
    if not _counts(stmt):
        visit_all_nodes(stmt, fvisit)
        return
    done: set[int] = set()
    stack: list[tuple[PrimExpr | Stmt, bool]] = [(stmt, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            fvisit(node)
        elif id(node) not in done:
            done.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child in reversed(list(operands(node)))]


def pre_order_visit(stmt: Node | Sequence[Node], fvisit: Callable[[Any], bool]) -> None:
    """Call ``fvisit`` on every distinct statement and expression, before its operands; a false answer skips those."""
    if not _counts(stmt):
        visit_all_nodes_first(stmt, fvisit)
        return
    done: set[int] = set()
    stack: list[PrimExpr | Stmt] = [stmt]
    while stack:
        node = stack.pop()
        if id(node) not in done:
            done.add(id(node))
            if fvisit(node):
                stack += reversed(list(operands(node)))
