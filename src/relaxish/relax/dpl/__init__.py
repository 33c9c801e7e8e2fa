"""The dataflow pattern language: describe expressions and graphs, find them, rewrite them."""

from __future__ import annotations

from .build import (
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    make_residual_block_pattern,
    reject,
    wildcard,
)
from .context import DFConstraint, PatternContext, SameShapeConstraint
from .pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    FunctionPattern,
    GlobalVarPattern,
    NotPattern,
    OrPattern,
    PatternSeq,
    PrimArrPattern,
    ShapePattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)
from .rewrite import rewrite_bindings, rewrite_call
from .rewriter import ExprPatternRewriter, OrRewriter, PatternMatchingRewriter, TupleRewriter

__all__ = [
    "AndPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFConstraint", "DFPattern", "DataTypePattern",
    "DataflowVarPattern", "ExprPattern", "ExprPatternRewriter", "ExternFuncPattern", "FunctionPattern",
    "GlobalVarPattern", "NotPattern", "OrPattern", "OrRewriter", "PatternContext", "PatternMatchingRewriter",
    "PatternSeq", "PrimArrPattern", "SameShapeConstraint", "ShapePattern", "StructInfoPattern", "TupleGetItemPattern",
    "TuplePattern", "TupleRewriter", "TypePattern", "UnorderedTuplePattern", "VarPattern", "WildcardPattern",
    "has_attr", "has_dtype", "is_call_dps_packed", "is_call_packed", "is_call_tir", "is_const", "is_dfv", "is_expr",
    "is_gv", "is_op", "is_shape", "is_tuple", "is_tuple_get_item", "is_var", "make_fused_bias_activation_pattern",
    "make_residual_block_pattern", "reject", "rewrite_bindings", "rewrite_call", "wildcard",
]  # fmt: skip
