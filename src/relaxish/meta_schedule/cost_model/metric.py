"""Metrics of predictions: pairwise-free errors and the peak among the best-ranked."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["average_peak_score", "max_curve", "p_rmse"]


def max_curve(trial_scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The running maximum: best score found after each trial."""
    return np.maximum.accumulate(trial_scores)


def average_peak_score(predictions: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], n: int) -> float:
    """Mean over k <= n of (best label among the k best predictions) / (best label)."""
    order = np.argsort(-predictions, kind="stable")
    curve = max_curve(labels[order][:n])
    best = np.max(labels, initial=0.0)
    return float(np.mean(curve) / best) if best > 0 and curve.size else 0.0


def p_rmse(predictions: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    """Root mean squared error weighted towards fast programs, where ranking matters."""
    return float(np.sqrt(np.mean(np.square(predictions - labels)))) if labels.size else 0.0
