"""Shapes and types of a graph function's parameters, for its static plan."""

from __future__ import annotations

from ...ir.prim import IntImm, const_ints
from ...relax.expr import Function, ShapeExpr
from ...relax.struct_info import TensorStructInfo
from ...runtime.bytecode.plan import TensorSpec
from ...support.sequences import of_kind
from .planner import NotPlannable


def plan_inputs(func: Function) -> tuple[TensorSpec, ...]:
    """Shapes and dtypes of the parameters; :class:`NotPlannable` unless all are tensors of static shape."""
    specs = []
    for param in func.params:
        info = param.struct_info_
        if not isinstance(info, TensorStructInfo):
            raise NotPlannable(f"parameter {param.name_hint} is not a tensor")
        shape = info.shape
        if not isinstance(shape, ShapeExpr) or const_ints(shape.values) is None:
            raise NotPlannable(f"parameter {param.name_hint} has no static shape")
        if not info.dtype or info.dtype == "void":
            raise NotPlannable(f"parameter {param.name_hint} has no dtype")
        dims = tuple(int(d.value) for d in of_kind(shape.values, IntImm))
        specs.append(TensorSpec(param.name_hint, dims, info.dtype))
    return tuple(specs)
