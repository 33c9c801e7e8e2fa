"""Losses of PyTorch over classes."""

from __future__ import annotations

from typing import Any

from ... import op
from ...ir import dtype as dt
from ...relax.expr import Expr
from .importer import Deferred, Dim, dtype_of, Importer
from .table import converter

__all__: list[str] = []

_NAMES = {0: "none", 1: "mean", 2: "sum"}


@converter("nll_loss", "nll_loss_nd", "nll_loss2d")
def _nll_loss(
    self: Importer, x: Expr, target: Expr, weight: Expr | None = None, reduction: int = 1, ignore_index: int = -100
) -> Expr:
    return self.emit(op.nn.nll_loss(x, target, weight, _NAMES[reduction], ignore_index))


@converter("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss_forward(self: Importer, *args: Any) -> list[Any]:
    return [_nll_loss(self, *args), Deferred.missing("the total weight of nll_loss, which its backward pass takes,")]


@converter("cross_entropy_loss")
def _cross_entropy(
    self: Importer, x: Expr, target: Expr, weight: Expr | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Expr:  # fmt: skip
    """Targets are classes, or probabilities of all classes if they are floating-point numbers."""
    if dt.is_float(dtype_of(target)):
        return _of_probabilities(self, x, target, weight, reduction, label_smoothing)
    single = self.rank(x) == 1
    if single:
        x, target = self.emit(op.expand_dims(x, 0)), self.emit(op.reshape(target, [1]))
    logs = self.emit(op.nn.log_softmax(x, -1 if self.rank(x) == 2 else 1))
    loss = _nll_loss(self, logs, target, weight, reduction, ignore_index)
    if label_smoothing:
        rest = _uniform_loss(self, logs, target, weight, reduction, ignore_index)
        share = label_smoothing / self.shape(x)[1]
        kept = self.emit(op.multiply(loss, self.scalar(1 - label_smoothing, dtype_of(loss))))
        loss = self.emit(op.add(kept, self.emit(op.multiply(rest, self.scalar(share, dtype_of(rest))))))
    return self.emit(op.squeeze(loss, [0])) if single and reduction == 0 else loss


def _row(self: Importer, weight: Expr, x: Expr, axis: int) -> Expr:
    shape: list[Dim] = [1] * self.rank(x)
    shape[axis] = self.shape(x)[axis]
    return self.emit(op.reshape(weight, shape))


def _of_probabilities(
    self: Importer, x: Expr, target: Expr, weight: Expr | None, reduction: int, label_smoothing: float
) -> Expr:
    axis = 0 if self.rank(x) == 1 else 1
    kind, classes = dtype_of(x), self.shape(x)[axis]
    target = self.cast(target, kind)
    if label_smoothing:
        target = self.emit(op.multiply(target, self.scalar(1 - label_smoothing, kind)))
        target = self.emit(op.add(target, self.scalar(label_smoothing / classes, kind)))
    loss = self.emit(op.multiply(self.emit(op.nn.log_softmax(x, axis)), target))
    if weight is not None:
        loss = self.emit(op.multiply(loss, _row(self, weight, x, axis)))
    if reduction == 0:
        return self.emit(op.negative(self.emit(op.sum(loss, [axis]))))
    total = self.emit(op.negative(self.emit(op.sum(loss))))
    if reduction == 2:
        return total
    count: Any = 1
    for d, size in enumerate(self.shape(x)):
        count = count if d == axis else count * size
    return self.emit(op.divide(total, self.scalar(count, kind)))


def _uniform_loss(
    self: Importer, logs: Expr, target: Expr, weight: Expr | None, reduction: int, ignore_index: int
) -> Expr:
    """What a loss against equal shares of all classes adds up to (not yet divided by their number)."""
    kind = dtype_of(logs)
    weighted = logs if weight is None else self.emit(op.multiply(logs, _row(self, weight, logs, 1)))
    loss = self.emit(op.negative(self.emit(op.sum(weighted, [1]))))
    ignored = self.emit(op.equal(target, self.scalar(ignore_index, dtype_of(target))))
    loss = self.emit(op.where(ignored, self.scalar(0.0, kind), loss))
    if reduction == 0:
        return loss
    total = self.emit(op.sum(loss))
    if reduction == 2:
        return total
    counted = self.cast(self.emit(op.logical_not(ignored)), kind)
    if weight is not None:
        known = self.emit(op.where(ignored, self.scalar(0, dtype_of(target)), target))
        flat = self.emit(op.reshape(known, [-1]))
        picked = self.emit(op.reshape(self.emit(op.take(weight, flat, 0)), self.shape(target)))
        counted = self.emit(op.multiply(counted, picked))
    return self.emit(op.divide(total, self.emit(op.sum(counted))))
