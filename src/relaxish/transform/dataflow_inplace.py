"""DataflowUseInplaceCalls: elementwise operators write over inputs that nothing needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..relax.call_forms import call_tir_inplace
from ..relax.expr import BindingBlock, Call, DataflowBlock, Tuple, Var, VarBinding
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.op_table import op_record_of
from ..support.errors import InternalError
from ..tir import PrimFunc
from ..tir.functor import renew_defs, substitute_buffers
from .inplace_analysis import find_inplace_opportunities
from .legalize_ops.lower import legalization_key
from ..ir.declared_pass import ModuleRewrite

__all__ = ["DataflowUseInplaceCalls", "InplaceRewriter"]


def _in_place(func: PrimFunc, indices: Sequence[int]) -> PrimFunc:
    """The function that writes its last outputs over the parameters ``indices``; integers may follow the outputs."""
    func = renew_defs(func)
    buffers_end = sum(p in func.buffer_map for p in func.params)
    outputs = func.params[buffers_end - len(indices) : buffers_end]
    kept = [p for p in func.params if p not in outputs]
    targets = [(func.buffer_map[o], func.buffer_map[kept[i]]) for o, i in zip(outputs, indices)]
    body = substitute_buffers(func.body, {old.data: new.data for old, new in targets}, dict(targets))
    buffers = {p: b for p, b in func.buffer_map.items() if p not in outputs}
    made: PrimFunc = renew_defs(PrimFunc(kept, body, func.ret_type, buffers, func.attrs))
    return made


class InplaceRewriter(PyExprMutator):
    """Replaces the calls found by calls in place; :meth:`inplace_call` makes one of them."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.places: dict[Var, int] = {}
        self.replaced: set[GlobalVar] = set()
        self.made: dict[Any, Call] = {}

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        saved = self.places
        _, found = find_inplace_opportunities(block, (), self.builder_)
        self.places = {block.bindings[index].var: args[0] for index, args in found}
        new = super().visit_dataflow_block_(block)
        self.places = saved
        return new

    def visit_var_binding_(self, binding: VarBinding) -> None:
        index = self.places.get(binding.var)
        if index is None:
            super().visit_var_binding_(binding)
        else:
            self.reemit_binding(
                binding, self.builder_.normalize(self.inplace_call(self.visit_expr(binding.value), [index]))
            )

    def inplace_call(self, call: Call, indices: Sequence[int]) -> Call:
        """The operator's legalisation with its outputs written over the arguments ``indices``."""
        key = legalization_key(call)
        known = self.made.get((key, tuple(indices))) if key is not None else None
        if known is not None:
            args = (known.args[0], Tuple(call.args), *known.args[2:])
            return Call(known.op, args, known.attrs, known.sinfo_args, call.span)
        record = op_record_of(call.op)
        if record is None or record.legalize is None:
            raise InternalError(f"{call.op} cannot work in place: it has no legalization")
        lowered: Any = self.builder_.normalize(record.legalize(self.builder_, call))
        name = lowered.args[0]
        made = self.builder_.add_func(_in_place(self.builder_.get()[name], indices), f"{name.name_hint}_inplace")
        self.replaced.add(name)
        fields = lowered.args[1].fields
        integers = lowered.args[2] if len(lowered.args) > 2 else None
        new = call_tir_inplace(made, Tuple(fields), list(indices), lowered.sinfo_args[0], integers)
        if key is not None and len(fields) == len(call.args) and all(a is b for a, b in zip(fields, call.args)):
            self.made[key, tuple(indices)] = new
        return new


class DataflowUseInplaceCalls(ModuleRewrite, name="DataflowInsertInPlaceCalls"):
    """Elementwise operators on values of the same block that are used for the last time work in place.

    ::

        z = R.add(x, y)              z = R.add(x, y)
        p = R.add(z, y)       ->     p = R.call_tir_inplace(cls.add_inplace, (z, y), [0], ...)
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        rewrite = InplaceRewriter(mod)
        before = {v.name_hint for v in mod.functions}
        rewrite_functions(rewrite, mod)
        for name in rewrite.replaced:
            if name.name_hint not in before:
                rewrite.builder_.remove_func(name)
        return rewrite.builder_.get()
