"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import topi
from ...ir.expr import PrimExpr
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr
from ...relax.struct_info import StructInfo
from ..inference import as_expr, as_int, check_count, fail, make_call, tensor, tensor_arg, written_dims
from ..lowering import te_call
from ..record import define

__all__ = ["pad"]

_MODES = ("constant", "reflect", "replicate", "circular", "edge", "symmetric")


def pad(
    data: Expr,
    pad_width: Sequence[int | PrimExpr | Sequence[int]],
    pad_mode: str | None = "constant",
    pad_value: float | None = 0.0,
) -> Expr:
    """A border around ``data``; ``pad_width`` lists before and after of each axis."""
    widths: list[int] = []
    for item in pad_width:
        widths += [as_int(v) for v in item] if isinstance(item, Sequence) else [as_int(item)]
    attrs = {"pad_width": tuple(widths), "pad_value": float(pad_value or 0.0), "pad_mode": pad_mode or "constant"}
    return make_call("nn.pad", [as_expr(data)], attrs)


def _infer(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    widths = [int(v) for v in call.attrs.pad_width]
    if len(widths) != 2 * info.ndim:
        raise fail(call, f"expects {2 * info.ndim} pad widths for {info.ndim} dimensions, not {len(widths)}")
    if call.attrs.pad_mode not in _MODES:
        raise fail(call, f"the pad mode must be one of {_MODES}, not {call.attrs.pad_mode!r}")
    dims = written_dims(info)
    if dims is None:
        return tensor(None, info.dtype, info.ndim)
    return tensor([d + (widths[2 * i] + widths[2 * i + 1]) for i, d in enumerate(dims)], info.dtype)


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    a = call.attrs
    widths, mode = [int(w) for w in a.pad_width], str(a.pad_mode)
    border = {"pad_before": widths[::2], "pad_after": widths[1::2]}
    if mode in ("reflect", "symmetric"):
        return te_call(builder, "mirror_pad", topi.nn.mirror_pad, call.args[0], mode=mode.upper(), **border)
    if mode in ("replicate", "edge"):
        return te_call(builder, "replicate_pad", topi.nn.replicate_pad, call.args[0], **border)
    if mode == "circular":
        return te_call(builder, "circular_pad", topi.nn.circular_pad, call.args[0], **border)
    return te_call(builder, "pad", topi.nn.pad, call.args[0], pad_value=float(a.pad_value), **border)


def _np_pad(data: np.ndarray, pad_width: np.ndarray, pad_mode: str = "constant", pad_value: float = 0.0) -> np.ndarray:
    widths = [(pad_width[2 * i], pad_width[2 * i + 1]) for i in range(data.ndim)]
    if pad_mode == "constant":
        return np.pad(data, widths, constant_values=pad_value)
    names: dict[str, Any] = {"replicate": "edge", "circular": "wrap"}
    return np.pad(data, widths, mode=names.get(pad_mode, pad_mode))


_X = np.arange(20, dtype="float32").reshape(4, 5)
define(
    "nn.pad",
    _infer,
    attrs="Pad",
    legalize=_legalize,
    reference=_np_pad,
    samples=lambda: [
        ((_X,), {"pad_width": (1, 0, 2, 3), "pad_value": 1.5}),
        *(((_X,), {"pad_width": (1, 2, 2, 1), "pad_mode": mode}) for mode in ("reflect", "replicate", "circular")),
    ],
)
