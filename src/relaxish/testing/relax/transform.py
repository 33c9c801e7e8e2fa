"""Facts of the in-place analysis: live ranges and aliases in a dataflow block, and calls made in place."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.module import IRModule
from ...ir.transform import Pass
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, DataflowBlock, Function, Var
from ...relax.expr_functor import PyExprMutator
from ...transform.base import as_module_pass, map_relax_functions
from ...transform.dataflow_inplace import InplaceRewriter
from ...transform.inplace_analysis import AliasAnalyzer, find_inplace_opportunities, live_ranges

__all__ = [
    "ApplyEmptyCppMutator",
    "dataflow_alias_analysis",
    "dataflow_inplace_analysis",
    "dataflow_liveness_analysis",
    "dataflow_single_inplace_call",
]

Opportunities = list[tuple[int, set[int]]]


def ApplyEmptyCppMutator() -> Pass:
    """A pass that rewrites every graph function with a mutator that changes nothing, for tests of mutators."""

    def rewrite(_: object, func: Function) -> Function:
        made: Function = PyExprMutator().visit_expr(func)
        return made

    return as_module_pass(lambda mod: map_relax_functions(mod, rewrite), "relax.testing.ApplyEmptyCppMutator")


def dataflow_liveness_analysis(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """From each variable to the bindings between which its value is needed; -1 and one past the end are outside."""
    return live_ranges(block)


def dataflow_alias_analysis(
    block: DataflowBlock, inputs: Sequence[Var]
) -> tuple[dict[Var, set[int]], dict[int, list[set[int]]]]:
    """The memory each variable may stand for, and for tuples in memory that of each field."""
    found = AliasAnalyzer().analyze(block, inputs)
    return found.sets, found.tuples


def dataflow_inplace_analysis(
    block: DataflowBlock, inputs: Sequence[Var], mod: IRModule
) -> tuple[Opportunities, Opportunities]:
    """Bindings with the arguments they may write over: those large enough, and those of the same shape."""
    sizes, exacts = find_inplace_opportunities(block, inputs, BlockBuilder(mod))
    return [(i, set(args)) for i, args in sizes], [(i, set(args)) for i, args in exacts]


def dataflow_single_inplace_call(mod: IRModule, call: Call, inplace_indices: Sequence[int]) -> tuple[Call, IRModule]:
    """The call made in place, and the module with the PrimFuncs that it needs."""
    rewriter = InplaceRewriter(mod)
    made = rewriter.inplace_call(call, inplace_indices)
    return made, rewriter.builder_.get()
