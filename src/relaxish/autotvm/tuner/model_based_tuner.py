"""Tuners that plan with a cost model: measure a plan, learn, plan anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ...support.log import get_logger
from ..measure.measure import MeasureInput, MeasureResult
from .sa_model_optimizer import ModelOptimizer
from .tuner import Tuner, speed_of

if TYPE_CHECKING:
    from .xgboost_cost_model import XGBoostCostModel

__all__ = ["ModelBasedTuner", "submodular_pick"]

_log = get_logger("autotvm")
Array = np.ndarray[Any, Any]
_SAMPLES, _PARENTS, _CHILDREN, _REACH, _SAME_TILE = 4096, 8, 64, 3.0, 3
# Configurations in a row that make no program before one of them costs a trial.
_PATIENCE = 64


class ModelBasedTuner(Tuner):
    """``plan_size`` configurations are planned by ``model_optimizer`` on ``cost_model``, the last 5 % are random.

    Before the model has learned anything configurations are random, or near what a model of the machine expects to be
    fast, for tasks that have one. With ``diversity_filter_ratio`` that many times the plan are found, and the plan is
    chosen of them by how many different values of parameters it covers.
    """

    def __init__(
        self,
        task: Any,
        cost_model: XGBoostCostModel,
        model_optimizer: ModelOptimizer,
        plan_size: int,
        diversity_filter_ratio: float | None = None,
    ) -> None:
        super().__init__(task)
        if diversity_filter_ratio is not None and diversity_filter_ratio < 1:
            raise ValueError("Diversity filter ratio must be larger than one")
        self.space = task.config_space
        self.plan_size = plan_size
        self.cost_model, self.model_optimizer = cost_model, model_optimizer
        self.diversity_filter_ratio = diversity_filter_ratio
        self.visited: set[int] = set()
        self.xs: list[int] = []
        self.ys: list[float] = []
        self.trials: list[int] = []
        self.trial_pt = 0
        self.train_ct = 0
        self.flops_max = 0.0
        self._refused = self._given = 0
        self._prior = _Prior(self, task) if isinstance(task, _Foreseen) else None

    def has_next(self) -> bool:
        return len(self.visited) < self.space.count

    def foresees(self) -> bool:
        # What is measured changes the plan when a plan has been measured.
        return self._given < self.plan_size * (self.train_ct + 1)

    def next_batch(self, batch_size: int) -> list[Any]:
        out: list[Any] = []
        if self._prior is not None and not self.train_ct and not self.trials:
            for index in self._prior.propose(batch_size):
                self.visited.add(index)
                out.append(self.space.get(index))
        while len(out) < batch_size and self.has_next():
            planned = self._planned()
            index = planned if planned is not None else int(self.space.get_rand_index(to_exclude=self.visited))
            self.visited.add(index)
            if self._admitted(index):
                out.append(self.space.get(index))
        self._given += len(out)
        return out

    def _admitted(self, index: int) -> bool:
        """Whether a configuration is worth a trial; after many that are not, the next one is tried all the same."""
        admits = getattr(self.task, "admits", None)
        if admits is None or self._refused >= _PATIENCE or admits(index):
            self._refused = 0
            return True
        self._refused += 1
        return False

    def _planned(self) -> int | None:
        """The next of the plan; None where a random one is due."""
        while self.trial_pt < len(self.trials):
            if self.trial_pt >= len(self.trials) - int(0.05 * self.plan_size):
                return None
            index = self.trials[self.trial_pt]
            self.trial_pt += 1
            if index not in self.visited and self.space.is_index_valid(index):
                return index
        return None

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            speed = speed_of(inp, res)
            self.xs.append(int(inp.config.index))
            self.ys.append(speed)
            self.flops_max = max(self.flops_max, speed)
        finished = self.ttl is not None and self.ttl <= 0
        if len(self.xs) >= self.plan_size * (self.train_ct + 1) and self.flops_max > 1e-6 and not finished:
            self.cost_model.fit(self.xs, self.ys, self.plan_size)
            self._plan(self.cost_model)
            self.train_ct += 1

    def _plan(self, model: XGBoostCostModel) -> None:
        count = self.plan_size
        if self.diversity_filter_ratio:
            found = self.model_optimizer.find_maximums(model, int(count * self.diversity_filter_ratio), self.visited)
            scores = model.predict(found)
            chosen = submodular_pick(0 * scores, self.space.columns.digits(found), count, knob_weight=1)
            found = [found[i] for i in chosen]
        else:
            found = self.model_optimizer.find_maximums(model, count, self.visited)
        self.trials, self.trial_pt = found, 0

    def known(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        self.visited.update(int(inp.config.index) for inp in inputs)
        self._given += len(inputs)
        self.update(inputs, results)

    def load_history(self, data_set: Sequence[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 500) -> None:
        """Begin with what measurements of other tasks of this template say, if there are ``min_seed_records``."""
        base = self.cost_model.spawn_base_model()
        if not base.fit_log(data_set, self.plan_size, min_seed_records):
            _log.warning("There are too few records of %s to begin with; tuning begins without.", self.task.name)
            return
        if not self.trials:
            self.trials, self.trial_pt = self.model_optimizer.find_maximums(base, self.plan_size, self.visited), 0
        self.cost_model.load_basemodel(base)

    def reset(self) -> None:
        super().reset()
        self.visited, self.xs, self.ys, self.trials = set(), [], [], []
        self.trial_pt = self.train_ct = self._given = 0
        self.flops_max = 0.0


def submodular_pick(scores: Array, knobs: Array, n_pick: int, knob_weight: float = 1.0) -> list[int]:
    """Greedily the rows with most score plus ``knob_weight`` for each parameter value that no chosen row has yet."""
    knobs = np.asarray(knobs)
    fresh = [np.ones(int(knobs[:, j].max(initial=0)) + 1, bool) for j in range(knobs.shape[1])]
    left = np.ones(len(knobs), bool)
    chosen: list[int] = []
    for _ in range(min(n_pick, len(knobs))):
        gain = np.asarray(scores, dtype=np.float64).copy()
        for j, table in enumerate(fresh):
            gain += knob_weight * table[knobs[:, j]]
        gain[~left] = -np.inf
        best = int(np.argmax(gain))
        chosen.append(best)
        left[best] = False
        for j, table in enumerate(fresh):
            table[knobs[best, j]] = False
    return chosen


@runtime_checkable
class _Foreseen(Protocol):
    """A task that knows before measuring how long a configuration takes and whether it can be built."""

    def cycles(self, points: Array | Sequence[int]) -> Array | None: ...

    def admits(self, index: int) -> bool: ...


class _Prior:
    """Where to begin: what a model of the machine expects, corrected by how long similar tilings really took."""

    def __init__(self, tuner: ModelBasedTuner, task: _Foreseen) -> None:
        self.tuner, self.task = tuner, task
        self.space = tuner.space
        self.rng = np.random.default_rng(int(np.random.randint(1 << 31)))

    def _candidates(self) -> Array:
        columns = self.space.columns
        drawn = self.rng.integers(0, columns.dims, (_SAMPLES, len(columns.dims)))
        parts = [drawn]
        speeds = np.array(self.tuner.ys)
        for i in np.argsort(-speeds, kind="stable")[:_PARENTS]:
            if speeds[i] > 0:
                children = np.repeat(columns.digits([self.tuner.xs[i]]), _CHILDREN, axis=0)
                children = columns.walk(children, self.rng)
                children[::2] = columns.walk(children[::2], self.rng)
                parts.append(children)
        return np.unique(np.concatenate(parts), axis=0)

    def propose(self, count: int) -> list[int]:
        """Numbers of configurations, few with the same innermost sizes; none where there is no model."""
        columns = self.space.columns
        digits = self._candidates()
        points = columns.points(digits)
        new = np.array([int(p) not in self.tuner.visited for p in points], bool) & self.space.valid_mask(points)
        points = points[new]
        expected = self.task.cycles(points) if len(points) else None
        if expected is None:
            return []
        sizes = np.log2(np.maximum(columns.split_sizes(points), 1))
        logs = np.log(np.asarray(expected)) + self._error_near(sizes)
        out: list[int] = []
        uses: dict[tuple[int, ...], int] = self._uses()
        inner = self._inner(points)
        for i in np.argsort(logs, kind="stable"):
            key = tuple(int(v) for v in inner[i])
            if uses.get(key, 0) >= _SAME_TILE + len(self.tuner.xs) // 8:
                continue
            if not self.task.admits(int(points[i])):
                self.tuner.visited.add(int(points[i]))
                continue
            uses[key] = uses.get(key, 0) + 1
            out.append(int(points[i]))
            if len(out) == count:
                break
        return out

    def _inner(self, points: Array | Sequence[int]) -> Array:
        """The innermost size of each split."""
        columns = self.space.columns
        digits = columns.digits(points)
        split = [j for j, s in enumerate(columns.spaces) if type(s).__name__ == "SplitSpace"]
        return np.stack([columns.tables[j][digits[:, j], -1] for j in split], axis=1)

    def _uses(self) -> dict[tuple[int, ...], int]:
        uses: dict[tuple[int, ...], int] = {}
        if self.tuner.xs:
            for row in self._inner(self.tuner.xs):
                key = tuple(int(v) for v in row)
                uses[key] = uses.get(key, 0) + 1
        return uses

    def _error_near(self, places: Array) -> Array:
        """How much longer than expected (in logs) tilings like these took."""
        good = [i for i, y in enumerate(self.tuner.ys) if y > 0]
        if not good:
            return np.zeros(len(places))
        columns = self.space.columns
        xs = [self.tuner.xs[i] for i in good]
        expected = self.task.cycles(xs)
        if expected is None:
            return np.zeros(len(places))
        error = -np.log([self.tuner.ys[i] for i in good]) - np.log(expected)
        error -= np.median(error)
        known = np.log2(np.maximum(columns.split_sizes(xs), 1))
        total, weight = np.zeros(len(places)), np.full(len(places), 0.5)
        for row, miss in zip(known, error, strict=True):
            near = np.exp(-((np.abs(places - row).sum(axis=1) / _REACH) ** 2))
            total += near * miss
            weight += near
        found: Array = total / weight
        return found
