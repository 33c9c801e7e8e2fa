"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import topi
from ...relax.expr import Call, Expr
from ...relax.scalars import const_int, prove_equal
from ...relax.struct_info import StructInfo
from ..inference import (
    as_expr,
    common_dtype,
    common_vdevice,
    fail,
    input_tensors,
    make_call,
    tensor,
    tensor_arg,
    type_fail,
)
from ..record import define

__all__ = ["cross_entropy_with_logits", "nll_loss"]


def cross_entropy_with_logits(predictions: Any, labels: Any) -> Expr:
    """``-sum(predictions * labels)``, divided by the batch size if there is a batch; predictions are log-probabilities."""
    return make_call("nn.cross_entropy_with_logits", [as_expr(predictions), as_expr(labels)])


def nll_loss(
    predictions: Any, targets: Any, weights: Any = None, reduction: str = "mean", ignore_index: int = -100
) -> Expr:
    """Negative log likelihood of integer targets, optionally weighted by class."""
    args = [as_expr(predictions), as_expr(targets)]
    if weights is not None:
        args.append(as_expr(weights))
    return make_call("nn.nll_loss", args, {"reduction": reduction, "ignore_index": int(ignore_index)})


def _infer_cross_entropy(call: Call, builder: Any) -> StructInfo:
    a, b = input_tensors(call, 2)
    dtype = common_dtype(call, [a, b])
    device = common_vdevice(call, [a, b])
    if a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim:
        raise fail(call, f"predictions and labels must have the same rank, not {a.ndim} and {b.ndim}")
    x, y = a.dims(), b.dims()
    if x is not None and y is not None:
        for p, q in zip(x, y):
            if const_int(p) is not None and const_int(q) is not None and const_int(p) != const_int(q):
                raise fail(call, f"predictions and labels must have the same shape, not {x} and {y}")
    return tensor([], dtype, vdevice=device)


def _infer_nll(call: Call, builder: Any) -> StructInfo:
    if len(call.args) not in (2, 3):
        raise fail(call, f"Op should take 2 or 3 arguments, but {len(call.args)} were given")
    pred, target = tensor_arg(call, 0, "predictions"), tensor_arg(call, 1, "targets")
    weights = tensor_arg(call, 2, "weights") if len(call.args) == 3 else None
    dtype = common_dtype(call, [pred, weights] if weights is not None else [pred])
    if target.dtype and "int" not in target.dtype:
        raise type_fail(call, f"expects the dtype of targets to be int/uint, but it is {target.dtype}")
    kind = call.attrs.reduction
    if kind not in ("none", "sum", "mean"):
        raise fail(call, f"expects reduction to be one of none, sum and mean, but got {kind}")
    if pred.ndim == 0:
        raise fail(call, "expects the rank of predictions to be at least 1")
    if pred.ndim >= 0 and target.ndim >= 0 and pred.ndim != target.ndim + 1:
        raise fail(
            call,
            f"expects predictions to have one more dimension than targets, but they have {pred.ndim} and {target.ndim}",
        )
    if weights is not None and weights.ndim not in (1, -1):
        raise fail(call, f"expects weights to have 1 dimension, not {weights.ndim}")
    dims, wanted = pred.dims(), target.dims()
    if dims is not None and wanted is not None:
        rest = [*dims[:1], *dims[2:]] if len(dims) > 1 else []
        for have, want in zip(rest, wanted):
            a, b = const_int(have), const_int(want)
            if a is not None and b is not None and a != b:
                raise fail(call, f"predictions and targets do not fit: {a} and {b}")
    if weights is not None and dims is not None:
        size = weights.dims()
        classes = dims[0] if len(dims) == 1 else dims[1]
        if size is not None:
            a, b = const_int(size[0]), const_int(classes)
            if a is not None and b is not None and a != b:
                raise fail(call, f"expects one weight a class: {a} weights, {b} classes")
            if (a is None or b is None) and not prove_equal(size[0], classes):
                pass
    device = common_vdevice(call, [pred, target])
    if kind != "none":
        return tensor([], dtype, vdevice=device)
    if wanted is not None:
        return tensor(list(wanted), dtype, vdevice=device)
    if dims is not None:
        return tensor([*dims[:1], *dims[2:]] if len(dims) > 1 else [], dtype, vdevice=device)
    ndim = target.ndim if target.ndim >= 0 else pred.ndim - 1 if pred.ndim > 0 else -1
    return tensor(None, dtype, ndim, device)


def _legalize_cross_entropy(builder: Any, call: Call) -> Expr:
    def compute(x: Any, y: Any) -> Any:
        total = topi.negative(topi.sum(topi.multiply(x, y)))
        return topi.divide(total, x.shape[0]) if len(x.shape) > 1 else total

    made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint="cross_entropy_with_logits")
    return made


def _legalize_nll(builder: Any, call: Call) -> Expr:
    kind, ignore = call.attrs.reduction, int(call.attrs.ignore_index)

    def compute(predictions: Any, targets: Any, weights: Any = None) -> Any:
        if weights is None:
            classes = predictions.shape[1] if len(predictions.shape) > 1 else predictions.shape[0]
            weights = topi.full([classes], predictions.dtype, 1.0)
        return topi.nn.nll_loss(predictions, targets, weights, kind, ignore)

    made: Expr = builder.call_te(compute, *call.args, primfunc_name_hint="nll_loss")
    return made


def _np_nll(p: Any, t: Any, w: Any = None, reduction: str = "mean", ignore_index: int = -100) -> Any:
    w = np.ones(p.shape[1], p.dtype) if w is None else w
    used = t != ignore_index
    safe = np.where(used, t, 0)
    picked = np.take_along_axis(p, np.expand_dims(safe, 1), 1).squeeze(1)
    weight = w[safe] * used
    loss = -picked * weight
    if reduction == "none":
        return loss.astype(p.dtype)
    return np.asarray(loss.sum() if reduction == "sum" else loss.sum() / weight.sum(), p.dtype)


_RNG = np.random.default_rng(13)
_P = _RNG.uniform(-2, 0, (4, 5)).astype("float32")
_T = np.array([0, 3, 4, 1])
define(
    "nn.cross_entropy_with_logits",
    _infer_cross_entropy,
    legalize=_legalize_cross_entropy,
    precision="never",
    reference=lambda p, q: np.asarray(-(p * q).sum() / p.shape[0], p.dtype),
    samples=lambda: [((_P, np.abs(_P)), {})],
    arg_names=("predictions", "labels"),
)
define(
    "nn.nll_loss",
    _infer_nll,
    legalize=_legalize_nll,
    precision="never",
    reference=_np_nll,
    samples=lambda: [
        ((_P, _T), {}),
        ((_P, _T, np.abs(_P[0])), {"reduction": "mean", "ignore_index": 3}),
        ((_P, _T), {"reduction": "none"}),
    ],
    arg_names=("predictions", "targets", "weights"),
)
