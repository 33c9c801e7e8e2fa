"""Conversion between dtypes."""

from __future__ import annotations

import numpy as np

from .. import topi
from ..ir.dtype import numpy_dtype
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Constant, Expr, const
from ..relax.struct_info import StructInfo
from .inference import as_expr, check_count, make_call, tensor_arg, with_dtype
from .kinds import ELEMENTWISE
from .literals import scalar_const
from .lowering import te_call
from .record import define

__all__ = ["astype", "wrap_param"]


def astype(x: Expr, dtype: str) -> Expr:
    """``x`` converted to ``dtype``."""
    return make_call("astype", [as_expr(x)], {"dtype": str(dtype)})


def wrap_param(data: Expr, dtype: str = "float32") -> Expr:
    """Marks a parameter to be stored as is and used as ``dtype``."""
    return make_call("wrap_param", [as_expr(data)], {"dtype": str(dtype)})


def _infer(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    return with_dtype(tensor_arg(call, 0), call.attrs.dtype)


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    arg = call.args[0]
    if isinstance(arg, Constant) and scalar_const(arg) is not None:
        return const(arg.data.numpy().astype(numpy_dtype(call.attrs.dtype)), call.attrs.dtype)
    return te_call(builder, "cast", topi.cast, arg, call.attrs.dtype)


define(
    "astype",
    _infer,
    kind=ELEMENTWISE,
    attrs="Astype",
    gradient=lambda var, call, out, builder: [astype(out, call.args[0].struct_info.dtype)],
    legalize=_legalize,
    reference=lambda x, dtype: x.astype(dtype),
    samples=lambda: [((np.arange(6, dtype="float32"),), {"dtype": "int32"})],
)
define(
    "wrap_param",
    _infer,
    attrs="Astype",
    legalize=_legalize,
    reference=lambda data, dtype="float32": data.astype(dtype),
    samples=lambda: [((np.arange(6, dtype="float16"), "float32"), {})],
)
