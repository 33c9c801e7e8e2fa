"""FuseTransposeMatmul: a product with transposed weights becomes one kernel that reads them as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import IRModule, functions_of
from ..op.linear_algebra import matmul
from ..relax.block_builder import BlockBuilder
from ..relax.dpl import is_op, wildcard
from ..relax.expr import Call, Expr, Function, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import TensorStructInfo
from ..te.tensor import Tensor
from .dead_code_elimination import eliminate
from .fuse_ops_by_pattern import FuseOpsByPattern, FusionPattern, PatternCheckContext
from ..ir.declared_pass import ModuleRewrite

__all__ = ["FuseTransposeMatmul"]

_NAME = "transpose_matmul_fuse"


def _pattern() -> FusionPattern:
    w, x = wildcard(), wildcard()
    turned = is_op("relax.permute_dims")(w)
    out = is_op("relax.matmul")(x, turned)

    def check(context: PatternCheckContext) -> bool:
        call: Any = context.annotated_expr["wT"]
        var = context.value_to_bound_var.get(call)
        if var is not None and (not var.is_dataflow or len(context.var_usages.get(var, ())) > 1):
            return False  # others need it as well
        ndim = call.args[0].struct_info.ndim
        if ndim < 2:
            return False
        axes = call.attrs.axes
        if axes is None:
            return bool(ndim == 2)
        return [int(a) % ndim for a in axes] == [*range(ndim - 2), ndim - 1, ndim - 2]

    return FusionPattern(_NAME, out, {"o": out, "w": w, "x": x, "wT": turned}, check)


def _compute(out_dtype: str) -> Callable[..., Any]:
    """The TE function of ``x @ transpose(w)``."""

    def transposed_matmul(a: Tensor, b: Tensor) -> Tensor:
        a_shape, b_shape = list(a.shape), list(b.shape)
        turned = [*b_shape[:-2], b_shape[-1], b_shape[-2]]
        lhs = Var("a", TensorStructInfo(a_shape, a.dtype))
        rhs = Var("b", TensorStructInfo(turned, b.dtype))
        shape = BlockBuilder().normalize(matmul(lhs, rhs)).struct_info.shape.values
        vector = len(a_shape) == 1

        def element(*out: Any) -> PrimExpr:
            k = te.reduce_axis((0, a_shape[-1]), name="k")
            batch = out[:-1] if vector else out[:-2]
            at_a = [*_batch(a_shape[:-2], batch, b_shape[:-2]), *(() if vector else (out[-2],)), k]
            at_b = [*_batch(b_shape[:-2], batch, a_shape[:-2]), out[-1], k]
            return te.sum(a(*at_a).astype(out_dtype) * b(*at_b).astype(out_dtype), axis=k)

        return te.compute(shape, element, name="NT_matmul")

    return transposed_matmul


def _batch(own: list[Any], out: Any, other: list[Any]) -> list[Any]:
    """Indices of leading dimensions; those of extent one broadcast where the other operand is larger."""
    indices = list(out[len(out) - len(own) :]) if own else []
    for i in range(len(own)):
        j = i - len(own) + len(other)
        if j >= 0 and const_int(own[i]) == 1 and not prove_equal(own[i], other[j]):
            indices[i] = 0
    return indices


def _operands(func: Function, call: Call) -> tuple[Any, Any]:
    """What the grouped function multiplies, in the place where it is called: arguments, or constants inside it."""
    turned, product = (binding.value for binding in func.body.blocks[0].bindings)
    given = dict(zip(func.params, call.args))
    x, weight = product.args[0], turned.args[0]
    return given.get(x, x), given.get(weight, weight)


class _Fuser(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        func = self.mod[call.op] if isinstance(call.op, GlobalVar) and call.op in self.mod else None
        if not isinstance(func, Function) or func.attrs.get("Composite") != _NAME:
            return call
        x, weight = _operands(func, call)
        dtype = func.ret_struct_info.dtype
        return self.builder_.call_te(_compute(dtype), x, weight, primfunc_name_hint="NT_matmul")


class FuseTransposeMatmul(ModuleRewrite):
    """One loop program for ``x @ transpose(w)``.

    ::

        wT = R.permute_dims(w)        ->    o = R.call_tir(cls.NT_matmul, (x, w), ...)
        o = R.matmul(x, wT)
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        mod = FuseOpsByPattern([_pattern()])(mod)
        fuser = _Fuser(mod)
        for var, func in functions_of(mod, Function):
            if not func.attrs.get("Composite"):
                new = fuser.visit_expr(func)
                if new is not func:
                    fuser.builder_.update_func(var, new)
        return eliminate(fuser.builder_.get())
