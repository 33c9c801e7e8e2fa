"""Simulated annealing over a cost model: many walkers at once, each step a few matrix operations.

Source: Chen et al., "Learning to optimize tensor programs" (NeurIPS 2018).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TYPE_CHECKING

import numpy as np

from ...support.log import get_logger

if TYPE_CHECKING:
    from ..task.task import Task
    from .xgboost_cost_model import XGBoostCostModel

__all__ = ["ModelOptimizer", "SimulatedAnnealingOptimizer"]

_log = get_logger("autotvm")
Array = np.ndarray[Any, Any]


class ModelOptimizer:
    """Subclass and define ``find_maximums``."""

    def find_maximums(self, model: XGBoostCostModel, num: int, exclusive: Collection[int]) -> list[int]:
        """The numbers of the ``num`` configurations that a model expects most of, none of ``exclusive``, best first."""
        raise NotImplementedError


class _Best:
    """The best points seen so far."""

    def __init__(self, num: int, exclusive: Collection[int]) -> None:
        self.num = num
        self.exclusive = exclusive
        self.scores: dict[int, float] = {}
        self.floor = -np.inf

    def add(self, points: Array, scores: Array) -> bool:
        """Whether one of the points is among the best and new."""
        changed = False
        for i in np.flatnonzero(scores > self.floor):
            point = int(points[i])
            if point not in self.scores and point not in self.exclusive:
                self.scores[point] = float(scores[i])
                changed = True
        if len(self.scores) > self.num:
            kept = sorted(self.scores.items(), key=lambda x: -x[1])[: self.num]
            self.scores, self.floor = dict(kept), kept[-1][1]
        return changed

    def ranked(self) -> list[int]:
        return sorted(self.scores, key=lambda p: -self.scores[p])


class SimulatedAnnealingOptimizer(ModelOptimizer):
    """``parallel_size`` walkers make ``n_iter`` steps while the temperature falls (``temp``: a number, or from and to).

    ``persistent`` walkers begin where they stood; the walk ends after ``early_stop`` steps without a new best point.
    """

    def __init__(
        self,
        task: Task,
        n_iter: int = 500,
        temp: float | tuple[float, float] = (1, 0),
        persistent: bool = True,
        parallel_size: int = 128,
        early_stop: int = 50,
        log_interval: int = 50,
    ) -> None:
        self.task = task
        self.n_iter, self.temp, self.persistent = n_iter, temp, persistent
        self.parallel_size = min(parallel_size, task.config_space.count)
        self.early_stop = early_stop or 1 << 60
        self.log_interval = log_interval
        self.points: Array | None = None

    def find_maximums(self, model: XGBoostCostModel, num: int, exclusive: Collection[int]) -> list[int]:
        space = self.task.config_space
        columns = space.columns
        rng = np.random.default_rng(int(np.random.randint(1 << 31)))
        if self.persistent and self.points is not None:
            points = self.points
        else:
            points = np.array([int(p) for p in space.sample_ints(self.parallel_size)], dtype=object)
        digits = columns.digits(points)
        scores = np.asarray(model.predict(points), dtype=np.float64)
        best = _Best(num, exclusive)
        best.add(points, scores)
        hot, cold = self.temp if isinstance(self.temp, tuple) else (self.temp, self.temp)
        step, since, last = 0, 0, 0
        while step < self.n_iter and since < self.early_stop:
            temperature = hot + (cold - hot) * step / max(1, self.n_iter)
            moved = columns.walk(digits, rng)
            there = columns.points(moved)
            found = np.asarray(model.predict(there), dtype=np.float64)
            allowed = space.valid_mask(there)
            with np.errstate(over="ignore"):
                chance = np.exp(np.minimum((found - scores) / (temperature + 1e-5), 1.0))
            accepted = allowed & (rng.random(len(found)) < chance)
            digits[accepted], scores[accepted] = moved[accepted], found[accepted]
            points = np.asarray(points, dtype=object)
            points[accepted] = there[accepted]
            if best.add(there[allowed], found[allowed]):
                last = step
            since = step - last
            step += 1
        if self.log_interval:
            _log.debug("SA: %d steps, best expected %.3f", step, max(best.scores.values(), default=0.0))
        if self.persistent:
            self.points = points
        return best.ranked()
