"""Functions that make patterns, as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.op import Op
from ..expr import Expr
from .pattern import (
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    GlobalVarPattern,
    NotPattern,
    PrimArrPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)

__all__ = [
    "has_attr",
    "has_dtype",
    "is_call_dps_packed",
    "is_call_packed",
    "is_call_tir",
    "is_const",
    "is_dfv",
    "is_expr",
    "is_gv",
    "is_op",
    "is_shape",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "make_fused_bias_activation_pattern",
    "make_residual_block_pattern",
    "reject",
    "wildcard",
]


def is_var(name: str = "") -> VarPattern:
    """A variable, of that name if one is given."""
    return VarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """A function of the module, of that name if one is given."""
    return GlobalVarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """A dataflow variable, of that name if one is given."""
    return DataflowVarPattern(name)


def is_const() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_expr(expr: Expr) -> ExprPattern:
    """Exactly that expression."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """An operator; call the result with argument patterns: ``is_op("relax.add")(wildcard(), wildcard())``."""
    return ExprPattern(Op.get(op_name))


def is_tuple(fields: Sequence[DFPattern], unordered: bool = False) -> TuplePattern | UnorderedTuplePattern:
    """A tuple of these fields, in any order if ``unordered``."""
    if not isinstance(fields, (list, tuple)):
        raise ValueError("fields must be a list or a tuple of patterns")
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """A projection of a matching tuple; any index if none is given."""
    return TupleGetItemPattern(tuple_value, index)


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """A tensor of that dtype."""
    return (wildcard() if pattern is None else pattern).has_dtype(dtype)


def is_shape(shape: Sequence[Any]) -> PrimArrPattern:
    """A shape value of these dimensions. Raises ValueError if ``shape`` is no sequence."""
    if not isinstance(shape, (list, tuple)):
        raise ValueError("is_shape takes a list or tuple of dimensions")
    return PrimArrPattern(shape)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Anything with these attributes."""
    return (wildcard() if pattern is None else pattern).has_attr(attrs)


def reject(pattern: DFPattern) -> NotPattern:
    """Anything that does not match."""
    return NotPattern(pattern)


def _arguments(args: Sequence[DFPattern] | DFPattern | None) -> DFPattern:
    if args is None:
        return wildcard()
    return is_tuple(args) if isinstance(args, (list, tuple)) else args  # type: ignore[return-value]


def is_call_tir(
    func_name: str, args: Sequence[DFPattern] | DFPattern | None = None, tir_vars: DFPattern | None = None
) -> CallPattern:
    """``R.call_tir`` of the named function, on any arguments if none are given."""
    tail = () if tir_vars is None else (tir_vars,)
    return is_op("relax.call_tir")(GlobalVarPattern(func_name), _arguments(args), *tail, add_constraint=False)


def is_call_dps_packed(func_name: str, args: Sequence[DFPattern] | DFPattern | None = None) -> CallPattern:
    """``R.call_dps_packed`` of the named packed function, on any arguments if none are given."""
    callee = ExternFuncPattern(func_name)
    return is_op("relax.call_dps_packed")(callee, _arguments(args), add_constraint=False)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """A call of the named packed function, on any arguments if none are given."""
    if args is None:
        return ExternFuncPattern(func_name)(varg_default_wildcard=True, add_constraint=False)
    return ExternFuncPattern(func_name)(*args)


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> DFPattern:
    """``op(x, w)``, plus a bias, into an activation."""
    out: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        out = is_op("relax.add")(out, wildcard())
    if activation:
        return is_op(activation)(out)
    return out


def make_residual_block_pattern(
    node_output: DFPattern | tuple[DFPattern, Mapping[str, DFPattern]],
    binary_op: str = "relax.add",
    activation: str | None = None,
) -> tuple[DFPattern, Mapping[str, DFPattern]]:
    """A block whose output is combined with ``residual``, followed by an activation."""
    out, found = node_output if isinstance(node_output, tuple) else (node_output, {})
    residual = wildcard()
    combine = is_op(binary_op)
    total: DFPattern = combine(out, residual) | combine(residual, out)
    annotations = {**found, "residual": residual}
    return (is_op(activation)(total) if activation is not None else total), annotations
