"""Losses: each makes a graph function of predictions and targets.

>>> from relaxish.relax import TensorStructInfo
>>> from relaxish.training.loss import MSELoss
>>> info = TensorStructInfo((3, 5), "float32")
>>> func = MSELoss()(info, info)
>>> len(func.params)
2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..op import nn
from ..op.binary import multiply, subtract
from ..op.datatype import astype
from ..op.search import argmax
from ..op.statistical import mean
from ..op.statistical import sum as sum_of
from ..op.unary import abs as absolute
from ..op.unary import negative
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Expr, Function, Var
from ..relax.struct_info import StructInfo, TensorStructInfo, as_struct_info

__all__ = ["CategoricalCrossEntropyLoss", "CrossEntropyLoss", "L1Loss", "Loss", "MSELoss"]


def _param(value: TensorStructInfo, name: str) -> Var:
    """A fresh parameter like ``value``, a variable or a struct info."""
    if isinstance(value, Var):
        return Var(value.name_hint, value.struct_info)
    return Var(name, value if isinstance(value, StructInfo) else as_struct_info(value))


def _weighted_params(
    predictions: TensorStructInfo, targets: TensorStructInfo, weights: TensorStructInfo | None
) -> tuple[list[Var], Var | None]:
    """The parameters of a loss of two or three arguments, and the third one."""
    params = [_param(predictions, "predictions"), _param(targets, "targets")]
    if weights is None:
        return params, None
    weight = _param(weights, "weights")
    return [*params, weight], weight


class Loss:
    """Base of all losses: a name, how many outputs of the backbone it takes, and how it reduces over the batch.

    Raises ValueError if ``reduction`` is not ``mean``, ``sum`` or ``none``.
    """

    _valid_reductions = ("mean", "sum", "none")

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if reduction not in self._valid_reductions:
            raise ValueError(f"Reduction can only be one of these values: {', '.join(self._valid_reductions)}")
        self._loss_name = loss_name
        self._reduction = reduction
        self._num_backbone_outputs = num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        """Number of leading parameters of the loss that are results of the backbone."""
        return self._num_backbone_outputs

    def _with_reduction(self, expr: Expr) -> Expr:
        if self._reduction == "none":
            return expr
        return sum_of(expr) if self._reduction == "sum" else mean(expr)

    def _function(self, params: Sequence[Var], build: Callable[[BlockBuilder], Any]) -> Function:
        builder = BlockBuilder()
        with builder.function(self._loss_name, list(params)):
            with builder.dataflow():
                result = builder.emit_output(build(builder))
            builder.emit_func_output(result)
        made: Function = builder.get()[self._loss_name]
        return made


class L1Loss(Loss):
    """Mean (or sum) of absolute differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: TensorStructInfo, targets: TensorStructInfo) -> Function:
        """The loss function for these parameters, given as variables or struct infos."""
        params = [_param(predictions, "predictions"), _param(targets, "targets")]

        def build(builder: BlockBuilder) -> Expr:
            difference = absolute(builder.emit(subtract(*params)))
            return difference if self._reduction == "none" else self._with_reduction(builder.emit(difference))

        return self._function(params, build)


class MSELoss(Loss):
    """Mean (or sum) of squared differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: TensorStructInfo, targets: TensorStructInfo) -> Function:
        """The loss function for these parameters, given as variables or struct infos."""
        params = [_param(predictions, "predictions"), _param(targets, "targets")]

        def build(builder: BlockBuilder) -> Expr:
            difference = builder.emit(subtract(*params))
            squared = multiply(difference, difference)
            return squared if self._reduction == "none" else self._with_reduction(builder.emit(squared))

        return self._function(params, build)


class CrossEntropyLoss(Loss):
    """``log_softmax`` and ``nll_loss``: predictions are logits, targets class numbers."""

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(
        self, predictions: TensorStructInfo, targets: TensorStructInfo, weights: TensorStructInfo | None = None
    ) -> Function:
        """The loss function for these parameters, given as variables or struct infos."""
        params, weight = _weighted_params(predictions, targets, weights)

        def build(builder: BlockBuilder) -> Expr:
            logits = builder.emit(nn.log_softmax(params[0]))
            return nn.nll_loss(logits, params[1], weight, self._reduction, self.ignore_index)

        return self._function(params, build)


class CategoricalCrossEntropyLoss(Loss):
    """Cross entropy with targets as probabilities (or one-hot vectors)."""

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("categorical_cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(self, predictions: Any, targets: Any, weights: Any = None) -> Function:
        """The loss function for these parameters, given as variables or struct infos."""
        params, weight = _weighted_params(predictions, targets, weights)

        def build(builder: BlockBuilder) -> Expr:
            logits = builder.emit(nn.log_softmax(params[0]))
            if self.ignore_index >= 0:
                classes = builder.emit(argmax(params[1], axis=1))
                return nn.nll_loss(logits, classes, weight, self._reduction, self.ignore_index)
            negated = builder.emit(negative(logits))
            dtype = params[0].struct_info.dtype
            same = params[1].struct_info.dtype == dtype
            wanted = params[1] if same else builder.emit(astype(params[1], dtype))
            lost = builder.emit(multiply(negated, wanted))
            if weight is not None:
                lost = builder.emit(multiply(lost, weight))
            return self._with_reduction(lost)

        return self._function(params, build)
