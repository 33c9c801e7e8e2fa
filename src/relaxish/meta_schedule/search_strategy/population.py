"""The vectorised search: populations are matrices of decisions, and only what is measured becomes a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.schedule import Trace
from ..mutator import (
    MutateComputeLocation, MutateParallel, MutateTileSize, MutateUnroll,
)
from ..profiler import Profiler
from .advisor import Advisor
from .fitting import Unfit
from .sketch import REFUSALS, VectorSketch, VectorVariant

if TYPE_CHECKING:
    from ..tune_context import TuneContext

__all__ = ["VectorPool", "VectorSketch", "VectorVariant"]

Array = np.ndarray[Any, Any]
MAX_VARIANTS = 8
PER_ROUND = 6


class VectorPool:
    """All sketches of a task that can be searched as matrices."""

    def __init__(self, context: TuneContext, traces: Sequence[Trace], rng: np.random.Generator) -> None:
        self.context = context
        self.rng = rng
        self.examined = 0
        self.sketches: list[VectorSketch] = []
        self.reason = ""
        self.shares = self._mutator_shares()
        for trace in traces:
            try:
                sketch = VectorSketch(context, trace, rng)
                if not any(sketch.variant(x) for x in sketch.all_locations()[:3]):
                    raise Unfit(next(iter(sketch.refused.values()), "no variant"))
            except REFUSALS as err:  # one sketch that cannot be vectorised sends the task to replay
                self.reason = f"{type(err).__name__}: {err}"
                context.logger.info("the search replays programs one by one: %s", self.reason)
                self.sketches = []
                return
            self.sketches.append(sketch)
        self.advisor = Advisor(context, self.sketches, rng)

    def usable(self) -> bool:
        """Whether every sketch, and every mutator, has a matrix form."""
        return bool(self.sketches) and self.shares is not None

    def _mutator_shares(self) -> tuple[float, float, float, float] | None:
        known: dict[type, int] = {MutateTileSize: 0, MutateUnroll: 1, MutateParallel: 2, MutateComputeLocation: 3}
        shares = [0.0] * 4
        for mutator, share in self.context.space_generator.mutator_probs.items():  # type: ignore[union-attr]
            if type(mutator) not in known:
                self.context.logger.info("the search replays programs: %s has no matrix form", type(mutator).__name__)
                return None
            shares[known[type(mutator)]] += float(share)
        total = sum(shares) or 1.0
        return shares[0] / total, shares[1] / total, shares[2] / total, shares[3] / total

    def active(self) -> list[VectorVariant]:
        """The compiled variants, a few new ones added each time."""
        budget = 2
        for sketch in self.sketches:
            for locations in sketch.all_locations():
                if budget == 0 or len(sketch.variants) >= MAX_VARIANTS:
                    break
                if locations not in sketch.variants and locations not in sketch.refused:
                    budget -= 1
                    sketch.variant(locations)
        return [v for sketch in self.sketches for v in sketch.variants.values()]

    # ---- one round of search

    def search(self, strategy: Any, best: Sequence[Trace], wanted: int) -> tuple[list[Trace], list[Trace]]:
        """Ranked traces not yet measured, and random ones."""
        variants = self.active()
        if len(variants) > PER_ROUND:
            # Few large matrices are faster than many small ones; the others have their turn in later rounds.
            variants = [variants[i] for i in self.rng.permutation(len(variants))[:PER_ROUND]]
        size = max(4 * strategy.population_size, 512 * len(variants))
        with Profiler.timeit("EvoSearch/SampleInitPopulation"):
            advised = self.advisor.propose(variants, strategy.records(), wanted)
            batches = self._initial(variants, best, size)
        # The random share comes from the fresh samples, before selection narrows them.
        fresh = [(v, rows[i]) for v, rows in batches for i in self.rng.permutation(len(rows))[:wanted]]
        if advised and not strategy.cost_model.trained:
            # Its scores would be random: the analytic estimate, corrected by what was measured, knows better.
            return self._traces(strategy, advised, wanted), self._traces(strategy, fresh, wanted)
        heap: dict[tuple[int, bytes], tuple[float, VectorVariant, Array]] = {}
        for generation in range(strategy.genetic_num_iters + 1):
            with Profiler.timeit("EvoSearch/Evolve/PredictNormalizedScore"):
                scores = [self.score(strategy.cost_model, v, rows) for v, rows in batches]
            self._keep(heap, batches, scores, 8 * wanted)
            if generation == strategy.genetic_num_iters:
                break
            with Profiler.timeit("EvoSearch/Evolve/Mutation"):
                batches = self._next(batches, scores, strategy.genetic_mutate_prob)
        ranked = sorted(heap.values(), key=lambda item: -item[0])
        return self._traces(strategy, [(v, row) for _, v, row in ranked], wanted), self._traces(
            strategy, [fresh[i] for i in self.rng.permutation(len(fresh))], wanted)

    @staticmethod
    def _traces(strategy: Any, rows: list[tuple[VectorVariant, Array]], wanted: int) -> list[Trace]:
        out = []
        for variant, row in rows:
            trace = variant.sketch.table.to_trace(row, variant.locations)
            if not strategy.is_measured(trace):
                out.append(trace)
                if len(out) >= wanted:
                    break
        return out

    def _initial(self, variants: list[VectorVariant], best: Sequence[Trace], size: int) -> Any:
        known: dict[int, list[Array]] = {}
        for trace in best:
            for sketch in self.sketches:
                found = sketch.table.from_trace(trace)
                if found is None:
                    continue
                variant = sketch.variant(found[1])
                if variant is not None:
                    if variant not in variants:
                        variants.append(variant)
                    known.setdefault(variants.index(variant), []).append(found[0])
                break
        each = max(16, (size - len(best)) // max(1, len(variants)))
        batches = []
        for index, variant in enumerate(variants):
            rows = variant.sample(self.rng, each)
            if index in known:
                rows = np.concatenate([np.stack(known[index]), rows])
            batches.append((variant, rows))
        return batches

    def score(self, model: Any, variant: VectorVariant, rows: Array) -> Array:
        """Cost-model scores of rows, in chunks that stay in cache."""
        out = []
        for start in range(0, len(rows), 2048):
            part = rows[start:start + 2048]
            predicted = model.predict_features(variant.features(part))
            if predicted is None:
                raise Unfit("the cost model does not score feature matrices")
            out.append(np.asarray(predicted, dtype=float))
        self.examined += len(rows)
        return np.concatenate(out) if out else np.zeros(0)

    @staticmethod
    def _keep(heap: Any, batches: Any, scores: list[Array], limit: int) -> None:
        merged = np.concatenate(scores)
        if not merged.size:
            return
        floor = np.partition(merged, -min(limit, merged.size))[-min(limit, merged.size)]
        for (variant, rows), score in zip(batches, scores, strict=True):
            for i in np.nonzero(score >= floor)[0]:
                heap.setdefault((id(variant), rows[i].tobytes()), (float(score[i]), variant, rows[i]))
        if len(heap) > 4 * limit:
            for key, _ in sorted(heap.items(), key=lambda item: item[1][0])[:len(heap) - 2 * limit]:
                del heap[key]

    def _next(self, batches: Any, scores: list[Array], mutate_prob: float) -> Any:
        assert self.shares is not None
        merged = np.maximum(np.concatenate(scores), 0) + 1e-9
        total = len(merged)
        # Sampling in proportion to the score by its running sum.
        chosen = np.searchsorted(np.cumsum(merged), self.rng.random(total) * merged.sum())
        chosen = np.minimum(chosen, total - 1)
        starts = np.cumsum([0] + [len(rows) for _, rows in batches])
        made: dict[int, list[Array]] = {}
        variants = [v for v, _ in batches]
        position = {id(v): i for i, v in enumerate(variants)}
        bounds = np.cumsum(self.shares)
        for index, (variant, rows) in enumerate(batches):
            children = rows[chosen[(chosen >= starts[index]) & (chosen < starts[index + 1])] - starts[index]].copy()
            roll = self.rng.random(len(children)) / max(mutate_prob, 1e-9)
            kind = np.searchsorted(bounds, roll, side="right")
            kind[roll >= 1] = 4
            table = variant.sketch.table
            for code, mutate in enumerate((table.mutate_tiles, table.mutate_unroll, table.mutate_parallel)):
                part = children[kind == code]
                mutate(self.rng, part)
                children[kind == code] = part
            moved = children[kind == 3]
            siblings = [v for v in variant.sketch.variants.values() if v is not variant and id(v) in position]
            if siblings and len(moved):
                where = self.rng.integers(0, len(siblings), len(moved))
                for k, sibling in enumerate(siblings):
                    made.setdefault(position[id(sibling)], []).append(moved[where == k])
                children = children[kind != 3]
            made.setdefault(index, []).append(children)
        return [(variants[i], np.concatenate(parts)) for i, parts in made.items() if sum(map(len, parts))]
