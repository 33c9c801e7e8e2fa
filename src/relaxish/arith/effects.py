"""Whether an expression can be moved, dropped or repeated."""

from __future__ import annotations


from ..ir.expr import PrimExpr
from ..ir.functor import Visitor
from ..ir.node import Node
from ..ir.prim import Call, CallEffectKind

__all__ = ["CallEffectKind", "call_effect", "is_pure", "side_effect"]

_READS = frozenset(("BufferLoad", "ProducerLoad", "Load"))


class _Effects(Visitor):
    def __init__(self) -> None:
        self.kind = CallEffectKind.Pure

    def default_visit(self, node: Node) -> None:
        if type(node).__name__ in _READS:
            self.kind = max(self.kind, CallEffectKind.ReadState)
        super().default_visit(node)

    def visit_Call(self, node: Call) -> None:
        # Nothing is stronger than a change of state: arguments of special calls and jumps count as one.
        self.kind = max(self.kind, min(call_effect(node), CallEffectKind.UpdateState))
        for arg in node.args:
            self.visit(arg)


def call_effect(call: Call) -> CallEffectKind:
    """The effect of a call, its arguments apart."""
    op = call.op
    getter = getattr(op, "get_attr", None)
    if getter is None or not hasattr(op, "name"):
        return CallEffectKind.Opaque
    declared = getter("TCallEffectKind")
    if declared is not None:
        return CallEffectKind(int(declared))
    return CallEffectKind.Pure if op.name.startswith("tir.") else CallEffectKind.Opaque


def side_effect(expr: PrimExpr) -> CallEffectKind:
    """The strongest effect anywhere in ``expr``."""
    walker = _Effects()
    walker.visit(expr)
    return walker.kind


def is_pure(expr: PrimExpr) -> bool:
    """No effects and no reads of memory."""
    return side_effect(expr) <= CallEffectKind.Pure
