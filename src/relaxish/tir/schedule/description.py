"""Description of a tensor intrinsic, taken apart for comparison with a program's block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.op import op_name_of
from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ..expr import BufferLoad
from ..stmt import Block, BufferStore, For

if TYPE_CHECKING:
    from ..function import PrimFunc

__all__ = ["Description", "body_signature", "computes_the_same"]


class Description:
    """Loops and the one computing block of a description."""

    def __init__(self, func: PrimFunc) -> None:
        self.loops: list[For] = []
        root: Any = func.body
        node: Any = root.block.body
        while not hasattr(node, "iter_values"):
            if not isinstance(node, For):
                raise ValueError("the description of a tensor intrinsic is one loop nest around one block")
            self.loops.append(node)
            node = node.body
        self.realize = node


def body_signature(block: Block) -> list[Any]:
    """The operators and element types of a block's update, without its indices."""
    out: list[Any] = []

    class Walk(Visitor):
        def visit_BufferLoad(self, node: BufferLoad) -> None:
            out.append(("load", node.dtype))

        def visit_BufferStore(self, node: BufferStore) -> None:
            out.append(("store", node.buffer.dtype))
            self.visit(node.value)

        def visit_PrimExpr(self, node: PrimExpr) -> None:
            out.append((type(node).__name__, node.dtype, op_name_of(node)))
            self.default_visit(node)

    Walk().visit(block.body)
    return out


def computes_the_same(block: Block, desc_func: PrimFunc) -> bool:
    """Whether a block does the arithmetic that a description does, wherever it does it."""
    return body_signature(block) == body_signature(Description(desc_func).realize.block)
