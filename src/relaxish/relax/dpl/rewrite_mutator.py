"""Applying a rewriter to the sequences of a program, round after round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ..analysis.cleanup import remove_all_unused_in
from ..analysis.variables import direct_uses, free_vars, is_impure_call
from ..canonicalize import canonicalize_bindings, canonicalize_symbols
from ..common_subexpr import eliminate_common_subexpr
from ..expr import BindingBlock, Call, Expr, If, MatchCast, SeqExpr, Var, VarBinding
from ..expr_functor import PyExprMutator
from .rewriter import PatternMatchingRewriter

__all__ = ["RewriteMutator", "direct_uses_deep"]


def direct_uses_deep(value: Expr) -> list[Var]:
    """Variables used by a value that need not be in A-normal form."""
    return direct_uses(value) if isinstance(value, Var) else list(free_vars(value))


class RewriteMutator(PyExprMutator):
    """Applies a rewriter to every sequence of bindings until nothing changes; collects the functions it needs."""

    def __init__(self, rewriter: PatternMatchingRewriter, mod: IRModule | None = None) -> None:
        super().__init__(mod)
        self.rewriter = rewriter
        self.subroutines: dict[GlobalVar, BaseFunc] = {}

    def visit_seq_expr_(self, op: SeqExpr) -> SeqExpr:
        current: SeqExpr = super().visit_seq_expr_(op)
        while True:
            rewritten = self._round(current)
            if rewritten is None:
                return current
            following = self.builder_.normalize(rewritten)
            if structural_equal(current, following):
                return current
            following = _simplified(following)
            if structural_equal(current, following):
                return current
            current = following

    def _round(self, seq: SeqExpr) -> SeqExpr | None:
        """One round over all blocks, or None if nothing is rewritten."""
        blocks = list(seq.blocks)
        output: Var | None = None
        if not isinstance(seq.body, Var):
            # The result counts as the last binding of the last block.
            output = Var("dummy_output_var", seq.body.struct_info)
            last = blocks.pop() if blocks else BindingBlock([])
            blocks.append(type(last)((*last.bindings, VarBinding(output, seq.body)), last.span))
        made = [self._block(block) for block in blocks]
        if all(a is b for a, b in zip(made, blocks)):
            return None
        if output is None:
            return SeqExpr(made, seq.body, seq.span)
        last = made.pop()
        (binding,) = [b for b in last.bindings if b.var is output]
        made.append(type(last)([b for b in last.bindings if b is not binding], last.span))
        return SeqExpr(made, binding.value, seq.span)

    def _block(self, block: BindingBlock) -> BindingBlock:
        if block.is_dataflow:
            new = self._rewrite(block.bindings)
        else:
            # Nothing may move across effects and branches: between them, bindings are free as in a dataflow block.
            new = []
            segment: list[Any] = []
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, If) or (isinstance(value, Call) and is_impure_call(value)):
                    new.extend(self._rewrite(segment))
                    new.append(binding)
                    segment = []
                else:
                    segment.append(binding)
            new.extend(self._rewrite(segment))
        if len(new) == len(block.bindings) and all(a is b for a, b in zip(new, block.bindings)):
            return block
        return type(block)(new, block.span)

    def _rewrite(self, bindings: Sequence[Any]) -> list[Any]:
        spec = self.rewriter.rewrite_bindings(bindings)
        if not spec.values:
            return list(bindings)
        self.subroutines.update(spec.subroutines)
        return _sorted(bindings, spec.values)


def _sorted(bindings: Sequence[Any], rewrites: Mapping[Var, Any]) -> list[Any]:
    """The bindings with new values, each after all bindings that it uses. Raises ValueError if that cannot be."""
    out: list[Any] = []
    waiting: list[Any] = []
    own = {b.var for b in bindings}
    done: set[Var] = set()

    def ready(value: Expr) -> bool:
        return all(v in done or v not in own for v in direct_uses_deep(value))

    for binding in bindings:
        if binding.var in rewrites:
            new = rewrites[binding.var]
            if isinstance(binding, MatchCast):
                binding = MatchCast(binding.var, new, binding.struct_info, binding.span)
            else:
                binding = VarBinding(binding.var, new)
        waiting.append(binding)
        item = next((b for b in waiting if ready(b.value)), None)
        while item is not None:
            waiting.remove(item)
            out.append(item)
            done.add(item.var)
            item = next((b for b in waiting if ready(b.value)), None)
    if waiting:
        raise ValueError("Bindings contain circular dependency")
    return out


def _simplified(seq: SeqExpr) -> SeqExpr:
    while True:
        before = seq
        seq = canonicalize_bindings(canonicalize_symbols(seq))
        seq = eliminate_common_subexpr(seq)
        seq = remove_all_unused_in(seq)
        if seq is before or structural_equal(before, seq):
            return seq
