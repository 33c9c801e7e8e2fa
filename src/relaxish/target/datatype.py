"""Bring your own data types: names, codes, and how operations on them become operations on bits.

>>> from relaxish.target import datatype
>>> datatype.register("posites2", 131)
>>> datatype.get_type_code("posites2"), datatype.get_type_name(131)
(131, 'posites2')

Each operation on a custom type is lowered by a function registered with :func:`register_op`; mostly one made by
:func:`create_lower_func`, which calls an external function by the width of the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir import dtype as dt
from ..ir.op import Op
from ..ir.prim import BinaryOp, Call, Cast, CmpOp, FloatImm, StringImm
from ..runtime.registry import register_func
from ..support import custom_datatypes
from ..support.custom_datatypes import register

__all__ = [
    "create_lower_func", "create_min_lower_func", "get_type_code", "get_type_name", "get_type_registered",
    "lower_call_pure_extern", "lower_ite", "lowered_dtype", "register", "register_min_func", "register_op",
]  # fmt: skip


def get_type_name(type_code: int) -> str:
    """The name of a registered type. Raises ValueError for an unknown code."""
    return custom_datatypes.type_name(type_code)


def get_type_code(type_name: str) -> int:
    """The code of a registered type. Raises ValueError for an unknown name."""
    return custom_datatypes.type_code(type_name)


def get_type_registered(type_code: int) -> bool:
    """Whether a type code belongs to a registered custom type."""
    return custom_datatypes.is_registered(type_code)


def lowered_dtype(dtype: str) -> str:
    """The unsigned integers that hold a custom type; other types as they are."""
    if not dtype.startswith("custom["):
        return dtype
    return dt.with_lanes(f"uint{dt.bits(dtype)}", dt.lanes(dtype))


def register_op(
    lower_func: Callable[..., Any], op_name: str, target: str, src_type_name: str, dest_type_name: str | None = None,
    intrinsic_name: str | None = None,
) -> None:  # fmt: skip
    """Register how an operation on a custom type is lowered.

    ``op_name`` is the class of the node (``Add``, ``LE``, ``Cast``, ``FloatImm``, ``Call``); a cast needs
    ``dest_type_name`` as well, a call the name of its intrinsic.
    """
    if op_name == "Cast":
        if dest_type_name is None:
            raise AssertionError("a cast needs dest_type_name")
        what = f"Cast.{dest_type_name}.{src_type_name}"
    elif op_name == "Call" and intrinsic_name is not None:
        what = f"Call.intrin.{intrinsic_name}.{src_type_name}"
    else:
        what = f"{op_name}.{src_type_name}"
    register_func(f"tvm.datatype.lower.{target}.{what}", lower_func, override=True)


def register_min_func(func: Callable[[int], Any], type_name: str) -> None:
    """Register the function that gives the smallest value of a custom type for a number of bits."""
    register_func(f"tvm.datatype.min.{type_name}", func, override=True)


def _extern(dtype: str, *args: Any) -> Call:
    name, *rest = args
    return Call(dtype, Op.register("tir.call_pure_extern"), (StringImm(name), *rest))


def create_min_lower_func(extern_func_map: Mapping[int, str], type_name: str) -> Callable[[int], Call]:
    """A function for :func:`register_min_func` that calls an external function chosen by the number of bits."""

    def lower(num_bits: int) -> Call:
        dtype = f"custom[{type_name}]{num_bits}"
        if num_bits not in extern_func_map:
            raise RuntimeError(f"missing minimum function for {dtype}")
        return _extern(dtype, extern_func_map[num_bits])

    return lower


def create_lower_func(extern_func_map: Mapping[Any, str]) -> Callable[[Any], Call]:
    """A function for :func:`register_op` that calls external functions.

    ``extern_func_map`` goes from numbers of bits to names; for casts, from pairs (source bits, result bits).
    """

    def lower(op: Call) -> Call:
        key: Any = dt.bits(op.dtype)
        if isinstance(op, Cast):
            key = (dt.bits(op.value.dtype), key)
        if key not in extern_func_map:
            raise RuntimeError(f"missing key {key} in extern_func_map for {op}")
        name, dtype = extern_func_map[key], lowered_dtype(op.dtype)
        match op:
            case Cast():
                return _extern(dtype, name, op.value)
            case FloatImm():
                return _extern(dtype, name, FloatImm("float32", op.value))
            case Call():
                return _extern(dtype, name, *op.args)
            case BinaryOp() | CmpOp():
                return _extern(dtype, name, op.a, op.b)
        raise RuntimeError(f"lowering unsupported op: {op}")

    return lower


def lower_ite(ite_op: Call) -> Call:
    """Lower ``if_then_else`` on a custom type to the same on bits."""
    return Call(lowered_dtype(ite_op.dtype), Op.register("tir.if_then_else"), ite_op.args)


def lower_call_pure_extern(op: Call) -> Call:
    """Lower ``call_pure_extern`` returning a custom type to one returning bits."""
    return Call(lowered_dtype(op.dtype), Op.register("tir.call_pure_extern"), op.args)
