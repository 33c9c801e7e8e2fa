"""Normalisation operators of PyTorch, with the statistics that they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import op, relax
from ...ir import dtype as dt
from ...relax.expr import Expr
from .importer import Deferred, Dim, dtype_of, Importer, Number
from .table import converter

__all__: list[str] = []


def _number(self: Importer, value: Number, x: Expr) -> Expr:
    return self.scalar(value, dtype_of(x))


def _wide(self: Importer, x: Expr) -> Expr:
    """``x`` in the type that statistics are computed in: float32, for double precision float64."""
    return x if dtype_of(x) == "float64" else self.cast(x, "float32")


def _rstd(self: Importer, variance: Expr, eps: float) -> Expr:
    return self.emit(op.rsqrt(self.emit(op.add(variance, _number(self, eps, variance)))))


def _statistics(self: Importer, x: Expr, axes: list[int], keepdims: bool) -> tuple[Expr, Expr]:
    """Mean and variance (of the population) in the type of :func:`_wide`."""
    x = _wide(self, x)
    return self.emit(op.mean(x, axes, keepdims)), self.emit(op.variance(x, axes, keepdims))


def _mean_and_rstd(self: Importer, x: Expr, axes: list[int], keepdims: bool, eps: float) -> list[Deferred[Expr]]:
    """The further results of a norm, in the type of ``x``; both come from one pass over it."""
    both = Deferred(lambda: _statistics(self, x, axes, keepdims))
    kind = dtype_of(x)
    return [
        Deferred(lambda: self.cast(both.value()[0], kind)),
        Deferred(lambda: self.cast(_rstd(self, both.value()[1], eps), kind)),
    ]


def _empty(self: Importer, x: Expr) -> Deferred[Expr]:
    return Deferred(lambda: relax.const(np.zeros([0], dtype="float32"), "float32"))


def _inference_norm(
    self: Importer, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, eps: float
) -> Expr:
    channels, kind = self.shape(x)[1], dtype_of(x)
    if weight is None:
        weight = self.emit(op.ones([channels], kind))
    if bias is None:
        bias = self.emit(op.zeros([channels], kind))
    out = self.emit(op.nn.batch_norm(x, weight, bias, mean, variance, axis=1, epsilon=eps, training=False))
    return self.emit(relax.TupleGetItem(out, 0))


class _Batch:
    """Batch norm by the statistics of the batch itself."""

    def __init__(self, self_: Importer, x: Expr, eps: float) -> None:
        self.importer, self.x, self.eps = self_, x, eps
        self.axes = [0, *range(2, self_.rank(x))]
        self.mean, self.variance = _statistics(self_, x, self.axes, False)

    def _row(self, vector: Expr) -> Expr:
        shape = [1, self.importer.shape(self.x)[1], *(1 for _ in self.axes[1:])]
        return self.importer.emit(op.reshape(vector, shape))

    def out(self, weight: Expr | None, bias: Expr | None) -> Expr:
        """The normalised batch, scaled and moved, in its own type."""
        it = self.importer
        made = it.emit(op.subtract(_wide(it, self.x), self._row(self.mean)))
        made = it.emit(op.multiply(made, self._row(_rstd(it, self.variance, self.eps))))
        if weight is not None:
            made = it.emit(op.multiply(made, self._row(it.cast(weight, dtype_of(made)))))
        if bias is not None:
            made = it.emit(op.add(made, self._row(it.cast(bias, dtype_of(made)))))
        return it.cast(made, dtype_of(self.x))

    def saved(self) -> list[Deferred[Expr]]:
        """Mean and reciprocal standard deviation, as PyTorch saves them for the backward pass."""
        it, kind = self.importer, dtype_of(self.x)
        return [
            Deferred(lambda: it.cast(self.mean, kind)),
            Deferred(lambda: it.cast(_rstd(it, self.variance, self.eps), kind)),
        ]

    def running(self, mean: Expr, variance: Expr, momentum: float) -> list[Deferred[Expr]]:
        """The running statistics after this batch; their variance is that of a sample, not of the population."""
        it = self.importer

        def unbiased() -> Expr:
            count: Any = 1
            for axis in self.axes:
                count = count * it.shape(self.x)[axis]
            count = it.scalar(count, dtype_of(self.variance))
            others = it.emit(op.subtract(count, _number(it, 1, count)))
            return it.emit(op.multiply(self.variance, it.emit(op.divide(count, others))))

        def mixed(old: Any, new: Any) -> Expr:
            kind = dtype_of(old)
            kept = it.emit(op.multiply(it.cast(old, dtype_of(new)), _number(it, 1 - momentum, new)))
            return it.cast(it.emit(op.add(kept, it.emit(op.multiply(new, _number(it, momentum, new))))), kind)

        return [Deferred(lambda: mixed(mean, self.mean)), Deferred(lambda: mixed(variance, unbiased()))]


@converter("batch_norm")
def _batch_norm(
    self: Importer, x: Expr, weight: Expr | None, bias: Expr | None, running_mean: Expr, running_var: Expr, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5, *_: Any, **__: Any,
) -> Expr:  # fmt: skip
    # One that updates running statistics writes to them, and does not come here.
    if training or running_mean is None:
        return _Batch(self, x, eps).out(weight, bias)
    return _inference_norm(self, x, weight, bias, running_mean, running_var, eps)


@converter("_native_batch_norm_legit", "native_batch_norm", "cudnn_batch_norm")
def _native_batch_norm(
    self: Importer, x: Expr, weight: Expr | None, bias: Expr | None, running_mean: Expr, running_var: Expr, training: bool,
    momentum: float, eps: float,
) -> list[Any]:  # fmt: skip
    if not training:
        out = _inference_norm(self, x, weight, bias, running_mean, running_var, eps)
        return [out, _empty(self, x), _empty(self, x)]
    batch = _Batch(self, x, eps)
    return [batch.out(weight, bias), *batch.saved()]


@converter("_native_batch_norm_legit.no_stats")
def _without_running_statistics(
    self: Importer, x: Expr, weight: Expr | None, bias: Expr | None, training: bool, momentum: float, eps: float
) -> list[Any]:
    batch = _Batch(self, x, eps)
    return [batch.out(weight, bias), *batch.saved()]


@converter("_native_batch_norm_legit_no_training")
def _no_training(
    self: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    momentum: float,
    eps: float,
) -> list[Any]:
    return _native_batch_norm(self, x, weight, bias, running_mean, running_var, False, momentum, eps)


@converter("_native_batch_norm_legit_functional")
def _functional_batch_norm(
    self: Importer, x: Expr, weight: Expr | None, bias: Expr | None, running_mean: Expr, running_var: Expr, training: bool,
    momentum: float, eps: float,
) -> list[Any]:  # fmt: skip
    """The running statistics after the batch come last."""
    if not training:
        made = _native_batch_norm(self, x, weight, bias, running_mean, running_var, False, momentum, eps)
        return [*made, running_mean, running_var]
    batch = _Batch(self, x, eps)
    return [batch.out(weight, bias), *batch.saved(), *batch.running(running_mean, running_var, momentum)]


@converter("layer_norm")
def _layer_norm(
    self: Importer,
    x: Expr,
    shape: Sequence[int],
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Expr:
    kind = dtype_of(x)
    sizes = (
        [self.known(x, axis, "layer_norm") for axis in range(-len(shape), 0)] if weight is None or bias is None else []
    )
    weight = relax.const(np.ones(sizes, dt.numpy_dtype(kind)), kind) if weight is None else weight
    bias = relax.const(np.zeros(sizes, dt.numpy_dtype(kind)), kind) if bias is None else bias
    axes = list(range(-len(shape), 0))
    return self.emit(op.nn.layer_norm(x, weight, bias, axes=axes, epsilon=eps))


@converter("native_layer_norm")
def _native_layer_norm(
    self: Importer, x: Expr, shape: Sequence[int], weight: Expr | None, bias: Expr | None, eps: float
) -> list[Any]:
    axes = list(range(self.rank(x) - len(shape), self.rank(x)))
    return [_layer_norm(self, x, shape, weight, bias, eps), *_mean_and_rstd(self, x, axes, True, eps)]


@converter("group_norm")
def _group_norm(
    self: Importer,
    x: Expr,
    groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Expr:
    channels, kind = self.shape(x)[1], dtype_of(x)
    weight = self.emit(op.ones([channels], kind)) if weight is None else weight
    bias = self.emit(op.zeros([channels], kind)) if bias is None else bias
    axes = list(range(2, self.rank(x)))
    return self.emit(op.nn.group_norm(x, weight, bias, groups, channel_axis=1, axes=axes, epsilon=eps))


@converter("native_group_norm")
def _native_group_norm(
    self: Importer,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    batch: Dim,
    channels: Dim,
    plane: Dim,
    groups: int,
    eps: float,
) -> list[Any]:
    grouped = Deferred(lambda: self.emit(op.reshape(x, [batch, groups, -1])))
    both = Deferred(lambda: _mean_and_rstd(self, grouped.value(), [2], False, eps))
    out = _group_norm(self, x, groups, weight, bias, eps)
    return [out, *(Deferred(lambda n=n: both.value()[n].value()) for n in (0, 1))]  # type: ignore[misc]


@converter("rms_norm")
def _rms_norm(
    self: Importer, x: Expr, shape: Sequence[int], weight: Expr | None = None, eps: float | None = None
) -> Expr:
    kind = dtype_of(x)
    weight = self.emit(op.ones(list(shape), kind)) if weight is None else weight
    return self.emit(op.nn.rms_norm(x, weight, axes=list(range(-len(shape), 0)), epsilon=_rms_epsilon(kind, eps)))


def _rms_epsilon(kind: str, eps: float | None) -> float:
    """What PyTorch takes where none is given: the epsilon of the type that it computes in."""
    if eps is not None:
        return eps
    return float(np.finfo("float64").eps) if kind == "float64" else 1.1920929e-07


@converter("_fused_rms_norm")
def _fused_rms_norm(self: Importer, x: Expr, shape: Sequence[int], weight: Expr | None, eps: float | None) -> list[Any]:
    axes = list(range(self.rank(x) - len(shape), self.rank(x)))
    epsilon = _rms_epsilon(dtype_of(x), eps)

    def rstd() -> Expr:
        wide = _wide(self, x)
        square = self.emit(op.mean(self.emit(op.multiply(wide, wide)), axes, True))
        return _rstd(self, square, epsilon)

    return [_rms_norm(self, x, shape, weight, eps), Deferred(rstd)]
