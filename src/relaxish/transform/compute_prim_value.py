"""ComputePrimValue: scalar expressions used as values are computed by small host functions."""

from __future__ import annotations


from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.prim import Call as PrimCall
from ..ir.prim import FloatImm, IntImm
from ..ir.prim import Var as TirVar
from ..ir.types import PrimType
from ..relax.expr import Call, Expr, PrimValue
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.scalars import prim_vars
from ..tir import Evaluate, PrimFunc
from ..tir.functor import renew_defs
from ..ir.declared_pass import ModuleRewrite

__all__ = ["ComputePrimValue"]


class _Compute(PyExprMutator):
    def visit_prim_value_(self, op: PrimValue) -> Expr:
        value = op.value
        if isinstance(value, (IntImm, FloatImm, TirVar)):
            return op
        params = prim_vars(value)
        body = Evaluate(PrimCall(value.dtype, Op.get("tir.ret"), [value]))
        func = PrimFunc(params, body, PrimType(value.dtype), {}, {"tir.is_host_func": True})
        name = self.builder_.add_func(renew_defs(func), "compute_symbolic_expr")
        return Call(name, [PrimValue(p) for p in params])


class ComputePrimValue(ModuleRewrite):
    """``R.prim_value(n * 4)`` becomes a call of a host PrimFunc that computes it from ``n``."""

    def rewrite(self, mod: IRModule) -> IRModule:
        compute = _Compute(mod)
        return rewrite_functions(compute, mod)
