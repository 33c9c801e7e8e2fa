"""The IR common to both levels: nodes, types, scalar expressions, modules, passes."""

from . import base, container, dtype, instrument, object_generic, primops, printing, supply, transform
from .attrs import Attrs, DictAttrs, make_node
from .container import Array, Map
from .env_func import EnvFunc
from .evaluate import evaluate
from .expr import (
    BaseExpr,
    BaseFunc,
    CallingConv,
    EqualOp,
    GlobalVar,
    NotEqualOp,
    PrimExpr,
    Range,
    RelaxExpr,
    as_expr,
    convert,
)
from .functor import Mutator, Visitor, post_order_visit, pre_order_visit
from .global_info import DummyGlobalInfo, GlobalInfo, VDevice
from .module import IRModule
from .node import Node, field, node_class
from .op import Op, register_intrin_lowering, register_op_attr
from .prim import CallEffectKind, FloatImm, IntImm
from .serial import load_json, save_json
from .source import SequentialSpan, SourceName, Span
from .supply import GlobalVarSupply, NameSupply
from .structural import (
    Mismatch,
    assert_structural_equal,
    get_first_structural_mismatch,
    structural_equal,
    structural_hash,
)
from ..support.entry_points import lazy_package as _lazy_package
from .types import FuncType, PointerType, PrimType, TensorType, TupleType, Type, VoidType

__all__ = [
    "Array", "Attrs", "BaseExpr", "BaseFunc", "CallEffectKind", "CallingConv", "DictAttrs", "DummyGlobalInfo",
    "EnvFunc", "EqualOp", "FloatImm", "FuncType", "GlobalInfo", "GlobalVar", "GlobalVarSupply", "IRModule", "IntImm",
    "Map", "Mismatch", "Mutator", "NameSupply", "Node", "NotEqualOp", "Op", "PointerType", "PrimExpr", "PrimType",
    "Range", "RelaxExpr", "SequentialSpan", "SourceName", "Span", "TensorType", "TupleType", "Type", "VDevice",
    "Visitor", "VoidType", "as_expr", "assert_structural_equal", "base", "container", "convert", "dtype", "evaluate",
    "field", "get_first_structural_mismatch", "instrument", "load_json", "make_node", "node_class", "object_generic",
    "post_order_visit", "pre_order_visit", "primops", "printing", "register_intrin_lowering", "register_op_attr",
    "save_json", "structural_equal", "structural_hash", "supply", "transform",
]  # fmt: skip

__getattr__, __dir__ = _lazy_package(globals())
