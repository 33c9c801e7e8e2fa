"""The slow way to search: one program for each candidate. It serves any trace, mutator and cost model."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir import Schedule
from ...tir.schedule import Trace
from ..cost_model.scores import believable_scores
from ..profiler import Profiler
from .replay import apply_trace
from .candidate import MeasureCandidate
from .trace_key import trace_key

if TYPE_CHECKING:
    from .evolutionary_search import EvolutionarySearch
    from ..cost_model import CostModel
    from .search_task import SearchTask

__all__ = ["ReplayedEvolution"]

Array = np.ndarray[Any, Any]
Population = list[tuple[Trace, Schedule]]


class ReplayedEvolution:
    """One round of evolution over replayed programs; ``options`` is the :class:`EvolutionarySearch`."""

    def __init__(
        self,
        context: SearchTask,
        options: EvolutionarySearch,
        cost_model: CostModel,
        rand: random.Random,
        is_measured: Callable[[str], bool],
        failures: dict[str, int],
    ) -> None:
        self.context = context
        self.options = options
        self.cost_model = cost_model
        self.rand = rand
        self.is_measured = is_measured
        self.failures = failures
        self.examined = 0

    def run(
        self, spaces: Sequence[Trace], best: Sequence[Trace], count: int
    ) -> tuple[list[tuple[float, Trace]], list[Trace]]:
        """Scored traces, best first, and the random ones it began with."""
        with Profiler.timeit("EvoSearch/SampleInitPopulation"):
            fresh = self._sample(spaces, count)
            measured = [(t, s) for t in best if (s := self._apply(t, 1)) is not None]
        population: Population = fresh + measured
        heap: list[tuple[float, int, Trace]] = []
        seen: set[str] = set()
        for generation in range(self.options.genetic_num_iters + 1):
            if not population:
                break
            with Profiler.timeit("EvoSearch/Evolve/PredictNormalizedScore"):
                scores = self._scores(population)
            for (trace, _), score in zip(population, scores, strict=True):
                key = trace_key(trace)
                if key in seen or self.is_measured(key):
                    continue
                seen.add(key)
                heapq.heappush(heap, (float(score), -len(seen), trace))
                if len(heap) > self.options.population_size:
                    heapq.heappop(heap)
            if generation < self.options.genetic_num_iters:
                with Profiler.timeit("EvoSearch/Evolve/Mutation"):
                    population = self._next(population, scores)
        return [(s, t) for s, _, t in sorted(heap, key=lambda item: item[:2], reverse=True)], [t for t, _ in fresh]

    def _apply(self, trace: Trace, seed: int) -> Schedule | None:
        self.examined += 1
        return apply_trace(self.context, trace, seed, self.failures)

    def _scores(self, population: Population) -> Array:
        candidates = [MeasureCandidate(sch, self.options.args_info) for _, sch in population]
        model = self.cost_model
        scores = believable_scores(model, len(candidates), lambda: model.predict(self.context, candidates))
        return np.maximum(scores, 0)

    def _sample(self, spaces: Sequence[Trace], count: int) -> Population:
        made: Population = []
        failed = 0
        while len(made) < count and failed < self.options.max_fail_count * max(1, count):
            trace = Trace(self.rand.choice(spaces).insts, {})
            sch = self._apply(trace, self.rand.randrange(1, 2**31 - 1))
            if sch is None or sch.trace is None:
                failed += 1
                continue
            made.append((sch.trace, sch))
        return made

    def _next(self, population: Population, scores: Array) -> Population:
        weights = list(scores / scores.sum()) if scores.sum() > 0 else [1.0] * len(population)
        return [self._child(self.rand.choices(population, weights)[0]) for _ in range(len(population))]

    def _child(self, parent: tuple[Trace, Schedule]) -> tuple[Trace, Schedule]:
        assert self.context.space_generator is not None
        mutators = list((self.context.space_generator.mutator_probs or {}).items())
        if not mutators or self.rand.random() >= self.options.genetic_mutate_prob:
            return parent
        for _ in range(self.options.genetic_max_fail_count):
            mutator = self.rand.choices([m for m, _ in mutators], [float(p) for _, p in mutators])[0]
            trace = mutator.apply(parent[0], self.rand)
            if trace is None:
                continue
            sch = self._apply(trace, 1)
            if sch is not None and sch.trace is not None:
                return sch.trace, sch
        return parent
