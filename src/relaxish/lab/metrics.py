"""Metrics of a cost model's predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tools.statistics import spearman, top_k_recall

__all__ = ["ModelMetrics", "model_metrics"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of the predictions for one batch, made before it was measured.

    ``rank_correlation`` is Spearman's, of predictions and speeds (0 where one of them does not vary); ``recall`` the share
    of the fastest quarter of the batch that is in the quarter predicted to be fastest; ``rmse`` the error of speeds over the
    best so far, after the predictions were put on their scale by least squares.
    """

    trials: int
    rank_correlation: float
    recall: float
    rmse: float


def model_metrics(trials: int, predicted: Array, seconds: Array, best: float) -> ModelMetrics | None:
    """Metrics of those predictions that are numbers, for programs that ran; None for fewer than four."""
    keep = np.isfinite(predicted) & np.isfinite(seconds)
    scores, speeds = predicted[keep], best / seconds[keep]
    if len(scores) < 4:
        return None
    spread = scores - scores.mean()
    power = float(spread @ spread)
    slope = float(spread @ (speeds - speeds.mean())) / power if power > 0 else 0.0
    error = speeds - (speeds.mean() + slope * spread)
    recall = top_k_recall(scores, speeds, max(1, len(scores) // 4))
    order = spearman(scores, speeds)
    return ModelMetrics(trials, order if math.isfinite(order) else 0.0, recall, float(np.sqrt(np.mean(error**2))))
