"""NormWithCast: a normalisation that is also wanted in a narrow type writes both results in one kernel."""

from __future__ import annotations

from typing import Any

from .... import topi, te
from ....ir.declared_pass import ModuleRewrite
from ....ir.module import IRModule, functions_of
from ....relax.expr import Function, TupleGetItem, Var, VarBinding, is_call_of, Call
from ....relax.expr_functor import PyExprMutator
from ....ir.plain import plain_float, plain_int

__all__ = ["NormWithCast"]


class _NormCastRewriter(PyExprMutator):
    def __init__(self, mod: IRModule, func: Function) -> None:
        super().__init__(mod)
        bindings = [b for block in func.body.blocks for b in block.bindings]
        values = {b.var: b.value for b in bindings}
        self.casts: dict[Var, Var] = {}
        for binding in bindings:
            value: Any = binding.value
            if is_call_of(value, "relax.astype") and is_call_of(values.get(value.args[0]), "relax.nn.layer_norm"):
                self.casts.setdefault(value.args[0], binding.var)
        self.dtypes = {v: values[c].attrs.dtype for v, c in self.casts.items()}
        self.made: dict[Var, Any] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        cast, whole = self.casts.get(binding.var), self.made.get(binding.var)
        if cast is not None:
            both = self.builder_.emit(self._both(binding.value, self.dtypes[binding.var]))
            self.made[cast] = both
            self.reemit_binding(binding, self.builder_.normalize(TupleGetItem(both, 0)))
        elif whole is not None:
            self.reemit_binding(binding, self.builder_.normalize(TupleGetItem(whole, 1)))
        else:
            super().visit_var_binding_(binding)

    def _both(self, norm: Any, dtype: str) -> Call:
        args = [self.visit_expr(a) for a in norm.args]
        axes, epsilon = [plain_int(a) for a in norm.attrs.axes], norm.attrs.epsilon

        def compute(x: Any, gamma: Any, beta: Any) -> list[te.Tensor]:
            wide = topi.nn.layer_norm(x, gamma, beta, axes, plain_float(epsilon))
            return [wide, topi.cast(wide, dtype)]

        return self.builder_.call_te(compute, *args, primfunc_name_hint="layer_norm_cast")


class NormWithCast(ModuleRewrite):
    """Before and after::

        y = R.nn.layer_norm(x, g, b, axes=[-1])          both = R.call_tir(cls.layer_norm_cast, (x, g, b), ...)
        h = R.astype(y, "float16")                 ->    y, h = both[0], both[1]

    The residual stream of a mixed-precision transformer is float32, the next product wants float16.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        out = mod
        for var, func in functions_of(mod, Function):
            rewrite = _NormCastRewriter(out, func)
            if rewrite.casts:
                rewrite.builder_.update_func(var, rewrite.visit_expr(func))
                out = rewrite.builder_.get()
        return out
