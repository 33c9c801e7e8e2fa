"""The graph level: expressions, struct info, BlockBuilder, analyses, patterns and the operator table."""

from __future__ import annotations

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.source import SourceName, Span
from ..support.entry_points import lazy_package as _lazy_package
from ..tir import PrimFunc
from . import expr as expr  # first: it and struct_info need each other
from .expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    Id,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
    extern,
    get_shape_of,
    make_shape,
    te_tensor,
)
from .struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .ty import DynTensorType, FuncType, ObjectType, PackedFuncType, ShapeType, TensorType, TupleType, Type
from . import analysis, block_builder, expr_functor, op_table, struct_info, utils
from .block_builder import BlockBuilder
from .expr_functor import ExprFunctor, PyExprMutator, PyExprVisitor
from .call_forms import call_tir as _call_tir  # registers the call_tir family

__all__ = [
    "Binding", "BindingBlock", "BlockBuilder", "Call", "Constant", "DataTypeImm", "DataflowBlock", "DataflowVar",
    "Expr", "ExprFunctor", "ExternFunc", "FuncStructInfo", "Function", "GlobalVar", "IRModule", "Id", "If",
    "MatchCast", "ObjectStructInfo", "Op", "PrimFunc", "PrimStructInfo", "PrimValue", "PyExprMutator",
    "PyExprVisitor", "SeqExpr", "ShapeExpr", "ShapeStructInfo", "SourceName", "Span", "StringImm", "StructInfo",
    "TensorStructInfo", "TensorType", "Tuple", "TupleGetItem", "TupleStructInfo", "Var", "VarBinding", "analysis",
    "block_builder", "const", "expr", "expr_functor", "extern", "get_shape_of", "make_shape", "op_table",
    "struct_info", "te_tensor", "utils",
]  # fmt: skip

__getattr__, __dir__ = _lazy_package(globals())
