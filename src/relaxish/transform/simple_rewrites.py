"""Small graph rewrites: redundant reshapes, inverse layout transforms, approximate math."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import topi
from ..arith import Analyzer
from ..ir.expr import PrimExpr, Range
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op.manipulate import reshape
from ..relax.dpl import is_op, rewrite_call, wildcard
from ..relax.dpl.pattern import DFPattern
from ..relax.expr import Call, Expr, Function
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.scalars import prove_equal_shapes
from ..relax.struct_info import tensor_dims
from ..tir import Cast, IndexMap, const
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AttachExternModules", "FastMathTransform", "OptimizeLayoutTransform", "RemoveRedundantReshape"]


def _reshapes(func: Function) -> Function:
    x, shape, outer_shape = wildcard(), wildcard(), wildcard()
    inner = is_op("relax.reshape")(x, shape)
    outer = is_op("relax.reshape")(inner, outer_shape)

    def rewrite(expr: Expr, matched: Mapping[DFPattern, Expr]) -> Expr:
        if outer in matched:
            return reshape(matched[x], matched[outer_shape])
        info, target = matched[x].struct_info_, matched[shape].struct_info_
        dims = tensor_dims(info)
        wanted = getattr(target, "values", None)
        if dims is not None and wanted is not None and prove_equal_shapes(dims, wanted):
            return matched[x]
        return expr

    return rewrite_call(outer | inner, rewrite, func)


class RemoveRedundantReshape(ModuleRewrite):
    """A reshape of a reshape is one reshape; a reshape to the shape a tensor has is the tensor."""

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, f: _reshapes(f))


def _cancels(first: IndexMap, second: IndexMap, shape: Sequence[PrimExpr]) -> bool:
    """Whether ``second`` undoes ``first`` on an array of this shape."""
    back = second.map_indices(list(first.final_indices))
    analyzer = Analyzer()
    for index, extent in zip(first.initial_indices, shape):
        analyzer.bind(index, Range.from_min_extent(const(0, index.dtype), Cast(index.dtype, extent)))
    return len(back) == len(first.initial_indices) and all(map(analyzer.can_prove_equal, back, first.initial_indices))


def _transforms(func: Function) -> Function:
    x = wildcard()
    inner = is_op("relax.layout_transform")(x)
    outer = is_op("relax.layout_transform")(inner)

    def rewrite(expr: Expr, matched: Any) -> Expr:
        first, second = matched[inner].attrs, matched[outer].attrs
        shape = matched[x].struct_info.dims()
        same = shape is not None and prove_equal_shapes(shape, expr.struct_info.dims())
        return matched[x] if same and _cancels(first.index_map, second.index_map, shape) else expr

    return rewrite_call(outer, rewrite, func)


class OptimizeLayoutTransform(ModuleRewrite):
    """Two ``R.layout_transform`` in a row that undo each other disappear."""

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, f: _transforms(f))


class _FastMath(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        name = op_name_of(call)
        if name == "relax.nn.softmax":
            return self.builder_.call_te(topi.nn.softmax, call.args[0], call.attrs.axis)
        fast = {"relax.exp": topi.fast_exp, "relax.erf": topi.fast_erf, "relax.tanh": topi.fast_tanh}.get(name)
        return call if fast is None else self.builder_.call_te(fast, call.args[0])


class FastMathTransform(ModuleRewrite):
    """``R.exp``, ``R.erf``, ``R.tanh`` and ``R.nn.softmax`` become loops with fast approximations."""

    def rewrite(self, mod: IRModule) -> IRModule:
        mutator = _FastMath(mod)
        return rewrite_functions(mutator, mod)


class AttachExternModules(ModuleRewrite):
    """Load ``nn.ExternModule`` objects and add them to the module attribute ``external_mods``."""

    extern_modules: Sequence[Any]

    def rewrite(self, mod: IRModule) -> IRModule:
        before = list((mod.attrs or {}).get("external_mods") or ())
        return mod.with_attr("external_mods", [*before, *(m.load() for m in self.extern_modules)])
