"""Loop programs that read one field of a tensor's descriptor: what ``R.inspect.*`` is legalised to.

>>> field_reader(field_getter("tensor_ndim"))
'relax.run.tensor_ndim'
"""

from __future__ import annotations

import functools

from ..ir import structural_equal
from ..ir.attrs import DictAttrs
from ..ir.prim import IntImm, StringImm, Var
from ..ir.types import PrimType
from ..relax.struct_info import FuncStructInfo, PrimStructInfo, TensorStructInfo
from ..tir import AssertStmt, BufferLoad, DeclBuffer, Evaluate, LetStmt, PrimFunc, Stmt, ret
from ..tir.buffer import decl_buffer
from ..tir.transform.host.arg_binder import (
    ARR_NDIM,
    ARR_SHAPE,
    ARR_TYPE_BITS,
    ARR_TYPE_CODE,
    ARR_TYPE_LANES,
    array_field,
)

__all__ = ["GETTERS", "field_getter", "field_reader"]

_SCALARS = {
    "tensor_dtype_code": (ARR_TYPE_CODE, "uint8"),
    "tensor_dtype_bits": (ARR_TYPE_BITS, "uint8"),
    "tensor_dtype_lanes": (ARR_TYPE_LANES, "uint16"),
    "tensor_ndim": (ARR_NDIM, "int32"),
}

#: Fields that a loop program can read; strides and offsets stay calls of the runtime.
GETTERS = (*_SCALARS, "tensor_shape_i")


def _function(params: list[Var], body: Stmt, dtype: str) -> PrimFunc:
    attrs = DictAttrs({"tir.is_scheduled": True, "tir.is_host": True})
    made = PrimFunc(params, body, PrimType(dtype), {}, attrs)
    infos = [TensorStructInfo(dtype="", ndim=-1), *(PrimStructInfo(p.dtype) for p in params[1:])]
    made.struct_info_ = FuncStructInfo(infos, PrimStructInfo(dtype))
    return made


def _scalar_getter(kind: int, dtype: str) -> PrimFunc:
    handle, value = Var("dlpack_handle", "handle"), Var("value", dtype)
    return _function([handle], LetStmt(value, array_field(dtype, handle, kind), Evaluate(ret(value))), dtype)


def _extent_getter() -> PrimFunc:
    """The extent of an axis, after checks that there is such an axis."""
    handle, axis = Var("dlpack_handle", "handle"), Var("axis", "int64")
    ndim, extent = Var("ndim", "int32"), Var("extent", "int64")
    shape = decl_buffer([ndim], "int64", "shape")
    body: Stmt = LetStmt(extent, BufferLoad(shape, [axis]), Evaluate(ret(extent)))
    body = LetStmt(shape.data, array_field("handle", handle, ARR_SHAPE), DeclBuffer(shape, body))
    too_large = StringImm("Specified axis may not be larger than the tensor's dimensionality")
    body = AssertStmt(axis < ndim.astype("int64"), too_large, body)
    body = LetStmt(ndim, array_field("int32", handle, ARR_NDIM), body)
    body = AssertStmt(IntImm("int64", 0) <= axis, StringImm("Specified axis may not be negative"), body)
    return _function([handle, axis], body, "int64")


def field_getter(name: str) -> PrimFunc:
    """The program that reads a field, by the operator's name. Raises KeyError for a field none can read."""
    return _extent_getter() if name == "tensor_shape_i" else _scalar_getter(*_SCALARS[name])


@functools.cache
def _known() -> dict[str, PrimFunc]:
    return {name: field_getter(name) for name in GETTERS}


def field_reader(func: PrimFunc) -> str | None:
    """The runtime's function that does what such a program does; None for any other program."""
    if func.attrs is None or "tir.is_host" not in func.attrs or func.buffer_map or not func.params:
        return None
    plain = func.without_attr("global_symbol").without_attr("op_pattern")
    return next((f"relax.run.{name}" for name, known in _known().items() if structural_equal(plain, known)), None)
