"""ConvertToDataflow: runs of pure bindings become dataflow blocks."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.analysis.variables import contains_impure_call, direct_uses
from ..relax.expr import BindingBlock, DataflowBlock, DataflowVar, Function, If, MatchCast, SeqExpr, VarBinding
from ..relax.expr_functor import PyExprMutator
from .base import as_module_pass, map_relax_functions

__all__ = ["ConvertToDataflow"]


def _is_pure(binding: Any) -> bool:
    if isinstance(binding, MatchCast):
        return True
    return not isinstance(binding.value, (If, Function)) and not contains_impure_call(binding.value)


class _Converter(PyExprMutator):
    def __init__(self, min_size: int) -> None:
        super().__init__()
        self.min_size = min_size

    def visit_seq_expr_(self, op: SeqExpr) -> Any:
        blocks: list[Any] = []
        for block in op.blocks:
            blocks.extend([block] if isinstance(block, DataflowBlock) else self._split(block))
        if len(blocks) != len(op.blocks) or any(a is not b for a, b in zip(blocks, op.blocks)):
            merged = _merge(blocks)
            op = SeqExpr(self._rename(merged, op.body), op.body, op.span)
        return super().visit_seq_expr_(op)

    def _split(self, block: BindingBlock) -> list[Any]:
        """The block as runs of pure and of other bindings; short pure runs stay ordinary."""
        out: list[Any] = []
        run: list[Any] = []
        plain: list[Any] = []

        def flush() -> None:
            nonlocal run, plain
            if sum(isinstance(b.value, object) for b in run) >= self.min_size:
                if plain:
                    out.append(BindingBlock(plain))
                    plain = []
                out.append(DataflowBlock(run))
            else:
                plain.extend(run)
            run = []

        for binding in block.bindings:
            if _is_pure(binding):
                run.append(binding)
            else:
                flush()
                plain.append(binding)
        flush()
        if plain:
            out.append(BindingBlock(plain))
        if len(out) == 1 and not isinstance(out[0], DataflowBlock):
            return [block]
        return out

    def _rename(self, blocks: list[Any], result: Any) -> list[Any]:
        """Variables used only inside their new dataflow block become dataflow variables."""
        home = {b.var: i for i, block in enumerate(blocks) for b in block.bindings}
        outside = set(direct_uses(result))
        for number, block in enumerate(blocks):
            for binding in block.bindings:
                outside.update(v for v in direct_uses(binding.value) if home.get(v) != number)
        renamed = []
        for block in blocks:
            if not isinstance(block, DataflowBlock):
                renamed.append(block)
                continue
            bindings: list[Any] = []
            members: tuple[Any, ...] = block.bindings
            for item in members:
                var = item.var
                if var in outside or isinstance(var, DataflowVar):
                    bindings.append(item)
                    continue
                new = self.var_remap_[var] = DataflowVar(var.name_hint, var.struct_info_, var.span)
                if isinstance(item, MatchCast):
                    bindings.append(MatchCast(new, item.value, item.struct_info, item.span))
                else:
                    bindings.append(VarBinding(new, item.value, item.span))
            renamed.append(DataflowBlock(bindings, block.span))
        return renamed


def _merge(blocks: list[Any]) -> list[Any]:
    out: list[Any] = []
    for block in blocks:
        if out and type(out[-1]) is type(block):
            out[-1] = type(block)((*out[-1].bindings, *block.bindings))
        else:
            out.append(block)
    return out


def ConvertToDataflow(min_size: int = 2) -> Pass:  # noqa: N802  (public name of the pass)
    """Put runs of at least ``min_size`` pure bindings into dataflow blocks, so that dataflow passes see them."""

    def run(mod: IRModule) -> IRModule:
        def convert(_: Any, func: Function) -> Function:
            made: Function = _Converter(min_size).visit_expr(func)
            return made

        return map_relax_functions(mod, convert)

    return as_module_pass(run, "ConvertToDataflow")
