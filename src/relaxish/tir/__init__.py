"""Tensor programs: loops, blocks, buffers and the functions made of them."""

from ..ir.expr import PrimExpr, Range, convert
from ..ir.prim import const
from ..support.entry_points import lazy_package as _lazy_package
from . import functor as stmt_functor
from .buffer import Buffer, DataProducer, decl_buffer
from .data_layout import BijectiveLayout, Layout, bijective_layout, layout
from .expr import (
    EQ, GE, GT, LE, LT, NE, Add, And, BinaryOp, Broadcast, BufferLoad, Call, CallEffectKind, Cast, CmpOp,
    CommReducer, Div, FloatImm, FloorDiv, FloorMod, IntImm, IterVar, Let, LogicalOp, Max, Min, Mod, Mul, Not, Or,
    ProducerLoad, Ramp, Reduce, Select, Shuffle, SizeVar, StringImm, Sub, Var,
)  # fmt: skip
from .expr import Any_ as Any
from .function import PrimFunc, TensorIntrin
from .index_map import IndexMap
from .op import *  # noqa: F403
from .op_device import *  # noqa: F403
from .stmt import (
    Allocate, AllocateConst, AssertStmt, AttrStmt, Block, BlockRealize, BufferRealize, BufferRegion, BufferStore,
    DeclBuffer, Evaluate, For, ForKind, IfThenElse, LetStmt, MatchBufferRegion, Prefetch, ProducerRealize,
    ProducerStore, SeqStmt, Stmt, While, stmt_list, stmt_seq,
)  # fmt: skip


__getattr__, __dir__ = _lazy_package(globals())  # heavier parts load on first use

__all__ = [
    "Add", "Allocate", "AllocateConst", "And", "Any", "AssertStmt", "AttrStmt", "BijectiveLayout", "BinaryOp", "Block",
    "BlockRealize", "Broadcast", "Buffer", "BufferLoad", "BufferRealize", "BufferRegion", "BufferStore", "Call",
    "CallEffectKind", "Cast", "CmpOp", "CommReducer", "DataProducer", "DeclBuffer", "Div", "EQ", "Evaluate",
    "FloatImm", "FloorDiv", "FloorMod", "For", "ForKind", "GE", "GT", "IfThenElse", "IndexMap", "IntImm", "IterVar",
    "LE", "LT", "Layout", "Let", "LetStmt", "LogicalOp", "MatchBufferRegion", "Max", "Min", "Mod", "Mul", "NE", "Not",
    "Or", "Prefetch", "PrimExpr", "PrimFunc", "ProducerLoad", "ProducerRealize", "ProducerStore", "Ramp", "Range",
    "Reduce", "Select", "SeqStmt", "Shuffle", "SizeVar", "Stmt", "StringImm", "Sub", "TensorIntrin", "Var", "While",
    "bijective_layout", "const", "convert", "decl_buffer", "layout", "stmt_functor", "stmt_list", "stmt_seq",
]  # fmt: skip
