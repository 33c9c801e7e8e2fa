"""Evolutionary search over the decisions of sketches, on whole populations at once where sketches allow it.

Source: Shao et al., "Tensor program optimization with probabilistic programs" (NeurIPS 2022).
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir import Schedule
from ...tir.schedule import Trace
from ..arg_info import ArgInfo
from ..database.database import is_here
from ..profiler import Profiler
from .population import VectorPool
from .replay import apply_trace
from .replayed import ReplayedEvolution
from .candidate import MeasureCandidate
from .search_strategy import SearchStrategy
from .similar import Seed, similar_seeds, trace_of_seed
from .trace_key import trace_key

if TYPE_CHECKING:
    from ..cost_model import CostModel
    from ..database import Database, TuningRecord
    from ..runner import RunnerResult
    from .search_task import SearchTask

__all__ = ["EvolutionarySearch"]

# Programs sampled each round for sketches without a matrix form, where other sketches have one.
_REPLAYED = 8
# Trials after which what similar workloads have taught is in the population, or was of no use.
_SEEDED = 16
# Measurements of a kernel from which on the cost model's word is enough.
_FEW = 32
_RATIOS = ("init_measured_ratio", "eps_greedy", "genetic_mutate_prob", "similar_ratio")


class EvolutionarySearch(SearchStrategy):
    """Each round: best of the database and fresh samples, ``genetic_num_iters`` generations of mutation ranked by the
    cost model, then the best unseen candidates with a share ``eps_greedy`` of random ones. Of the first trials a share
    ``similar_ratio`` are the best schedules of similar workloads in the database, for the sizes of this one.

    Sketches whose programs differ only by numbers are searched as matrices of decisions (see ``population``); only what
    will be measured becomes a program. Others are replayed one by one, and the log says why.

    Every round draws from a random stream of its own, named by the task's seed and the round's number, so that a search
    that was stopped goes on as if it had not been.
    """

    def __init__(
        self,
        *,
        population_size: int = 512,
        init_measured_ratio: float = 0.2,
        init_min_unmeasured: int = 50,
        max_fail_count: int = 5,
        genetic_num_iters: int = 4,
        genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10,
        eps_greedy: float = 0.05,
        vectorize: bool = True,
        similar_ratio: float = 0.5,
    ) -> None:
        self.population_size = population_size
        self.num_empty_iters_before_early_stop = 5
        self.init_measured_ratio = init_measured_ratio
        self.init_min_unmeasured = init_min_unmeasured
        self.max_fail_count = max_fail_count
        self.genetic_num_iters = genetic_num_iters
        self.genetic_mutate_prob = genetic_mutate_prob
        self.genetic_max_fail_count = genetic_max_fail_count
        self.eps_greedy = eps_greedy
        self.vectorize = vectorize
        self.similar_ratio = similar_ratio
        for name in _RATIOS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, not {getattr(self, name)}")
        self.candidates_examined = 0
        self.search_seconds = 0.0
        self.args_info: list[ArgInfo] = []
        self._context: SearchTask | None = None
        self._started = False

    def _initialize_with_tune_context(self, context: SearchTask) -> None:
        self._context = context
        self._seed = context.fork_seed()
        if context.mod is not None:
            self.args_info = list(ArgInfo.from_entry_func(context.mod, remove_preproc=True))

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
        if database is None or cost_model is None:
            raise ValueError("the evolutionary search needs a database and a cost model")
        if not design_spaces:
            raise ValueError("there are no sketches to search")
        if self._context.mod is None or self._context.space_generator is None:
            raise ValueError("the evolutionary search needs a context with module and space generator")
        self._started = True
        self._max, self._batch, self._done, self._empty, self._round_number = max_trials, num_trials_per_iter, 0, 0, 0
        self._database, self._cost_model = database, cost_model
        self._spaces = [s.trace.simplified(remove_postproc=True) for s in design_spaces if s.trace is not None]
        self._failures: dict[str, int] = {}
        self._replayed = 0
        self._workload = database.commit_workload(self._context.mod)
        # What any earlier run measured on this machine, failures included, is never measured again.
        self._measured = {trace_key(r.trace) for r in database.records_of(self._workload) if is_here(r)}
        self._pool = VectorPool(self._context, self._spaces, self._seed) if self.vectorize else None
        # Found now, not when they are needed: what other tasks of this run measure until then depends on the clock.
        rng = np.random.default_rng([self._seed, 11])
        fresh = self.similar_ratio > 0 and len(self._measured) < num_trials_per_iter
        self._seeds = similar_seeds(self._context, self._spaces, database, rng) if fresh else []

    def save_state(self) -> dict[str, Any]:
        state = {"round": self._round_number, "pool": {} if self._pool is None else self._pool.save_state()}
        return state if self._done >= _SEEDED else {**state, "seeds": [list(seed) for seed in self._seeds]}

    def resume(self, rounds: int, trials: int, state: dict[str, Any]) -> None:
        self._round_number, self._done = int(state.get("round", rounds)), trials
        self._seeds = [Seed(*seed) for seed in state.get("seeds", [])]
        if self._pool is not None:
            self._pool.load_state(state.get("pool", {}))

    def note_candidates(self, measure_candidates: Sequence[MeasureCandidate]) -> None:
        self._measured.update(trace_key(c.sch.trace) for c in measure_candidates if c.sch.trace is not None)

    def post_tuning(self) -> None:
        if not self._started:
            raise ValueError("post_tuning was called before pre_tuning")
        self._started = False
        if self._failures:
            assert self._context is not None
            reasons = ", ".join(f"{name}: {n}" for name, n in sorted(self._failures.items()))
            self._context.logger.info("candidates that could not be made, by reason: %s", reasons)

    def clone(self) -> EvolutionarySearch:
        return EvolutionarySearch(
            population_size=self.population_size,
            init_measured_ratio=self.init_measured_ratio,
            init_min_unmeasured=self.init_min_unmeasured,
            max_fail_count=self.max_fail_count,
            genetic_num_iters=self.genetic_num_iters,
            genetic_mutate_prob=self.genetic_mutate_prob,
            genetic_max_fail_count=self.genetic_max_fail_count,
            eps_greedy=self.eps_greedy,
            vectorize=self.vectorize,
            similar_ratio=self.similar_ratio,
        )

    # ---- one round

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        if not self._started:
            raise ValueError("generate_measure_candidates needs pre_tuning first")
        wanted = min(self._batch, self._max - self._done)
        wanted = wanted if self.batch_limit is None else min(wanted, self.batch_limit)
        begin = time.perf_counter()
        made: list[MeasureCandidate] = []
        while wanted > 0 and not made and self._empty < self.num_empty_iters_before_early_stop:
            failed = sum(self._failures.values())
            self._random = random.Random(f"{self._seed}:{self._round_number}")
            traces = self._round(wanted)
            with Profiler.timeit("EvoSearch/Evolve/Misc"):
                made = self._assemble(traces, wanted)
            self._round_number += 1
            self._empty = 0 if made else self._empty + 1
            if sum(self._failures.values()) == failed:
                break  # nothing new was found; where candidates could not be made, others may be
        self.search_seconds += time.perf_counter() - begin
        over = wanted <= 0 or self._empty >= self.num_empty_iters_before_early_stop
        return None if over and not made else made

    def _assemble(self, traces: Sequence[tuple[float | None, Trace]], wanted: int) -> list[MeasureCandidate]:
        """Programs of the chosen traces; those that cannot be made are dropped."""
        assert self._context is not None
        made: list[MeasureCandidate] = []
        for score, trace in traces:
            if len(made) >= wanted:
                break
            key = trace_key(trace)
            if key in self._measured:
                continue
            self._measured.add(key)
            # Of the trace alone, so that what was tried before it makes no difference to a run that goes on.
            seed = random.Random(f"{self._seed}:{key}").randrange(1, 2**31 - 1)
            granted = () if self._pool is None else self._pool.granted(trace)
            sch = apply_trace(self._context, trace, seed, self._failures, granted)
            if sch is None or sch.trace is None:
                continue
            final = trace_key(sch.trace)
            # A decision the program adapted is remembered in the form it took.
            if final != key and final in self._measured:
                continue
            self._measured.add(final)
            candidate = MeasureCandidate(sch, self.args_info)
            candidate.predicted = score
            made.append(candidate)
        return made

    def _round(self, wanted: int) -> list[tuple[float | None, Trace]]:
        made = [trace_of_seed(self._spaces[s.sketch], s) for s in (self._seeds if self._done < _SEEDED else ())]
        seeds = [trace for trace in made if not self.is_measured(trace)]
        with Profiler.timeit("EvoSearch/PickBestFromDatabase"):
            count = int(self.population_size * self.init_measured_ratio)
            best = [*seeds, *(r.trace for r in self._database.get_top_k(self._workload, count))]
        num_random = max(0, min(wanted, round(wanted * self.eps_greedy + self._random.random() * 0.999 - 0.5)))
        spare = max(4, wanted // 4)
        pool = (
            self._pool if self._pool is not None and self._pool.usable() and self._cost_model.takes_features else None
        )
        if pool is not None:
            pool.reseed(np.random.default_rng([self._seed, self._round_number]))
            scored, rest = pool.search(self, best, wanted + spare)
            if pool.left_out and self._cost_model.trained:
                slow, _ = self._replay_round(best, pool.left_out, _REPLAYED)
                scored = sorted(scored + slow, key=lambda item: -item[0])
        else:
            scored, rest = self._replay_round(best, self._spaces, max(self.init_min_unmeasured, 1))
        self.candidates_examined = self._replayed + (0 if self._pool is None else self._pool.examined)
        with Profiler.timeit("EvoSearch/PickWithEpsGreedy"):
            known = self._cost_model.trained
            given: list[tuple[float | None, Trace]] = [
                (None, t) for t in seeds[: math.ceil(wanted * self.similar_ratio)]
            ]
            ranked: list[tuple[float | None, Trace]] = [(s if known else None, t) for s, t in scored]
            # What a model has learnt from other kernels may mislead it here: every second one is chosen without it.
            unsure = known and len(self.records()) < _FEW
            others = pool.advise(self, wanted) if unsure and pool is not None else []
            pairs = itertools.zip_longest(ranked, [(None, t) for t in others])
            ranked = [found for pair in pairs for found in pair if found is not None]
            unranked: list[tuple[float | None, Trace]] = [(None, t) for t in rest]
            cut = max(0, wanted - num_random - len(given))
            return given + ranked[:cut] + unranked[:num_random] + ranked[cut:] + unranked[num_random:]

    def _replay_round(
        self, best: Sequence[Trace], spaces: Sequence[Trace], count: int
    ) -> tuple[list[tuple[float, Trace]], list[Trace]]:
        assert self._context is not None
        evolution = ReplayedEvolution(
            self._context, self, self._cost_model, self._random, self._measured.__contains__, self._failures
        )
        found = evolution.run(spaces, best[:count], count)
        self._replayed += evolution.examined
        return found

    # ---- what the pool asks

    @property
    def cost_model(self) -> CostModel:
        """The model that ranks candidates."""
        return self._cost_model

    def records(self) -> list[TuningRecord]:
        """Measurements of this workload, by this run and by earlier ones."""
        found = self._database.records_of(self._workload) if self._started else []
        return [r for r in found if is_here(r)]

    def is_measured(self, trace: Trace) -> bool:
        """Whether the decisions were measured before."""
        return trace_key(trace) in self._measured

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        self._done += len(results)

    @property
    def candidates_per_second(self) -> float:
        """Candidates generated, checked and scored per second of search."""
        return self.candidates_examined / self.search_seconds if self.search_seconds else 0.0
