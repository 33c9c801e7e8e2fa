"""From measured times of tilings to the constants of the estimate (``relaxish.carver.HopperCosts``).

The constants that make the logarithms of estimated and measured times agree best. Single wild measurements count little
(Huber's weights), and a constant that no measurement depends on stays as published: moving away costs something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["FITTED", "Fit", "Measurement", "columns", "fit", "rank_correlation"]

FITTED = (
    "launch", "multiply_adds", "bytes_from_shared", "bytes_into_processor", "bytes_from_l2", "latency", "start", "step",
    "cluster_step", "cluster_barrier", "cluster_bytes", "bytes_out", "bytes_out_direct",
)  # fmt: skip
"""Constants that are fitted. Those with whole numbers in their formula (processors that clusters can take) are not."""
_HELD_OUT = 5  # every so many measurements tell how good the fit is and are not fitted to
_LEAST = 4 * len(FITTED)
_ROUNDS = 60
_STEP = 0.02
_PRIOR = 0.03  # of a constant e times the published one, in the scale of relative errors
_WILD = 0.1  # relative errors beyond this count by their size, not by its square
_USELESS = 0.3  # an estimate that is so far off in the median explains nothing, whatever it was before
_MOST_MOVED = 2.3  # logarithm of how far a constant may move: ten times


@dataclass(frozen=True)
class Measurement:
    """What a tile's work took."""

    work: Any
    """``relaxish.carver.TileWork``."""
    seconds: float
    name: str = ""


@dataclass(frozen=True)
class Fit:
    """Constants, and the median relative error of the estimate over measurements that were not fitted to."""

    costs: Any
    error: float
    error_before: float
    correlation: float
    correlation_before: float

    @property
    def better(self) -> bool:
        """Whether the constants are worth keeping: nearer than before, and near at all."""
        return self.error < min(self.error_before, _USELESS)

    def changed(self) -> dict[str, float]:
        """The fitted constants to four digits, as a calibration table has them."""
        return {name: float(f"{getattr(self.costs, name):.4g}") for name in FITTED}


def columns(work: Sequence[Any]) -> Any:
    """Works of tiles as one whose fields are columns."""
    names = vars(work[0])
    return replace(work[0], **{name: np.array([getattr(w, name) for w in work]) for name in names})


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, of values that are mostly distinct."""
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def fit(measured: Sequence[Measurement], costs: Any) -> Fit | None:
    """The constants that explain measurements best, starting from ``costs``; None for too few measurements."""
    usable = [m for m in measured if np.isfinite(m.seconds) and m.seconds > 0]
    if len(usable) < _LEAST:
        return None
    held = np.arange(len(usable)) % _HELD_OUT == _HELD_OUT - 1
    work, seconds = [m.work for m in usable], np.array([m.seconds for m in usable])
    train = columns([w for w, out in zip(work, held, strict=True) if not out])
    found = _least_squares(train, np.log(seconds[~held]), costs)
    test = columns([w for w, out in zip(work, held, strict=True) if out])

    def quality(of: Any) -> tuple[float, float]:
        estimated = of.seconds(test)
        return float(np.median(np.abs(estimated / seconds[held] - 1))), rank_correlation(estimated, seconds[held])

    (after, order), (before, order_before) = quality(found), quality(costs)
    return Fit(found, after, before, order, order_before)


def _least_squares(work: Any, wanted: np.ndarray, costs: Any) -> Any:
    """Levenberg and Marquardt's method on the logarithms of constants, with weights against wild measurements."""
    start = np.array([getattr(costs, name) for name in FITTED])

    def moved(by: np.ndarray) -> Any:
        return replace(costs, **dict(zip(FITTED, (start * np.exp(by)).tolist(), strict=True)))

    def residuals(by: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(moved(by).seconds(work)) - wanted
        return found

    def loss(errors: np.ndarray, by: np.ndarray) -> float:
        size = np.abs(errors)
        each = np.where(size < _WILD, size**2, 2 * _WILD * size - _WILD**2)
        return float(each.sum() + (_PRIOR * by) @ (_PRIOR * by))

    by, damping = np.zeros(len(FITTED)), 1e-2
    errors = residuals(by)
    for _ in range(_ROUNDS):
        slopes = np.stack(
            [(residuals(by + d) - residuals(by - d)) / (2 * _STEP) for d in np.eye(len(by)) * _STEP], axis=1
        )
        weights = np.minimum(1.0, _WILD / np.maximum(np.abs(errors), 1e-12))
        normal = (slopes * weights[:, None]).T @ slopes + _PRIOR**2 * np.eye(len(by))
        slope = (slopes * weights[:, None]).T @ errors + _PRIOR**2 * by
        while damping < 1e6:
            change = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope)
            tried = np.clip(by + change, -_MOST_MOVED, _MOST_MOVED)
            fresh = residuals(tried)
            if loss(fresh, tried) < loss(errors, by):
                break
            damping *= 4
        else:
            break
        gain = loss(errors, by) - loss(fresh, tried)
        by, errors, damping = tried, fresh, damping / 4
        if gain < 1e-9:
            break
    return moved(by)
