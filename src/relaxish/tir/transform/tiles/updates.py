"""Statements inside of parallel loops, and updates ``out = f(out, x)``: what CPUs and GPUs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.functor import Mutator
from ....ir.expr import PrimExpr
from ....ir.prim import Cast
from ....ir.structural import same_expression
from ...expr import BufferLoad
from ...stmt import BlockRealize, BufferStore, For, IfThenElse, SeqStmt, Stmt
from ..base import call
from .names import ATOMIC, FRAGMENT, VAR
from .product import uncast
from .program import Nest, TileLoweringError, nest_of, opened

__all__ = ["AtomicUpdates", "InParallel", "address_of", "element_of", "joined"]

_PRIVATE = ("local", VAR, FRAGMENT)


def joined(store: BufferStore, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """An update's operation on other operands."""
    value: Any = store.value
    # max, min, + and the bitwise calls all have two operands, the first of which is the result so far.
    made: PrimExpr = value.with_fields(args=(left, right)) if hasattr(value, "args") else type(value)(left, right)
    return made


def element_of(store: BufferStore) -> PrimExpr:
    """What a reduction takes into its result."""
    value: Any = store.value
    made: PrimExpr = value.args[1] if hasattr(value, "args") else value.b
    return made


def address_of(store: BufferStore) -> PrimExpr:
    """Where a store goes."""
    made: PrimExpr = call("handle", "address_of", BufferLoad(store.buffer, store.indices))
    return made


class InParallel(Mutator):
    """Statements inside of a parallel loop: operators do not stand there, atomic updates and loops do.

    ``update`` makes an atomic update of (kind, body), ``loops`` the loops of a parallel loop inside.
    """

    def __init__(self, update: Callable[[str, Stmt], Stmt], loops: Callable[[Nest], Stmt]) -> None:
        super().__init__()
        self.update = update
        self.loops = loops

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_For(self, node: For) -> Stmt:
        found = nest_of(node)
        if found is None:
            plain = {k: v for k, v in node.annotations.items() if not k.startswith("tile.")}
            return self.default_visit(node).with_fields(annotations=plain)
        if found.op != "parallel":
            raise TileLoweringError(
                f"T.{found.op} stands inside of T.Parallel: the whole block runs it, not one iteration"
            )
        return self.loops(found)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        body, _ = opened(node)
        return self.update(str(node.block.annotations[ATOMIC]), body)


class AtomicUpdates(Mutator):
    """Stores that update an element as one instruction, which :meth:`instruction` gives."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def instruction(self, store: BufferStore, operand: PrimExpr) -> Stmt:
        """The update of an element with a value of its type. Raises TileLoweringError where there is none."""
        raise NotImplementedError

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        """The value before goes to a variable first: the instruction gives it."""
        first = node.seq[0]
        if len(node.seq) == 2 and isinstance(first, BufferStore) and first.buffer.scope() in ("local", VAR):
            update: Any = self.visit(node.seq[1])
            guarded = update
            while isinstance(guarded, IfThenElse):
                guarded = guarded.then_case
            stored = first.with_fields(value=guarded.value)
            return stored if guarded is update else IfThenElse(update.condition, stored)
        return self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node.buffer.scope() in _PRIVATE:
            return node
        operand = uncast(node.value)
        if self.how != "exch":
            parts = operand.args if hasattr(operand, "args") else (operand.a, operand.b)
            operand = next((p for p in parts if not _is_element(p, node)), parts[1])
        dtype = node.buffer.dtype
        return self.instruction(node, operand if operand.dtype == dtype else Cast(dtype, operand))


def _is_element(e: PrimExpr, store: BufferStore) -> bool:
    e = uncast(e)
    return (
        isinstance(e, BufferLoad)
        and e.buffer is store.buffer
        and all(same_expression(a, b) for a, b in zip(e.indices, store.indices, strict=True))
    )
