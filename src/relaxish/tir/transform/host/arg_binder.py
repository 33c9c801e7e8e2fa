"""Binding a function's buffers and scalars to the fields of the runtime arguments it is called with."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import EQ, Call, IntImm, Not, StringImm, Var
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...op import if_then_else
from ...stmt import AssertStmt, AttrStmt, DeclBuffer, Evaluate, IfThenElse, LetStmt, SeqStmt, Stmt
from ..base import LoweringError, call

# Fields of tvm_struct_get, as the runtime numbers them.
ARR_DATA, ARR_SHAPE, ARR_STRIDES, ARR_NDIM = 1, 2, 3, 4
ARR_TYPE_CODE, ARR_TYPE_BITS, ARR_TYPE_LANES = 5, 6, 7
ARR_BYTE_OFFSET, ARR_DEVICE_ID, ARR_DEVICE_TYPE, VALUE_CONTENT = 8, 9, 10, 12
_TYPE_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 1}


def type_code(dtype: str) -> int:
    """The runtime's number for a kind of element."""
    return _TYPE_CODES.get(dt.code(dtype), 2)


def array_field(dtype: str, handle: PrimExpr, kind: int) -> Call:
    """One field of the first array behind ``handle``."""
    return call(dtype, "tvm_struct_get", handle, IntImm("int32", 0), IntImm("int32", kind))


