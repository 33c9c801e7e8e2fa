"""Losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te, topi
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, ShapeExpr, Var
from ...relax.scalars import const_int
from ...relax.struct_info import StructInfo, TensorStructInfo
from ..base import no_grad
from ..binary import divide, multiply
from ..grad import nll_loss_backward
from ..inference import (
    OpValueError,
    as_expr,
    as_int,
    common_dtype,
    common_vdevice,
    fail,
    input_tensors,
    make_call,
    provably_differ,
    tensor,
    tensor_arg,
    type_fail,
)
from ..literals import const_like
from ..lowering import te_call
from ..record import define
from ..unary import negative

__all__ = ["cross_entropy_with_logits", "nll_loss"]


def cross_entropy_with_logits(predictions: Expr, labels: Expr) -> Expr:
    """``-sum(predictions * labels)``, divided by the batch size if there is a batch; predictions are log-probabilities."""
    return make_call("nn.cross_entropy_with_logits", [as_expr(predictions), as_expr(labels)])


def nll_loss(
    predictions: Expr, targets: Expr, weights: Expr | None = None, reduction: str = "mean", ignore_index: int = -100
) -> Expr:
    """Negative log likelihood of integer targets, optionally weighted by class."""
    if reduction not in ("none", "sum", "mean"):
        raise OpValueError(
            "The argument reduction of NLLLoss should be one of the following values: none, mean, sum. "
            f"However, the given value is {reduction}"
        )
    args = [as_expr(predictions), as_expr(targets)]
    if weights is not None:
        args.append(as_expr(weights))
    return make_call("nn.nll_loss", args, {"reduction": reduction, "ignore_index": as_int(ignore_index)})


def _infer_cross_entropy(call: Call, builder: BlockBuilder) -> StructInfo:
    a, b = input_tensors(call, 2)
    dtype = common_dtype(call, [a, b])
    device = common_vdevice(call, [a, b])
    if a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim:
        raise fail(call, f"requires predictions and labels to have the same ndim, not {a.ndim} and {b.ndim}")
    for k, (x, y) in enumerate(zip(a.dims() or (), b.dims() or ())):
        if provably_differ(x, y):
            raise fail(call, f"requires the predictions and labels to have the same shape, but at dim {k}: {x} and {y}")
    return tensor([], dtype, vdevice=device)


def _infer_nll(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) not in (2, 3):
        raise fail(call, f"Op should take 2 or 3 arguments, but {len(call.args)} were given")
    pred, target = tensor_arg(call, 0, "predictions"), tensor_arg(call, 1, "targets")
    weights = tensor_arg(call, 2, "weights") if len(call.args) == 3 else None
    judged = [pred] if weights is None else [pred, weights]
    dtype, device = common_dtype(call, judged), common_vdevice(call, judged)
    if target.dtype and not target.dtype.startswith(("int", "uint", "bool")):
        raise type_fail(call, f"expects the dtype of targets to be int/uint. However, it is {target.dtype}")
    _check_nll_ranks(call, pred, target, weights)
    left = _check_nll_shapes(call, pred, target, weights)
    if call.attrs.reduction != "none":
        return tensor([], dtype, vdevice=device)
    if isinstance(pred.shape, ShapeExpr):
        return tensor(left, dtype, vdevice=device)
    return tensor(None, dtype, -1 if pred.ndim < 0 else pred.ndim - 1, device)


def _check_nll_ranks(
    call: Call, pred: TensorStructInfo, target: TensorStructInfo, weights: TensorStructInfo | None
) -> None:
    """Predictions are ``(C,)`` or ``(N, C, d1, ..)``, targets ``()`` or ``(N, d1, ..)``, weights ``(C,)``."""
    if pred.ndim == 0:
        raise fail(call, "expects the ndim of predictions >= 1. However, it is 0")
    if pred.ndim > 0 and target.ndim >= 0:
        k, of_target = max(pred.ndim - 2, 0), max(target.ndim - 1, 0)
        if k != of_target:
            raise fail(
                call,
                "expects number of dimensions K inferred from different arguments to be equal. However, K from "
                f"predictions is {k} while K from targets is {of_target}",
            )
    if weights is not None and weights.ndim not in (1, -1):
        raise fail(call, f"expects the ndim of weights == 1. However, it is {weights.ndim}")


def _check_nll_shapes(
    call: Call, pred: TensorStructInfo, target: TensorStructInfo, weights: TensorStructInfo | None
) -> list[Any]:
    """Compare batch size, classes and the other extents. Returns the shape of the losses, if predictions are known."""
    dims, wanted = pred.dims(), target.dims()
    classes = None if dims is None else dims[0] if len(dims) == 1 else dims[1]
    left = [] if dims is None or len(dims) == 1 else [dims[0], *dims[2:]]
    if dims is not None and wanted is not None:
        if bool(left) != bool(wanted):
            raise fail(call, f"predictions of shape {list(dims)} do not fit targets of shape {list(wanted)}")
        for have, want in zip(left, wanted):
            if provably_differ(have, want):
                raise fail(call, f"predictions and targets do not fit one another: {have} and {want}")
    size = None if weights is None else weights.dims()
    if size is not None and classes is not None and provably_differ(classes, size[0]):
        raise fail(call, f"expects one weight for each class: {size[0]} weights, {classes} classes")
    return left


def _legalize_cross_entropy(builder: BlockBuilder, call: Call) -> Expr:
    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        total = topi.negative(topi.sum(topi.multiply(x, y)))
        return topi.divide(total, x.shape[0]) if len(x.shape) > 1 else total

    return te_call(builder, "cross_entropy_with_logits", compute, *call.args)


def _nll_loss_without_weight(
    predictions: te.Tensor, targets: te.Tensor, reduction: str, ignore_index: int
) -> te.Tensor:
    classes = predictions.shape[1 if len(predictions.shape) > 1 else 0]
    weights = topi.full([classes], predictions.dtype, 1.0)
    return topi.nn.nll_loss(predictions, targets, weights, reduction, ignore_index)


def _legalize_nll(builder: BlockBuilder, call: Call) -> Expr:
    weighted = len(call.args) == 3
    compute = topi.nn.nll_loss if weighted else _nll_loss_without_weight
    name = "nll_loss" if weighted else "nll_loss_without_weight"
    return te_call(builder, name, compute, *call.args, call.attrs.reduction, int(call.attrs.ignore_index))


def _np_nll(
    p: np.ndarray, t: np.ndarray, w: np.ndarray | None = None, reduction: str = "mean", ignore_index: int = -100
) -> np.ndarray:
    w = np.ones(p.shape[1], p.dtype) if w is None else w
    used = t != ignore_index
    safe = np.where(used, t, 0)
    picked = np.take_along_axis(p, np.expand_dims(safe, 1), 1).squeeze(1)
    weight = w[safe] * used
    loss = -picked * weight
    if reduction == "none":
        return loss.astype(p.dtype)
    return np.asarray(loss.sum() if reduction == "sum" else loss.sum() / weight.sum(), p.dtype)


def _cross_entropy_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    x, y = call.args
    if x.struct_info.ndim > 1:
        size = const_int(x.struct_info.dims()[0])
        if size is None:
            raise ValueError("the gradient of cross_entropy_with_logits needs a known batch size")
        share = divide(out, const_like(float(size), out))
        return [multiply(negative(share), y), multiply(negative(share), x)]
    return [multiply(negative(out), y), multiply(negative(out), x)]


def _nll_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    predictions, targets, *weights = call.args
    weight, ignored = weights[0] if weights else None, int(call.attrs.ignore_index)
    by_predictions = nll_loss_backward(out, predictions, targets, weight, call.attrs.reduction, ignored)
    return [by_predictions, *(no_grad(arg) for arg in call.args[1:])]


_RNG = np.random.default_rng(13)
_P = _RNG.uniform(-2, 0, (4, 5)).astype("float32")
_T = np.array([0, 3, 4, 1])
define(
    "nn.cross_entropy_with_logits",
    _infer_cross_entropy,
    gradient=_cross_entropy_gradient,
    legalize=_legalize_cross_entropy,
    reference=lambda p, q: np.asarray(-(p * q).sum() / p.shape[0], p.dtype),
    samples=lambda: [((_P, np.abs(_P)), {})],
)
define(
    "nn.nll_loss",
    _infer_nll,
    attrs="NLLLoss",
    gradient=_nll_gradient,
    legalize=_legalize_nll,
    reference=_np_nll,
    samples=lambda: [
        ((_P, _T), {}),
        ((_P, _T, np.abs(_P[0])), {"reduction": "mean", "ignore_index": 3}),
        ((_P, _T), {"reduction": "none"}),
    ],
)
