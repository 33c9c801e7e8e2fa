"""Substituting loop variables below an edited loop, without touching blocks that do not mention them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, Rewritable, Visitor
from ...ir.prim import And, FloatImm, IntImm, IterVar, Let, Var
from ..buffer import Buffer
from ..op import logical_and
from ..stmt import Block, BlockRealize, For, LetStmt, MatchBufferRegion, Stmt

if TYPE_CHECKING:
    from .sref import StmtSRef

__all__ = [
    "LoopSubstituter",
    "and_predicate",
    "append_predicate",
    "chain_reuse",
    "conjuncts",
    "free_vars",
    "is_true",
    "substitute_loops",
]

_FREE: WeakKeyDictionary[Any, frozenset[Any]] = WeakKeyDictionary()


class _FreeVars(Visitor):
    def __init__(self) -> None:
        self.used: set[Any] = set()
        self.defined: set[Any] = set()

    def visit_Var(self, node: Var) -> None:
        self.used.add(node)

    def visit_IntImm(self, node: IntImm | FloatImm) -> None:
        pass

    visit_FloatImm = visit_IntImm

    def visit_Buffer(self, node: Buffer) -> None:
        pass

    def visit_IterVar(self, node: IterVar) -> None:
        self.defined.add(node.var)
        if node.dom is not None:
            self.visit(node.dom)

    def visit_MatchBufferRegion(self, node: MatchBufferRegion) -> None:
        self.defined.add(node.buffer.data)
        for part in (*node.buffer.strides, node.buffer.elem_offset):
            self.visit(part)
            self.defined |= self.used & {part}
        self.visit(node.source)

    def visit_For(self, node: For) -> None:
        self.defined.add(node.loop_var)
        self.default_visit(node)

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        self.defined.add(node.var)
        self.default_visit(node)

    visit_Let = visit_LetStmt

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        self.visit(node.iter_values)
        self.visit(node.predicate)
        self.used |= free_vars(node.block)


def free_vars(block: Block) -> frozenset[Any]:
    """The variables that a block uses but does not define; remembered per block object."""
    known = _FREE.get(block)
    if known is None:
        visitor = _FreeVars()
        visitor.default_visit(block)
        known = _FREE[block] = frozenset(visitor.used - visitor.defined)
    return known


_R = TypeVar("_R")


class LoopSubstituter(Mutator):
    """Replaces variables in loops, bindings and predicates; enters only blocks that mention them.

    ``reuse`` collects old to new for the blocks that changed.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = dict(values)
        self.keys = frozenset(values)
        self.reuse: dict[Any, Any] = {}

    def visit_Var(self, node: Var) -> PrimExpr:
        return self.values.get(node, node)

    def visit_IntImm(self, node: IntImm | FloatImm | Buffer) -> PrimExpr | Buffer:
        return node

    visit_FloatImm = visit_IntImm
    visit_Buffer = visit_IntImm

    def visit_Block(self, node: Block) -> Block:
        if self.keys.isdisjoint(free_vars(node)):
            return node
        made = self.default_visit(node)
        if made is not node:
            self.reuse[node] = made
        return made


def substitute_loops(stmt: Rewritable[_R], values: Mapping[Any, Any], reuse: dict[Any, Any] | None = None) -> _R:
    """``stmt`` with loop variables replaced; changed blocks are entered in ``reuse``."""
    worker = LoopSubstituter(values)
    made = worker.visit(stmt)
    if reuse is not None:
        chain_reuse(reuse, worker.reuse)
    return made


def chain_reuse(reuse: dict[Any, Any], more: dict[Any, Any]) -> None:
    """Compose ``reuse`` with a later step, so that it maps the very first blocks to the latest."""
    seen = set()
    for old, new in list(reuse.items()):
        if new in more:
            reuse[old] = more[new]
            seen.add(new)
    for old, new in more.items():
        if old not in seen:
            reuse[old] = new


def is_true(expr: PrimExpr) -> bool:
    """Whether ``expr`` is the constant true."""
    return isinstance(expr, IntImm) and expr.value != 0


def and_predicate(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """``a && b`` with constants folded."""
    if is_true(a):
        return b
    if is_true(b):
        return a
    return logical_and(a, b)


def conjuncts(predicate: PrimExpr) -> list[Any]:
    """The terms of a conjunction."""
    if isinstance(predicate, And):
        return [*conjuncts(predicate.a), *conjuncts(predicate.b)]
    return [predicate]


class _Append(Mutator):
    def __init__(self, condition: PrimExpr) -> None:
        self.condition = condition
        self.reuse: dict[Any, Any] = {}

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        return node.with_fields(predicate=and_predicate(node.predicate, self.condition))


def append_predicate(stmt: Stmt, condition: PrimExpr) -> Stmt:
    """Guard every nearest block in ``stmt`` with one more condition."""
    return _Append(condition).visit(stmt)


def realize_of(sref: StmtSRef) -> BlockRealize:
    """The realize statement around a block."""
    block = sref.stmt
    if sref.parent is None:
        raise AssertionError("a root block has its realize in the function, not in the tree")
    found = find_realize(sref.parent.stmt.body, block)
    if found is None:
        raise AssertionError("the block is not below its parent")
    return found


def find_realize(stmt: Stmt, block: Block) -> BlockRealize | None:
    """The realize of ``block`` among the nearest realizes in ``stmt``."""
    if isinstance(stmt, BlockRealize):
        return stmt if stmt.block is block else None
    seq = getattr(stmt, "seq", None)
    if seq is not None:
        for part in seq:
            if isinstance(part, BlockRealize) and part.block is block:
                return part
    from .walk import block_realizes_below

    for realize in block_realizes_below(stmt):
        if realize.block is block:
            return realize
    return None
