"""Evolutionary search over the decisions of sketches, on whole populations at once where sketches allow it."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir import Schedule
from ...tir.schedule import Trace
from ..arg_info import ArgInfo
from ..profiler import Profiler
from .population import VectorPool
from .replay import apply_trace
from .search_strategy import MeasureCandidate, SearchStrategy
from .trace_key import trace_key

if TYPE_CHECKING:
    from ..cost_model import CostModel
    from ..database import Database, TuningRecord
    from ..runner import RunnerResult
    from ..tune_context import TuneContext

__all__ = ["EvolutionarySearch"]


class EvolutionarySearch(SearchStrategy):
    """Each round: best of the database and fresh samples, ``genetic_num_iters`` generations of mutation ranked by the
    cost model, then the best unseen candidates with a share ``eps_greedy`` of random ones.

    Sketches whose programs differ only by numbers are searched as matrices of decisions (see ``population``); only what
    will be measured becomes a program. Others are replayed one by one, and the log says why.
    """

    def __init__(
        self, *, population_size: int = 512, init_measured_ratio: float = 0.2, init_min_unmeasured: int = 50,
        max_fail_count: int = 5, genetic_num_iters: int = 4, genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10, eps_greedy: float = 0.05, vectorize: bool = True,
    ) -> None:
        for name, value in (("init_measured_ratio", init_measured_ratio), ("eps_greedy", eps_greedy),
                            ("genetic_mutate_prob", genetic_mutate_prob)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is a probability, not {value}")
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
        self.candidates_examined = 0
        self.search_seconds = 0.0
        self._context: TuneContext | None = None
        self._started = False

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if context.mod is None or context.space_generator is None:
            raise ValueError("the evolutionary search needs a context with module and space generator")
        if self._context is context:
            return
        self._context = context
        self._seed = context.fork_seed()
        self._args_info = ArgInfo.from_entry_func(context.mod, remove_preproc=True)

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: list[Schedule],
        database: Database | None = None, cost_model: CostModel | None = None,
    ) -> None:
        if self._context is None:
            raise ValueError("the strategy was not initialised with a tune context")
        if self._started:
            raise ValueError("pre_tuning was called twice without post_tuning")
        if database is None or cost_model is None:
            raise ValueError("the evolutionary search needs a database and a cost model")
        if not design_spaces:
            raise ValueError("there are no sketches to search")
        assert self._context.mod is not None
        self._started = True
        self._max, self._batch, self._done, self._empty = max_trials, num_trials_per_iter, 0, 0
        self._database, self._cost_model = database, cost_model
        self._spaces = [s.trace.simplified(remove_postproc=True) for s in design_spaces if s.trace is not None]
        self._random = random.Random(self._seed)
        self._failures: dict[str, int] = {}
        self._workload = database.commit_workload(self._context.mod)
        # What any earlier run measured, failures included, is never measured again.
        self._measured = {trace_key(r.trace) for r in database.records_of(self._workload)}
        self._pool = VectorPool(self._context, self._spaces, np.random.default_rng(self._seed)) \
            if self.vectorize else None

    def post_tuning(self) -> None:
        self._started = False

    def clone(self) -> EvolutionarySearch:
        return EvolutionarySearch(
            population_size=self.population_size, init_measured_ratio=self.init_measured_ratio,
            init_min_unmeasured=self.init_min_unmeasured, max_fail_count=self.max_fail_count,
            genetic_num_iters=self.genetic_num_iters, genetic_mutate_prob=self.genetic_mutate_prob,
            genetic_max_fail_count=self.genetic_max_fail_count, eps_greedy=self.eps_greedy, vectorize=self.vectorize)

    # ---- one round

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        if not self._started:
            raise ValueError("generate_measure_candidates needs pre_tuning first")
        wanted = min(self._batch, self._max - self._done)
        if wanted <= 0:
            return None
        begin = time.perf_counter()
        traces = self._round(wanted)
        made = self._assemble(traces, wanted)
        self.search_seconds += time.perf_counter() - begin
        if made:
            self._empty = 0
            return made
        self._empty += 1
        if self._empty >= self.num_empty_iters_before_early_stop:
            return None
        return self.generate_measure_candidates()

    def _assemble(self, traces: Sequence[Trace], wanted: int) -> list[MeasureCandidate]:
        """Programs of the chosen traces; those that cannot be made are dropped."""
        assert self._context is not None
        made: list[MeasureCandidate] = []
        for trace in traces:
            if len(made) >= wanted:
                break
            key = trace_key(trace)
            if key in self._measured:
                continue
            self._measured.add(key)
            sch = apply_trace(self._context, trace, self._random.randrange(1, 2**31 - 1), self._failures)
            if sch is not None:
                assert sch.trace is not None
                # A decision the program adapted is remembered in the form it took.
                self._measured.add(trace_key(sch.trace))
                made.append(MeasureCandidate(sch, self._args_info))
        return made

    def _round(self, wanted: int) -> list[Trace]:
        with Profiler.timeit("EvoSearch/PickBestFromDatabase"):
            count = int(self.population_size * self.init_measured_ratio)
            best = [r.trace for r in self._database.get_top_k(self._workload, count)]
        num_random = min(wanted, round(wanted * self.eps_greedy + self._random.random() * 0.999 - 0.5))
        num_random = max(0, num_random)
        spare = max(4, wanted // 4)
        if self._pool is not None and self._pool.usable():
            scored, rest = self._pool.search(self, best, wanted + spare)
            if self._pool.left_out and self._cost_model.trained:
                # Sketches without a matrix form: a few programs each round.
                slow, _ = self._evolve(best, self._pool.left_out, _REPLAYED)
                scored = sorted(scored + slow, key=lambda item: -item[0])
            self.candidates_examined = self._pool.examined + self._replayed
        else:
            scored, rest = self._evolve(best, self._spaces, max(self.init_min_unmeasured, 1))
            self.candidates_examined = self._replayed
        ranked = [trace for _, trace in scored]
        with Profiler.timeit("EvoSearch/PickWithEpsGreedy"):
            greedy = ranked[:wanted - num_random]
            return greedy + rest[:num_random] + ranked[wanted - num_random:] + rest[num_random:]

    @property
    def cost_model(self) -> CostModel:
        """The model that ranks candidates."""
        return self._cost_model

    def records(self) -> list[TuningRecord]:
        """What has been measured for this workload, by this run and by earlier ones."""
        return self._database.records_of(self._workload) if self._started else []

    def is_measured(self, trace: Trace) -> bool:
        """Whether the decisions were measured before."""
        return trace_key(trace) in self._measured

    # ---- the slow way: one program per candidate

    def _sample(self, count: int) -> list[tuple[Trace, Schedule]]:
        assert self._context is not None
        made: list[tuple[Trace, Schedule]] = []
        failed = 0
        while len(made) < count and failed < self.max_fail_count * max(1, count):
            trace = Trace(self._random.choice(self._spaces).insts, {})
            sch = apply_trace(self._context, trace, self._random.randrange(1, 2**31 - 1), self._failures)
            self.candidates_examined += 1
            if sch is None or sch.trace is None:
                failed += 1
                continue
            made.append((sch.trace, sch))
        return made

    def _evolve(self, best: Sequence[Trace]) -> tuple[list[Trace], list[Trace]]:
        """Generations of replayed programs: ranked traces, and random ones."""
        context: Any = self._context
        with Profiler.timeit("EvoSearch/SampleInitPopulation"):
            fresh = self._sample(max(self.init_min_unmeasured, 1))
        population = fresh + [(t, s) for t in best
                              if (s := apply_trace(context, t, 1, self._failures)) is not None]
        heap: list[tuple[float, int, Trace]] = []
        seen: set[Any] = set()
        mutators = list(context.space_generator.mutator_probs.items())
        for generation in range(self.genetic_num_iters + 1):
            with Profiler.timeit("EvoSearch/Evolve/PredictNormalizedScore"):
                scores = np.asarray(self._cost_model.predict(
                    context, [MeasureCandidate(s, self._args_info) for _, s in population]), dtype=float)
                scores = np.maximum(scores, 0)
            for (trace, _), score in zip(population, scores, strict=True):
                key = trace_key(trace)
                if key not in seen and key not in self._measured:
                    seen.add(key)
                    heapq.heappush(heap, (float(score), len(seen), trace))
                    if len(heap) > self.population_size:
                        heapq.heappop(heap)
            if generation == self.genetic_num_iters:
                break
            with Profiler.timeit("EvoSearch/Evolve/Mutation"):
                population = self._mutated(population, scores, mutators)
        ranked = [t for _, _, t in sorted(heap, key=lambda item: -item[0])]
        return ranked, [t for t, _ in fresh]

    def _mutated(self, population: list[tuple[Trace, Schedule]], scores: Any, mutators: list[Any]) -> Any:
        weights = list(scores / scores.sum()) if scores.sum() > 0 else [1.0] * len(population)
        children: list[tuple[Trace, Schedule]] = []
        for _ in range(len(population)):
            parent = self._random.choices(population, weights)[0]
            child = parent
            if mutators and self._random.random() < self.genetic_mutate_prob:
                for _ in range(self.genetic_max_fail_count):
                    mutator = self._random.choices([m for m, _ in mutators], [p for _, p in mutators])[0]
                    trace = mutator.apply(parent[0], self._random)
                    self.candidates_examined += 1
                    if trace is None:
                        continue
                    assert self._context is not None
                    sch = apply_trace(self._context, trace, 1, self._failures)
                    if sch is not None and sch.trace is not None:
                        child = (sch.trace, sch)
                        break
            children.append(child)
        return children

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        self._done += len(results)

    @property
    def candidates_per_second(self) -> float:
        """Candidates generated, checked and scored per second of search."""
        return self.candidates_examined / self.search_seconds if self.search_seconds else 0.0