class ArgBinder:
    """Collects definitions (``init_nest``) and checks (``asserts``) while values are bound.

    A variable is defined by the first value bound to it; later values must equal it.
    """

    def __init__(self) -> None:
        self.defs: dict[Any, Any] = {}
        self.init_nest: list[Stmt] = []
        self.asserts: list[Stmt] = []
        self.analyzer = Analyzer()

    def require(self, condition: PrimExpr, name: str) -> None:
        """Assert a condition on an argument, unless it certainly holds. Raises ValueError if it never does."""
        simple = self.analyzer.simplify(condition)
        if isinstance(simple, IntImm):
            if not simple.value:
                raise LoweringError(f"Bind have an unmet assertion: {condition},  on argument {name}")
            return
        message = f"Argument {name} has an unsatisfied constraint: {condition}"
        self.asserts.append(AssertStmt(simple, StringImm(message), Evaluate(0)))

    def bind(self, arg: PrimExpr, value: PrimExpr, name: str, with_lets: bool = False) -> bool:
        """Bind an expression to a value; True if that defined a variable."""
        if not isinstance(arg, Var):
            self.require(EQ(arg, value), name)
            return False
        if arg in self.defs:
            self.require(EQ(self.defs[arg], value), name)
            return False
        self.defs[arg] = arg if with_lets else value
        if with_lets:
            self.init_nest.append(LetStmt(arg, value, Evaluate(0)))
        return True

    def bind_dltensor(self, buffer: Buffer, device_type: PrimExpr, device_id: PrimExpr, handle: Var, name: str) -> None:
        """Bind a buffer to the tensor behind ``handle``: rank, type, shape, strides, offset, device, pointer."""
        null = call("bool", "isnullptr", handle)
        message = f"{name} is expected to have non-NULL DLTensor* pointer"
        self.init_nest.append(AssertStmt(Not(null), StringImm(message), Evaluate(0)))
        self._rank_and_type(buffer, handle, name)
        packed = buffer.dtype in ("int1", "int4", "uint4")
        shape = self._field_buffer(handle, ARR_SHAPE, len(buffer.shape), f"{name}.shape")
        for k, dim in enumerate(buffer.shape if not packed else ()):
            self.bind(dim, B.cast(dim.dtype, BufferLoad(shape, [k])), f"{name}.shape[{k}]", True)
        strides = self._field_buffer(handle, ARR_STRIDES, len(buffer.strides), f"{name}.strides")
        self._strides(buffer, shape, strides, name)
        self._offset(buffer, handle, name)
        self.bind(device_type, array_field("int32", handle, ARR_DEVICE_TYPE), f"{name}.device_type", True)
        self.bind(device_id, array_field("int32", handle, ARR_DEVICE_ID), f"{name}.device_id", True)
        self._data(buffer, handle, name)

    def _rank_and_type(self, buffer: Buffer, handle: Var, name: str) -> None:
        rank = EQ(IntImm("int32", len(buffer.shape)), array_field("int32", handle, ARR_NDIM))
        rank_message = StringImm(f"{name}.ndim is expected to equal {len(buffer.shape)}")
        self.init_nest.append(AssertStmt(rank, rank_message, Evaluate(0)))
        fields = (
            ("uint8", ARR_TYPE_CODE, type_code(buffer.dtype)),
            ("uint8", ARR_TYPE_BITS, dt.bits(buffer.dtype)),
            ("uint16", ARR_TYPE_LANES, dt.lanes(buffer.dtype)),
        )
        condition: Any = IntImm("bool", 1)
        for kind, field, want in fields:
            condition = B.and_(condition, EQ(array_field(kind, handle, field), IntImm(kind, want)))
        if buffer.dtype not in ("int1", "int4", "uint4"):
            message = StringImm(f"{name}.dtype is expected to be {buffer.dtype}")
            self.asserts.append(AssertStmt(rank, rank_message, Evaluate(0)))
            self.asserts.append(AssertStmt(condition, message, Evaluate(0)))

    def _field_buffer(self, handle: Var, field: int, size: int, name: str) -> Buffer:
        made = decl_buffer([size], "int64", name)
        self.init_nest.append(LetStmt(made.data, array_field("handle", handle, field), Evaluate(0)))
        self.init_nest.append(DeclBuffer(made, Evaluate(0)))
        return made

    def _strides(self, buffer: Buffer, shape: Buffer, strides: Buffer, name: str) -> None:
        no_strides = call("bool", "isnullptr", strides.data)
        index = buffer.shape[0].dtype if buffer.shape else "int32"
        if not buffer.strides:
            self._compact(buffer, strides, no_strides, index, name)
            return
        broadcast = buffer.buffer_type in ("auto_broadcast", "auto_broadcast_", 2)
        implied: Any = B.const(index, 1)
        for k in reversed(range(len(buffer.strides))):
            dtype = buffer.shape[k].dtype
            value: Any = if_then_else(no_strides, implied, B.cast(dtype, BufferLoad(strides, [k])))
            if broadcast:
                value = if_then_else(B.eq(buffer.shape[k], B.const(dtype, 1)), B.const(dtype, 0), value)
                implied = self.analyzer.simplify(implied * buffer.shape[k])
            else:
                implied = implied * B.cast(dtype, BufferLoad(shape, [k]))
            self.bind(buffer.strides[k], B.cast(buffer.strides[k].dtype, value), f"{name}.strides[{k}]", True)

    def _compact(self, buffer: Buffer, strides: Buffer, no_strides: PrimExpr, index: str, name: str) -> None:
        expected: Any = B.const(index, 1)
        condition: Any = IntImm("bool", 1)
        for k in reversed(range(len(buffer.shape))):
            have = B.cast(index, BufferLoad(strides, [k]))
            dim = buffer.shape[k]
            condition = B.and_(condition, B.or_(B.eq(dim, B.const(dim.dtype, 1)), EQ(expected, have)))
            expected = expected * dim
        if buffer.shape:
            message = StringImm(f"{name}.strides: expected to be compact array")
            check = IfThenElse(Not(no_strides), AssertStmt(condition, message, Evaluate(0)))
            self.asserts.append(SeqStmt([check, Evaluate(0)]))

    def _offset(self, buffer: Buffer, handle: Var, name: str) -> None:
        nbytes = (dt.bits(buffer.dtype) * dt.lanes(buffer.dtype) + 7) // 8
        have = array_field("uint64", handle, ARR_BYTE_OFFSET)
        offset = buffer.elem_offset
        if isinstance(offset, IntImm):
            self.bind(IntImm("uint64", offset.value * nbytes), have, f"{name}.byte_offset", True)
            return
        value = B.cast(offset.dtype, B.truncdiv(have, IntImm("uint64", nbytes)))
        if self.bind(offset, value, f"{name}.elem_offset", True) and buffer.offset_factor > 1:
            rest = B.truncmod(offset, B.const(offset.dtype, buffer.offset_factor))
            self.require(EQ(rest, B.const(offset.dtype, 0)), f"{name}.elem_offset")

    def _data(self, buffer: Buffer, handle: Var, name: str) -> None:
        self.bind(buffer.data, array_field("handle", handle, ARR_DATA), f"{name}.data", True)
        size: Any = B.const(buffer.shape[0].dtype if buffer.shape else "int32", 1)
        for dim in buffer.shape:
            size = size * dim
        # Arrays without elements may have no memory behind them.
        empty = B.eq(size, B.const(size.dtype, 0))
        condition = B.or_(empty, Not(call("bool", "isnullptr", buffer.data)))
        message = f"{name} is expected to have non-NULL data pointer"
        self.asserts.append(AssertStmt(condition, StringImm(message), Evaluate(0)))
        self.init_nest.append(AttrStmt(buffer.data, "storage_alignment", buffer.data_alignment, Evaluate(0)))


__all__ = ["ArgBinder", "array_field", "type_code"]
