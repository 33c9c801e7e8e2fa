"""Rewriting with patterns: ``rewrite_call`` for single expressions, ``rewrite_bindings`` for whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.structural import structural_equal
from ..analysis.cleanup import remove_all_unused
from ..expr import DataflowBlock, Expr, Function, Var, VarBinding
from ..expr_functor import PyExprMutator
from .context import PatternContext
from .graph_match import match_graph
from .pattern import DFPattern
from .rewrite_mutator import direct_uses_deep
from .rewriter import PatternMatchingRewriter

__all__ = ["rewrite_bindings", "rewrite_call"]

_MAX_ROUNDS = 10_000


def rewrite_call(
    pattern: DFPattern, rewriter: Callable[[Expr, dict[DFPattern, Expr]], Expr | None], func: Function
) -> Function:
    """Replace every expression that matches by what ``rewriter(expr, matchings)`` returns.

    ::

        x = wildcard()
        rewrite_call(is_op("relax.add")(x, x), lambda expr, m: R.multiply(m[x], R.const(2, "float32")), func)

    Returning ``expr`` itself (or None) leaves it.  Rewriting goes on until nothing changes.
    """
    made: Function = PatternMatchingRewriter.from_pattern(pattern, rewriter)(func)
    return made


class _BlockRewriter(PyExprMutator):
    """Rewrites matches of a context in dataflow blocks until there are none."""

    def __init__(
        self, context: PatternContext, rewriter: Callable[[dict[DFPattern, Var], dict[Var, Any]], Any]
    ) -> None:
        super().__init__()
        self.context = context
        self.rewriter = rewriter

    def visit_dataflow_block_(self, block: DataflowBlock) -> DataflowBlock:
        block = super().visit_dataflow_block_(block)
        for _ in range(_MAX_ROUNDS):
            var2val = {b.var: b.value for b in block.bindings}
            matched = match_graph(self.context, block, var2val)
            if matched is None:
                return block
            replaced: Mapping[Var, Any] = self.rewriter(matched, var2val)
            new = self._replaced(block, replaced)
            if structural_equal(new, block, map_free_vars=True):
                return block
            block = new
        raise RuntimeError(f"rewrite_bindings does not come to an end after {_MAX_ROUNDS} rounds")

    def _replaced(self, block: DataflowBlock, replaced: Mapping[Var, Any]) -> DataflowBlock:
        self.builder_.begin_dataflow_block()
        pending = {b.var: b for b in block.bindings}
        for binding in block.bindings:
            if binding.var in pending:
                self._place(binding, pending, replaced)
        made: DataflowBlock = self.builder_.end_block()  # type: ignore[assignment]
        return made

    def _place(self, first: Any, pending: dict[Var, Any], replaced: Mapping[Var, Any]) -> None:
        """Emit a binding after those of the block that its (new) value needs."""
        stack = [(first, False)]
        while stack:
            binding, ready = stack.pop()
            if binding.var not in pending:
                continue
            value = replaced.get(binding.var, binding.value)
            needed = [v for v in direct_uses_deep(value) if v in pending and v is not binding.var]
            if needed and not ready:
                stack.append((binding, True))
                stack.extend((pending[v], False) for v in reversed(needed))
                continue
            del pending[binding.var]
            if binding.var in replaced:
                # Unvisited, parts that several new values share stay one object and are computed once.
                new = self.visit_expr(value) if self.var_remap_ else self.builder_.normalize(value)
                self.reemit_binding(VarBinding(binding.var, binding.value, binding.span), new)
            else:
                self.visit_binding(binding)


def rewrite_bindings(
    ctx: PatternContext,
    rewriter: Callable[[dict[DFPattern, Var], dict[Var, Expr]], Mapping[Var, Expr]],
    func: Function,
) -> Function:
    """Replace bindings of dataflow blocks in which the patterns of ``ctx`` match.

    ``rewriter(matchings, bindings)`` gets the variable of every pattern and the value of every variable, and returns
    new values for some variables.  Rewriting goes on until nothing matches or changes.
    """
    new: Function = _BlockRewriter(ctx, rewriter).visit_expr(func)
    made: Function = remove_all_unused(new)
    return made
