"""Distinct elements and positions of non-zero ones: results whose size only the data decides."""

from __future__ import annotations

from ..ir.op import Op
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue
from ..relax.scalars import const_int
from ..relax.struct_info import StructInfo, TupleStructInfo
from ..runtime.bytecode import builtins as _runtime
from .inference import as_expr, check_axis, check_count, fail, make_call, tensor, tensor_arg, type_fail
from .record import define

__all__ = ["nonzero", "numpy_nonzero", "numpy_unique", "unique"]

numpy_unique = _runtime.unique
numpy_nonzero = _runtime.nonzero


def unique(
    x: Expr,
    sorted: bool | Expr = True,
    return_index: bool | Expr = False,
    return_inverse: bool | Expr = False,
    return_counts: bool | Expr = False,
    axis: int | Expr | None = None,
) -> Expr:
    """Distinct elements (or slices along ``axis``), optionally with positions and counts."""
    flags = [
        v if isinstance(v, Expr) else PrimValue(bool(v)) for v in (sorted, return_index, return_inverse, return_counts)
    ]
    args = [as_expr(x), *flags]
    if axis is not None:
        args.append(axis if isinstance(axis, Expr) else PrimValue(int(axis)))
    return make_call("unique", args)


def nonzero(x: Expr) -> Expr:
    """Coordinates of the non-zero elements, one column each."""
    return make_call("nonzero", [as_expr(x)])


def _flag(call: Call, arg: Expr) -> int:
    value = const_int(arg.value) if isinstance(arg, PrimValue) else None
    if value is None:
        raise type_fail(call, f"expects constant flags and a constant axis, but got {arg}")
    return value


def _infer_unique(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) not in (5, 6):
        raise fail(call, f"expects 5 or 6 arguments, but was called with {len(call.args)} arguments")
    info = tensor_arg(call, 0)
    extra = sum(1 for a in call.args[2:5] if _flag(call, a))
    ndim = 1
    if len(call.args) > 5:
        ndim = info.ndim
        if ndim >= 0:
            check_axis(call, ndim, _flag(call, call.args[5]))
    if info.ndim == 0:
        one: list[StructInfo] = [tensor([1], info.dtype, vdevice=info.vdevice)]
        one += [tensor([1], "int64", vdevice=info.vdevice)] * extra
        return TupleStructInfo(one) if extra else one[0]
    values = tensor(None, info.dtype, ndim, info.vdevice)
    if not extra:
        return values
    return TupleStructInfo([values, *[tensor(None, "int64", 1, info.vdevice)] * extra])


def _infer_nonzero(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    return tensor(None, "int64", 2, info.vdevice)


define("unique", _infer_unique)
define("nonzero", _infer_nonzero)
for _name in ("unique", "nonzero"):
    # The runtime allocates the result, since only it knows the size.
    Op.get(f"relax.{_name}").set_attr("FCallPacked", f"relax.run.{_name}")
