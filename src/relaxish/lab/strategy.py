"""Strategies over recorded spaces, and how the searches of ``meta_schedule`` and AutoTVM become some."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult
from ..autotvm.task.space import ConfigSpace
from ..autotvm.task.subspace import VirtualAxis
from ..meta_schedule import TuneContext
from ..meta_schedule.arg_info import ArgInfo
from ..meta_schedule.database import MemoryDatabase, TuningRecord
from ..meta_schedule.measure.status import MeasureStatus
from ..meta_schedule.mutator import Mutator
from ..meta_schedule.runner import RunnerResult
from ..meta_schedule.search_strategy import MeasureCandidate, SearchStrategy
from ..support.errors import MissingExtraError, RelaxishError
from .models import ModelSpec, make_cost_model, use_recorded_features
from .replay import RecordedGenerator
from .space import RecordedSpace

if TYPE_CHECKING:
    from ..autotvm.tuner import Tuner

__all__ = ["MetaScheduleStrategy", "Strategy", "TPEStrategy", "TunerStrategy"]

Array = np.ndarray[Any, Any]


class Strategy:
    """A search over the numbers of a recorded space; subclass and define ``start``, ``propose`` and ``observe``.

    The same seed must give the same proposals after the same answers. A strategy is used for one search only.
    """

    def start(self, space: RecordedSpace, seed: int, trials: int, batch: int) -> None:
        """Begin a search of at most ``trials`` trials, ``batch`` at a time."""
        raise NotImplementedError

    def propose(self, count: int) -> list[int]:
        """Up to ``count`` numbers of recorded programs to measure next; none where the search is over."""
        raise NotImplementedError

    def observe(self, points: Sequence[int], seconds: Sequence[float]) -> None:
        """Learn what the last proposals took: seconds, infinite for those that failed."""

    def predictions(self) -> list[float] | None:
        """Scores the cost model gave the last proposals, higher for faster ones; None without a model."""
        return None

    def finish(self) -> None:
        """The search is over."""


class _Streams:
    """Random streams of a search's own, in the place of the global ones that tuners draw from."""

    def __init__(self, seed: int) -> None:
        self._state: Any = (random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state())

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Draw from them inside."""
        before = random.getstate(), np.random.get_state()
        random.setstate(self._state[0])
        np.random.set_state(self._state[1])
        try:
            yield
        finally:
            self._state = random.getstate(), np.random.get_state()
            random.setstate(before[0])
            np.random.set_state(before[1])


class _RecordedTask:
    """What tuners ask of an AutoTVM task; the numbers of its configurations are those of the recorded space."""

    def __init__(self, space: RecordedSpace) -> None:
        self.name, self.target, self.flop = space.name, space.target, 1.0
        self.workload = (space.name,)
        self.config_space = cfg = ConfigSpace()
        for dim in space.dims:
            if dim.kind == "tile":
                extent = math.prod(dim.values[0])
                parts = len(dim.values[0])
                cfg.define_split(
                    dim.name, VirtualAxis(extent, dim.name), policy="candidate", num_outputs=parts,
                    candidate=[list(v) for v in dim.values],
                )  # fmt: skip
            else:
                cfg.define_knob(dim.name, [v[0] for v in dim.values])
        if not space.complete:
            cfg.multi_filter(lambda entity: entity.index in space)


class TunerStrategy(Strategy):
    """A tuner of AutoTVM: ``make(task)`` gives it, for a task whose configurations are the recorded programs.

    There are no programs behind the configurations: cost models learn from parameters (``feature_type="knob"``).
    """

    def __init__(self, make: Callable[[Any], Tuner]) -> None:
        self.make = make

    def start(self, space: RecordedSpace, seed: int, trials: int, batch: int) -> None:
        self._task, self._streams, self._left = _RecordedTask(space), _Streams(seed), trials
        with self._streams.use():
            self._tuner = self.make(self._task)
        self._tuner.n_trial = self._tuner.ttl = trials

    def propose(self, count: int) -> list[int]:
        with self._streams.use():
            configs = self._tuner.next_batch(count) if self._tuner.has_next() else []
        self._configs = {int(c.index): c for c in configs}
        return list(self._configs)

    def observe(self, points: Sequence[int], seconds: Sequence[float]) -> None:
        self._left -= len(points)
        self._tuner.ttl = self._left
        inputs = [MeasureInput(self._task.target, self._task, self._configs[p]) for p in points]
        with self._streams.use():
            self._tuner.update(inputs, [_result(s) for s in seconds])


def _result(seconds: float) -> MeasureResult:
    if math.isfinite(seconds):
        return MeasureResult((seconds,), 0, seconds, 0.0)
    return MeasureResult(("recorded as failed", None), int(MeasureErrorNo.RUNTIME_DEVICE), 0.0, 0.0)


class MetaScheduleStrategy(Strategy):
    """A search strategy of ``meta_schedule`` with its cost model, on the programs themselves.

    ``make()`` gives the strategy; ``cost_model`` is what ``make_cost_model`` takes. ``mutators`` are those of the target's
    kind unless others are given by name and share.
    """

    def __init__(
        self,
        make: Callable[[], SearchStrategy],
        cost_model: ModelSpec = "xgb",
        mutators: Mapping[str, float] | None = None,
    ) -> None:
        self.make, self.cost_model, self.mutators = make, cost_model, mutators

    def start(self, space: RecordedSpace, seed: int, trials: int, batch: int) -> None:
        self._space, self._database = space, MemoryDatabase()
        mutators: Any = "from-target" if self.mutators is None else _mutators(self.mutators)
        self.context = TuneContext(
            space.mod, target=space.target,
            space_generator=RecordedGenerator(space, mutator_probs=mutators, lazy=True),
            search_strategy=self.make(), task_name=space.name, rand_state=seed + 1, num_threads=1,
        )  # fmt: skip
        self.model = use_recorded_features(make_cost_model(self.cost_model, seed), space)
        assert self.context.mod is not None
        self._workload = self._database.commit_workload(self.context.mod)
        self._info = ArgInfo.from_entry_func(self.context.mod, remove_preproc=True)
        self.context.pre_tuning(trials, batch, None, self._database, self.model)
        self._waiting: list[MeasureCandidate] = []

    def propose(self, count: int) -> list[int]:
        made = self.context.search_strategy.next_candidates() if self.context.search_strategy else []
        self._waiting = made[:count]
        found = [self._space.point_of(c.sch.trace) if c.sch.trace is not None else None for c in self._waiting]
        if any(point is None for point in found):
            raise RelaxishError(f"the strategy proposed a program that is not in the recorded space {self._space.name}")
        return [point for point in found if point is not None]

    def predictions(self) -> list[float] | None:
        found = [c.predicted for c in self._waiting]
        known = [math.nan if p is None else float(p) for p in found]
        return known if any(not math.isnan(p) for p in known) else None

    def observe(self, points: Sequence[int], seconds: Sequence[float]) -> None:
        results = [
            RunnerResult([s]) if math.isfinite(s) else RunnerResult(None, "recorded as failed", MeasureStatus.RUNTIME)
            for s in seconds
        ]
        for candidate, result in zip(self._waiting, results, strict=True):
            assert candidate.sch.trace is not None
            self._database.commit_tuning_record(
                TuningRecord(
                    candidate.sch.trace,
                    self._workload,
                    result.run_secs or [1e10],
                    self._space.target,
                    self._info,
                    error_msg=result.error_msg,
                    status=result.status,
                )  # fmt: skip
            )
        self.model.update(self.context, self._waiting, results)
        self.context.notify_runner_results(self._waiting, results)

    def finish(self) -> None:
        self.context.post_tuning()


def _mutators(shares: Mapping[str, float]) -> dict[Mutator, float]:
    from ..meta_schedule import mutator

    made: dict[Mutator, float] = {}
    for name, share in shares.items():
        found = getattr(mutator, name, None)
        if not (isinstance(found, type) and issubclass(found, Mutator)):
            raise RelaxishError(f"there is no mutator {name!r}; known are {', '.join(mutator.__all__)}")
        factory: Any = found
        made[factory(16) if name == "MutateParallel" else factory()] = float(share)
    return made


class TPEStrategy(Strategy):
    """Bayesian optimisation: the tree-structured Parzen estimator of Optuna, on logarithms of times.

    A proposal that is known already is answered from memory and costs no trial; after ``retries`` of those a random new
    one is taken. The sampler, whose proposals take time in proportion to what it knows, is told of the ``history`` best
    and newest trials. Raises MissingExtraError where optuna is not installed.
    """

    def __init__(self, at_once: int = 8, retries: int = 4, history: int = 256, **sampler: Any) -> None:
        try:
            import optuna
        except ImportError:
            raise MissingExtraError("optuna", "optuna", "Bayesian search") from None
        self._optuna: Any = optuna
        self.at_once, self.retries, self.history, self.sampler = at_once, retries, history, sampler

    def start(self, space: RecordedSpace, seed: int, trials: int, batch: int) -> None:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._rng = space, np.random.default_rng(seed)
        self._sampler = optuna.samplers.TPESampler(seed=seed, **self.sampler)
        self._study = optuna.create_study(sampler=self._sampler, direction="minimize")
        self._choices = {
            dim.name: optuna.distributions.CategoricalDistribution(list(range(len(dim)))) for dim in space.dims
        }
        self._known: dict[int, float] = {}
        self._open: dict[int, Any] = {}

    def propose(self, count: int) -> list[int]:
        found: list[int] = []
        self._open = {}
        self._forget()
        for _ in range(min(count, self.at_once, len(self._space) - len(self._known))):
            point = self._new_point(found)
            found.append(point)
        return found

    def _forget(self) -> None:
        """Begin a new study with half of what there is to know, once there is more than that: the best and the newest."""
        done = [t for t in self._study.get_trials(deepcopy=False) if t.state.is_finished()]
        if len(done) <= self.history:
            return
        told = [t for t in done if t.value is not None]
        kept = {t.number for t in sorted(told, key=lambda t: (t.value, t.number))[: self.history // 4]}
        kept.update(t.number for t in done[-(self.history // 4) :])
        self._study = self._optuna.create_study(sampler=self._sampler, direction="minimize")
        self._study.add_trials([t for t in done if t.number in kept])

    def _new_point(self, taken: Sequence[int]) -> int:
        for _ in range(self.retries):
            trial = self._study.ask(self._choices)
            point = self._space.point([trial.params[dim.name] for dim in self._space.dims])
            if point in self._known:
                self._tell(trial, self._known[point])
            elif point in taken or point not in self._space:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._open[point] = trial
                return point
        known = np.fromiter(itertools.chain(self._known, taken), dtype=np.int64)
        return int(self._rng.choice(np.setdiff1d(self._space.points, known)))

    def _tell(self, trial: Any, seconds: float) -> None:
        if math.isfinite(seconds):
            self._study.tell(trial, math.log(seconds))
        else:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def observe(self, points: Sequence[int], seconds: Sequence[float]) -> None:
        for point, value in zip(points, seconds, strict=True):
            self._known[point] = value
            trial = self._open.pop(point, None)
            if trial is not None:
                self._tell(trial, value)
            elif math.isfinite(value):
                params = dict(zip(self._choices, self._space.digits(point), strict=True))
                self._study.add_trial(
                    self._optuna.trial.create_trial(params=params, distributions=self._choices, value=math.log(value))
                )
