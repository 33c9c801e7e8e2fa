"""Random search: over the decisions of sketches, or by running the space function again and again."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.node import CHECK
from ...tir import Schedule
from ...tir.schedule import Trace
from ..arg_info import ArgInfo
from ..analysis.schedules import schedule_for_tuning
from .candidate import MeasureCandidate
from .search_strategy import SearchStrategy

if TYPE_CHECKING:
    from ..cost_model import CostModel
    from ..database import Database
    from ..postproc import Postproc
    from ..runner import RunnerResult
    from .search_task import SearchTask

__all__ = ["ReplayFunc", "ReplayTrace", "apply_trace"]


def apply_trace(
    context: SearchTask,
    trace: Trace,
    seed: int,
    failures: dict[str, int] | None = None,
    granted: Collection[Postproc] = (),
) -> Schedule | None:
    """Replay a trace and run the postprocs; None where one of them, or a primitive, refuses.

    The postprocs ``granted`` are known to agree, and to change nothing: they are not asked. Where the
    environment variable ``RELAXISH_CHECK`` is set they are, and the log says if one of them does not agree after all.
    """
    assert context.mod is not None and context.space_generator is not None
    known = context.space_generator.known_candidate(trace, seed)
    if known is not None:
        return known
    sch = schedule_for_tuning(context.mod, seed)
    try:
        trace.apply_to_schedule(sch, remove_postproc=True)
        sch.enter_postproc()
        for postproc in context.space_generator.postprocs:
            known = postproc in granted
            if known and not CHECK:
                continue
            if not postproc.apply(sch):
                if known:
                    context.logger.warning("%s refuses what it was known to admit:\n%s", type(postproc).__name__, trace)
                _count(failures, type(postproc).__name__)
                return None
    except Exception as err:  # a candidate that cannot be made is a failure of this candidate only
        _count(failures, type(err).__name__)
        context.logger.debug("a candidate could not be made: %s", err)
        return None
    return sch


def _count(failures: dict[str, int] | None, name: str) -> None:
    if failures is not None:
        failures[name] = failures.get(name, 0) + 1


class _Batches(SearchStrategy):
    """Counts trials; subclasses make one candidate at a time."""

    def __init__(self) -> None:
        self._context: SearchTask | None = None
        self._started = False

    def _initialize_with_tune_context(self, context: SearchTask) -> None:
        self._context = context
        self._seed = context.fork_seed()
        self._random = random.Random(self._seed)
        if context.mod is not None:
            self._args_info = ArgInfo.from_entry_func(context.mod, remove_preproc=True)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: list[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        if self._context is None:
            raise ValueError("the strategy was not initialised with a tune context")
        if self._started:
            raise ValueError("pre_tuning was called twice without post_tuning")
        if not design_spaces:
            raise ValueError("there are no sketches to search")
        if self._context.mod is None:
            raise ValueError("the tune context has no module")
        self._started = True
        self._max, self._batch, self._done, self._round_number = max_trials, num_trials_per_iter, 0, 0
        self._spaces = [s.trace.simplified(remove_postproc=True) for s in design_spaces if s.trace is not None]

    def post_tuning(self) -> None:
        self._started = False

    def save_state(self) -> dict[str, Any]:
        return {"round": self._round_number}

    def resume(self, rounds: int, trials: int, state: dict[str, Any]) -> None:
        self._round_number, self._done = int(state.get("round", rounds)), trials

    def _make(self) -> Schedule | None:
        raise NotImplementedError

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        if not self._started:
            raise ValueError("generate_measure_candidates needs pre_tuning first")
        count = min(self._batch, self._max - self._done)
        count = count if self.batch_limit is None else min(count, self.batch_limit)
        if count <= 0:
            return None
        if self._round_number:
            # A stream of its own for each round: a search that was stopped goes on as if it had not been.
            self._random = random.Random(f"{self._seed}:{self._round_number}")
        self._round_number += 1
        made: list[MeasureCandidate] = []
        for _ in range(count):
            sch = self._make()
            if sch is not None:
                made.append(MeasureCandidate(sch, self._args_info))
        return made or None

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        self._done += len(results)


class ReplayTrace(_Batches):
    """Picks a sketch and samples all its decisions; gives up on a slot after ``max_fail_count`` failures."""

    def __init__(self, max_fail_count: int = 100) -> None:
        super().__init__()
        self.max_fail_count = max_fail_count

    def _make(self) -> Schedule | None:
        assert self._context is not None
        for _ in range(self.max_fail_count):
            trace = Trace(self._random.choice(self._spaces).insts, {})
            sch = apply_trace(self._context, trace, self._random.randrange(1, 2**31 - 1))
            if sch is not None:
                return sch
        return None


class ReplayFunc(_Batches):
    """Runs the whole space generator for every candidate, so that the function itself may be random."""

    def _make(self) -> Schedule | None:
        context: Any = self._context
        for _ in range(100):
            spaces = context.space_generator.generate_design_space(context.mod)
            sch = self._random.choice(spaces)
            sch.enter_postproc()
            if all(postproc.apply(sch) for postproc in context.space_generator.postprocs):
                return sch
        return None
