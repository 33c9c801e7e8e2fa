"""Tensors that an expression loads, and operations in order of dependence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.functor import Visitor
from ..tir.expr import ProducerLoad
from .operation import Operation
from .tensor import Tensor

__all__ = ["loaded_tensors", "post_order"]


class _Loads(Visitor):
    def __init__(self) -> None:
        self.found: dict[Tensor, None] = {}

    def visit_ProducerLoad(self, load: ProducerLoad) -> None:
        if isinstance(load.producer, Tensor):
            self.found.setdefault(load.producer, None)
        for index in load.indices:
            self.visit(index)


def loaded_tensors(exprs: Sequence[Any]) -> list[Tensor]:
    """Tensors loaded by ``exprs``, in order of first use."""
    visitor = _Loads()
    for expr in exprs:
        visitor.visit(expr)
    return list(visitor.found)


def post_order(outputs: Iterable[Operation]) -> list[Operation]:
    """All operations ``outputs`` depend on, producers first (a loop, so graphs may be deep)."""
    done: dict[Operation, None] = {}
    entered: set[int] = set()
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(list(outputs))]
    while stack:
        op, ready = stack.pop()
        if ready:
            done.setdefault(op, None)
            continue
        if id(op) in entered:
            continue
        entered.add(id(op))
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(op.input_tensors))
    return list(done)
