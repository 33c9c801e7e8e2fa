"""NormsTakeEpilogues: what follows a normalisation element by element becomes part of its kernel."""

from __future__ import annotations

from typing import Any

from ....ir.declared_pass import ModuleRewrite
from ....ir.expr import GlobalVar, RelaxExpr
from ....ir.module import IRModule, functions_of
from ....relax.expr import Call, Function, ShapeExpr, is_call_of
from ....relax.expr_functor import PyExprMutator
from ....relax.op_table import op_record_of
from ....relax.struct_info import TensorStructInfo
from ....tir import PrimFunc

__all__ = ["NormsTakeEpilogues"]

_NORMS = ("relax.nn.group_norm", "relax.nn.instance_norm")
# The pattern of operators whose results elementwise operators may be fused to.
_OUT_ELEMWISE_FUSABLE = 4


class _NormEpilogueRewriter(PyExprMutator):
    def visit_call_(self, op: Call) -> RelaxExpr:
        call: Any = super().visit_call_(op)
        if not is_call_of(call, *_NORMS):
            return call
        call = self.builder_.normalize(call)
        record = op_record_of(call.op)
        infos = [a.struct_info_ for a in (*call.args, call)]
        shaped = all(isinstance(i, TensorStructInfo) and isinstance(i.shape, ShapeExpr) for i in infos)
        if record is None or record.legalize is None or not shaped:
            return call
        made = record.legalize(self.builder_, call)
        loops = made.args[0] if isinstance(made, Call) and made.args else None
        if isinstance(loops, GlobalVar):
            func = self.builder_.get().functions[loops]
            if isinstance(func, PrimFunc):
                self.builder_.update_func(loops, func.with_attr("op_pattern", _OUT_ELEMWISE_FUSABLE))
        return made


class NormsTakeEpilogues(ModuleRewrite):
    """Legalise group norms and instance norms as operators that elementwise ones are fused to.

    Before and after fusion (a block of a diffusion model)::

        y = R.nn.group_norm(x, g, b, ...)          y = R.call_tir(cls.fused_group_norm_silu, (x, g, b), ...)
        z = R.nn.silu(y)

    Their loops are several blocks, which pattern detection calls opaque. One kernel reads and writes the image once
    where two do it twice.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        rewrite = _NormEpilogueRewriter(mod)
        for var, func in functions_of(mod, Function):
            made = rewrite.visit_expr(func)
            if made is not func:
                rewrite.builder_.update_func(var, made)
        return rewrite.builder_.get()
