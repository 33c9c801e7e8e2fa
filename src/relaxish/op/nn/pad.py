"""Padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import topi
from ...relax.expr import Call, Expr
from ...relax.scalars import simplify
from ...relax.struct_info import StructInfo
from ..inference import as_expr, check_count, fail, make_call, tensor, tensor_arg
from ..record import define

__all__ = ["pad"]

_MODES = ("constant", "reflect", "replicate", "circular", "edge", "symmetric")


def pad(data: Any, pad_width: Any, pad_mode: str | None = "constant", pad_value: float | None = 0.0) -> Expr:
    """A border around ``data``; ``pad_width`` lists before and after of each axis."""
    widths: list[int] = []
    for item in pad_width:
        widths += [int(v) for v in item] if isinstance(item, (list, tuple)) else [int(item)]
    attrs = {"pad_width": tuple(widths), "pad_mode": pad_mode or "constant", "pad_value": float(pad_value or 0.0)}
    return make_call("nn.pad", [as_expr(data)], attrs)


def _infer(call: Call, builder: Any) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    widths = [int(v) for v in call.attrs.pad_width]
    if info.ndim >= 0 and len(widths) != 2 * info.ndim:
        raise fail(call, f"expects {2 * info.ndim} pad widths for {info.ndim} dimensions, not {len(widths)}")
    if call.attrs.pad_mode not in _MODES:
        raise fail(call, f"the pad mode must be one of {_MODES}, not {call.attrs.pad_mode!r}")
    dims = info.dims()
    if dims is None:
        return tensor(None, info.dtype, info.ndim, info.vdevice)
    shape = [simplify(d + (widths[2 * i] + widths[2 * i + 1])) for i, d in enumerate(dims)]
    return tensor(shape, info.dtype, vdevice=info.vdevice)


def _legalize(builder: Any, call: Call) -> Expr:
    a = call.attrs
    widths = [int(v) for v in a.pad_width]
    before, after = widths[::2], widths[1::2]

    def compute(data: Any) -> Any:
        mode = a.pad_mode
        if mode == "constant":
            return topi.nn.pad(data, before, after, float(a.pad_value))
        if mode in ("reflect", "symmetric"):
            return topi.nn.mirror_pad(data, before, after, mode.upper())
        if mode in ("replicate", "edge"):
            return topi.nn.replicate_pad(data, before, after)
        return topi.nn.circular_pad(data, before, after)

    made: Expr = builder.call_te(compute, call.args[0], primfunc_name_hint="pad")
    return made


def _np_pad(data: Any, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0.0) -> Any:
    widths = [(pad_width[2 * i], pad_width[2 * i + 1]) for i in range(data.ndim)]
    if pad_mode == "constant":
        return np.pad(data, widths, constant_values=pad_value)
    names: dict[str, Any] = {"replicate": "edge", "circular": "wrap"}
    return np.pad(data, widths, mode=names.get(pad_mode, pad_mode))


_X = np.arange(20, dtype="float32").reshape(4, 5)
define(
    "nn.pad",
    _infer,
    legalize=_legalize,
    reference=_np_pad,
    samples=lambda: [
        ((_X,), {"pad_width": (1, 0, 2, 3), "pad_value": 1.5}),
        *(((_X,), {"pad_width": (1, 2, 2, 1), "pad_mode": mode}) for mode in ("reflect", "replicate", "circular")),
    ],
    arg_names=("data",),
)
