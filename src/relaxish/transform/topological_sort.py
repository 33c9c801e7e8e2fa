"""TopologicalSort: another order of the bindings in dataflow blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..ir.transform import Pass
from ..relax.analysis.variables import direct_uses
from ..relax.expr import DataflowBlock, Function, SeqExpr
from ..relax.expr_functor import PyExprMutator
from .base import as_module_pass, map_relax_functions

__all__ = ["TopologicalSort"]

_ORDERS = ("depth-first", "breadth-first")
_DIRECTIONS = ("from-inputs", "from-outputs")


def _walk(
    starts: list[Any], following: Callable[[Any], list[Any]], waits_for: Callable[[Any], list[Any]], depth: bool
) -> list[Any]:
    """All items reachable, each after everything it waits for."""
    done: dict[Any, None] = {}
    todo = deque(starts)
    while todo:
        item = todo.popleft()
        if item in done or any(w not in done for w in waits_for(item)):
            continue
        done[item] = None
        more = following(item)
        if depth:
            todo.extendleft(reversed(more))
        else:
            todo.extend(more)
    return list(done)


class _Sorter(PyExprMutator):
    def __init__(self, depth: bool, from_inputs: bool) -> None:
        super().__init__()
        self.depth = depth
        self.from_inputs = from_inputs

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        by_var = {b.var: b for b in block.bindings}
        needs = {v: list(dict.fromkeys(u for u in direct_uses(b.value) if u in by_var)) for v, b in by_var.items()}
        users: dict[Any, list[Any]] = {v: [] for v in by_var}
        for var, used in needs.items():
            for each in used:
                users[each].append(var)
        if self.from_inputs:
            starts = [v for v in by_var if not needs[v]]
            order = _walk(starts, users.__getitem__, needs.__getitem__, self.depth)
        else:
            ends = [v for v in reversed(by_var) if not users[v]]
            order = _walk(ends, lambda v: needs[v][::-1], users.__getitem__, self.depth)[::-1]
        if order == list(by_var):
            return block
        return DataflowBlock([by_var[v] for v in order], block.span)

    def visit_seq_expr_(self, op: SeqExpr) -> Any:
        blocks = [self.visit_binding_block(b) if isinstance(b, DataflowBlock) else b for b in op.blocks]
        if all(a is b for a, b in zip(blocks, op.blocks)):
            return op
        made = SeqExpr(blocks, op.body, op.span)
        made.struct_info_ = op.struct_info_
        return made


def TopologicalSort(order: str = "depth-first", direction: str = "from-inputs") -> Pass:  # noqa: N802  (public name)
    """Reorder bindings of dataflow blocks: ``depth-first`` or ``breadth-first``, ``from-inputs`` or ``from-outputs``.

    Depth first from the inputs follows each value to its users at once, breadth first computes all values of one
    distance first; from the outputs every value is computed as late as possible.

    Raises ValueError for another order or direction.
    """
    if order not in _ORDERS:
        raise ValueError(f"Invalid value for order, {order!r}: choose one of {_ORDERS}")
    if direction not in _DIRECTIONS:
        raise ValueError(f"Invalid value for direction, {direction!r}: choose one of {_DIRECTIONS}")

    def sort(_: Any, func: Function) -> Function:
        made: Function = _Sorter(order == "depth-first", direction == "from-inputs").visit_expr(func)
        return made

    return as_module_pass(lambda mod: map_relax_functions(mod, sort), "TopologicalSort")
