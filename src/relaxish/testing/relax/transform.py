"""What the in-place analysis sees: live ranges in a dataflow block, and calls made in place."""

from __future__ import annotations

from collections.abc import Sequence

from ...relax.analysis.variables import direct_uses
from ...relax.expr import DataflowBlock, DataflowVar, Var
from ...transform.dataflow_inplace import inplace_opportunities

__all__ = ["dataflow_inplace_analysis", "dataflow_liveness_analysis"]


def dataflow_liveness_analysis(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """From each variable to the bindings between which its value is needed.

    Values from outside start at -1; those that leave the block end after its last binding.
    """
    start = {b.var: i for i, b in enumerate(block.bindings)}
    end: dict[Var, int] = {}
    for index, binding in enumerate(block.bindings):
        for used in direct_uses(binding.value):
            end[used] = index
    ranges = {}
    for var in dict.fromkeys([*start, *end]):
        leaves = var in start and not isinstance(var, DataflowVar)
        ranges[var] = (start.get(var, -1), len(block.bindings) if leaves else end.get(var, start.get(var, -1)))
    return ranges


def dataflow_inplace_analysis(block: DataflowBlock) -> Sequence[tuple[int, int]]:
    """Bindings that may work in place, each with the argument it may write over."""
    found = inplace_opportunities(block)
    return [(i, found[b.var]) for i, b in enumerate(block.bindings) if b.var in found]
