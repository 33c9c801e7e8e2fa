"""ToNonDataflow: dataflow blocks become ordinary ones."""

from __future__ import annotations


from ..ir.module import IRModule
from ..relax.expr import BindingBlock, DataflowBlock, DataflowVar, Function, Var
from ..relax.expr_functor import PyExprMutator
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["ToNonDataflow", "to_non_dataflow"]


class _Plain(PyExprMutator):
    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.builder_.begin_binding_block()
        for binding in block.bindings:
            self.visit_binding(binding)
        return self.builder_.end_block()

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Var:
        made = self.var_remap_.get(var)
        if made is None:
            made = self.var_remap_[var] = Var(var.name_hint, var.struct_info_, var.span)
        return made


def to_non_dataflow(func: Function) -> Function:
    """The function with ordinary blocks and variables only."""
    made: Function = _Plain().visit_expr(func)
    return made


class ToNonDataflow(ModuleRewrite):
    """Turn every dataflow block into an ordinary block and its variables into ordinary ones."""

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: to_non_dataflow(func))
