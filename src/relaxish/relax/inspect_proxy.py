"""Fields of a tensor as known at run time: ``x.dtype.bits``, ``x.shape[i]`` as expressions."""

from __future__ import annotations

from typing import Any

from ..ir.expr import ExprLike, RelaxExpr
from ..ir.op import Op
from ..support.errors import RelaxishError
from .expr import Call, Expr, PrimValue
from .struct_info import PrimStructInfo, TensorStructInfo

__all__ = ["AxisProxy", "DTypeProxy", "inspect_call"]


def _check_tensor(tensor: Expr) -> None:
    info = tensor.struct_info_
    if info is not None and not isinstance(info, TensorStructInfo):
        raise TypeError(f"run-time tensor fields need a tensor, but the expression has struct info {info}")


def inspect_call(name: str, tensor: Expr, *args: Any) -> Call:
    """A call of ``relax.inspect.<name>``."""
    _check_tensor(tensor)
    from .op_table import get_op_record

    full = f"relax.inspect.{name}"
    if get_op_record(full) is None:
        raise RelaxishError(f"operator {full} is not registered")
    return Call(Op.get(full), (tensor, *args))


class DTypeProxy:
    """``type_code``, ``bits`` and ``lanes`` of a tensor, read at run time."""

    def __init__(self, tensor: Expr) -> None:
        _check_tensor(tensor)
        self.tensor = tensor

    @property
    def type_code(self) -> Call:
        """The DLPack type code."""
        return inspect_call("tensor_dtype_code", self.tensor)

    @property
    def bits(self) -> Call:
        """Bits of one lane."""
        return inspect_call("tensor_dtype_bits", self.tensor)

    @property
    def lanes(self) -> Call:
        """Number of lanes."""
        return inspect_call("tensor_dtype_lanes", self.tensor)


class AxisProxy:
    """Indexable by axis: a dimension or a stride, read at run time."""

    def __init__(self, tensor: Expr, name: str) -> None:
        _check_tensor(tensor)
        self.tensor = tensor
        self.name = name

    __iter__ = None  # by index it would not end

    def __getitem__(self, axis: Expr | ExprLike) -> Call:
        axis = axis if isinstance(axis, RelaxExpr) else PrimValue(axis)
        info = axis.struct_info_
        if info is not None and not isinstance(info, PrimStructInfo):
            raise TypeError(f"an axis must be a scalar, but {axis} has struct info {info}")
        return inspect_call(self.name, self.tensor, axis)
