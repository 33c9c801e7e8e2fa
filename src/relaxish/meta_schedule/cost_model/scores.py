"""Scores as a search can use them, whatever a cost model gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...support.log import get_logger

__all__ = ["believable_scores"]

_log = get_logger("meta_schedule")
_LARGEST = 1e30
_TOLD: set[str] = set()


def believable_scores(model: object, count: int, predict: Callable[[], object]) -> np.ndarray[Any, Any]:
    """``count`` finite scores from ``predict()``; what is no number ranks last.

    A model that raises, or gives something else than a score for each candidate, says nothing about any of them.
    """
    try:
        scores = np.asarray(predict(), dtype=float).reshape(-1)
        problem = "" if scores.shape == (count,) else f"it gave {scores.size} scores for {count} candidates"
    except Exception as err:  # models may be the user's
        problem = f"{type(err).__name__}: {err}"
    if problem:
        _tell(type(model).__name__, problem)
        return np.zeros(count)
    if not np.isfinite(scores).all():
        _tell(type(model).__name__, "it gave scores that are no finite numbers")
        scores = np.where(np.isfinite(scores), scores, 0.0)
    clipped: np.ndarray[Any, Any] = np.clip(scores, -_LARGEST, _LARGEST)
    return clipped


def _tell(name: str, problem: str) -> None:
    """Warn of a model once for each kind of problem."""
    text = f"the cost model {name} cannot be used: {problem}"
    if text not in _TOLD:
        _TOLD.add(text)
        _log.warning("%s", text)
