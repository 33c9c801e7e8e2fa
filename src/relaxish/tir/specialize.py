"""Binding the parameters of a function: which variables get which values, and rewriting the function with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir import primops
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import PrimExpr, as_expr
from ..ir.prim import (
    Add, And, BinaryOp, Div, EQ, FloorDiv, FloorMod, GE, GT, LE, LT, Max, Min, Mod, Mul, NE, Not, Or, Sub, Var,
)  # fmt: skip
from ..ir.structural import same_expression
from .buffer import Buffer
from .function import PrimFunc
from .functor import Substitute

__all__ = ["bindings", "specialized"]

_FOLDING: dict[type, Callable[[Any, Any], PrimExpr]] = {
    Add: primops.add, Sub: primops.subtract, Mul: primops.multiply, Div: primops.div, Mod: primops.truncmod,
    FloorDiv: primops.floordiv, FloorMod: primops.floormod, Min: primops.min_, Max: primops.max_,
    EQ: primops.equal, NE: primops.not_equal, LT: primops.less, LE: primops.less_equal, GT: primops.greater,
    GE: primops.greater_equal, And: primops.logical_and, Or: primops.logical_or,
}  # fmt: skip


class _Specializer(Substitute):
    """Substitution that folds constants where an operand changed."""

    def visit_BinaryOp(self, node: BinaryOp) -> PrimExpr:
        a, b = self.visit(node.a), self.visit(node.b)
        return node if a is node.a and b is node.b else _FOLDING[type(node)](a, b)

    def visit_Not(self, node: Not) -> PrimExpr:
        a = self.visit(node.a)
        return node if a is node.a else primops.logical_not(a)


def bindings(func: PrimFunc, param_map: Mapping[Var, Any]) -> dict[Var, PrimExpr]:
    """The value of every variable that ``param_map`` decides, those in shapes of bound buffers included."""
    values: dict[Var, PrimExpr] = {}
    for param, instance in param_map.items():
        if isinstance(instance, Buffer):
            _bind_buffer(func, param, instance, values)
            continue
        if not isinstance(instance, (PrimExpr, int, float)):
            raise CheckTypeError(
                f"specialize expected instance to be Buffer or PrimExpr, but got {type(instance).__name__}"
            )
        if param not in func.params:
            raise CheckValueError(f"Specialize expects {getattr(param, 'name', param)} to be in PrimFunc's params")
        if param in func.buffer_map:
            raise CheckValueError(f"Specialize expects {param.name} to not be in PrimFunc's buffer_map")
        values[param] = as_expr(instance)
    return values


def _bind_buffer(func: PrimFunc, param: Var, instance: Buffer, values: dict[Var, PrimExpr]) -> None:
    if param not in func.buffer_map:
        raise CheckValueError(f"specialize expects {getattr(param, 'name', param)} to be in PrimFunc's buffer_map")
    old: Buffer = func.buffer_map[param]
    if len(old.shape) != len(instance.shape):
        raise CheckValueError(f"The buffer dimensions mismatched: {len(old.shape)} vs. {len(instance.shape)}")
    if len(old.strides) != len(instance.strides):
        raise CheckValueError(
            f"The buffer strides dimensions mismatched: {len(old.strides)} vs. {len(instance.strides)}"
        )
    pairs = [(old.data, instance.data), *zip(old.shape, instance.shape), *zip(old.strides, instance.strides)]
    for have, want in [*pairs, (old.elem_offset, instance.elem_offset)]:
        _bind(have, want, values)
    for fact in ("data_alignment", "offset_factor"):
        if getattr(old, fact) != getattr(instance, fact):
            raise CheckValueError(f"The buffer {fact} mismatched: {getattr(old, fact)} vs. {getattr(instance, fact)}")


def _bind(have: PrimExpr, want: PrimExpr, values: dict[Var, PrimExpr]) -> None:
    if same_expression(have, want):
        return
    if not isinstance(have, Var):
        raise CheckTypeError(f"The signature of target buffer expected an independent Var, but got {have}.")
    known = values.setdefault(have, want)
    if not same_expression(known, want):
        raise CheckValueError(f"The assigned value of var {have.name} mismatched: {known} vs. {want}.")


def specialized(func: PrimFunc, values: Mapping[Var, PrimExpr]) -> PrimFunc:
    """The function with its variables replaced; parameters that have a value are gone."""
    params = tuple([p for p in func.params if p not in values])
    return _Specializer(values).visit(func.with_fields(params=params))
