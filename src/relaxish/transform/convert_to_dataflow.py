"""ConvertToDataflow: runs of pure bindings become dataflow blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.analysis.variables import is_impure_call
from ..relax.expr import Binding, BindingBlock, Call, DataflowBlock, If, SeqExpr
from ..relax.expr_functor import PyExprMutator
from .base import as_module_pass, map_relax_functions
from .canonicalize_bindings import CanonicalizeBindings
from ..ir.declared_pass import StepsPass

__all__ = ["ConvertToDataflow"]


def _is_pure(binding: Binding) -> bool:
    value = binding.value
    return not isinstance(value, If) and not (isinstance(value, Call) and is_impure_call(value))


class _Converter(PyExprMutator):
    def __init__(self, min_size: int) -> None:
        super().__init__()
        self.min_size = min_size

    def visit_seq_expr_(self, op: SeqExpr) -> SeqExpr:
        new = super().visit_seq_expr_(op)
        blocks = self._regrouped(new.blocks)
        kinds = [(type(b), len(b.bindings)) for b in blocks]
        if kinds == [(type(b), len(b.bindings)) for b in new.blocks]:
            return new
        return SeqExpr(blocks, new.body, new.span)

    def _regrouped(self, blocks: Sequence[BindingBlock]) -> list[BindingBlock]:
        """The bindings of the blocks as runs of pure ones and of others; short pure runs stay as they are."""
        out: list[BindingBlock] = []
        run: list[Any] = []
        plain: list[Any] = []
        given = {id(b) for block in blocks if isinstance(block, DataflowBlock) for b in block.bindings}

        def end_run() -> None:
            if len(run) < self.min_size and not any(id(b) in given for b in run):
                plain.extend(run)
            elif run:
                if plain:
                    out.append(BindingBlock(plain))
                    plain.clear()
                out.append(DataflowBlock(run))
            run.clear()

        for block in blocks:
            for binding in block.bindings:
                if block.is_dataflow or _is_pure(binding):
                    run.append(binding)
                else:
                    end_run()
                    plain.append(binding)
        end_run()
        if plain:
            out.append(BindingBlock(plain))
        return out


class ConvertToDataflow(StepsPass):
    """Put runs of at least ``min_size`` pure bindings into dataflow blocks, so that dataflow passes see them.

    ::

        lv = R.add(x, y)            with R.dataflow():
        gv = R.multiply(lv, y)          lv = R.add(x, y)
        R.print(gv)            ->       gv = R.multiply(lv, y)
                                        R.output(gv)
                                    R.print(gv)

    Dataflow blocks already there stay, however short, and grow by the pure bindings around them.  CanonicalizeBindings follows, which makes
    dataflow variables of those that no other block uses.
    """

    min_size: int = 2

    def steps(self) -> list[Pass]:
        def run(mod: IRModule) -> IRModule:
            return map_relax_functions(mod, lambda _, func: _Converter(self.min_size).visit_expr(func))

        return [as_module_pass(run, "ConvertToDataflow"), CanonicalizeBindings()]
