"""The vectorised search: populations are matrices of decisions, and only what is measured becomes a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.schedule import Trace
from ..mutator import (
    MutateComputeLocation, MutateParallel, MutateTileSize, MutateUnroll,
)
from ..mutator.mutator import compute_locations, parallel_limits
from ..profiler import Profiler
from ..schedule_util import schedule_for_tuning
from .advisor import Advisor
from .decisions import DecisionTable
from .fitting import Unfit
from .skeleton import Reading, read_program
from .variant import CompiledVariant

if TYPE_CHECKING:
    from ..tune_context import TuneContext

__all__ = ["VectorPool", "VectorSketch", "VectorVariant"]

Array = np.ndarray[Any, Any]
EXAMPLES, CHECKS = 14, 2
MAX_VARIANTS = 8
PER_ROUND = 6


class VectorVariant:
    """A sketch with its compute locations fixed."""

    def __init__(self, sketch: VectorSketch, locations: tuple[int, ...], compiled: CompiledVariant) -> None:
        self.sketch = sketch
        self.locations = locations
        self.compiled = compiled

    def features(self, matrix: Array) -> list[Array]:
        """Feature matrices of rows of decisions."""
        table = self.sketch.table
        limits = matrix[:, table.parallel_column].astype(float)
        return self.compiled.features(matrix[:, :table.num_tile_columns], limits, table.unroll_values(matrix))


class VectorSketch:
    """A sketch, its decision columns, and the variants compiled so far."""

    def __init__(self, context: TuneContext, trace: Trace, rng: np.random.Generator) -> None:
        self.context = context
        self.rng = rng
        sch = schedule_for_tuning(context.mod, 1)  # type: ignore[arg-type]
        choices: list[list[int]] = []

        def watch(inst: Any, inputs: Any, attrs: Any, decision: Any) -> Any:
            if inst.kind.name == "SampleComputeLocation":
                choices.append(compute_locations(sch, inputs[0]))
            return decision

        trace.apply_to_schedule(sch, remove_postproc=True, decision_provider=watch)
        assert sch.trace is not None
        own = sch.trace.simplified(remove_postproc=True)
        marks = [i for i in own.insts if i.kind.name == "Annotate" and i.attrs[0] == "meta_schedule.parallel"]
        top = int(getattr(marks[0].inputs[1], "value", marks[0].inputs[1])) if marks else -1
        limits = parallel_limits(sch.mod, top) if marks else [-1]
        if top > 0:
            limits = sorted({*limits, *(1 << k for k in range(top.bit_length()))})
        self.table = DecisionTable(own, [x for x in limits if x <= top] or limits)
        self.location_choices = choices
        self.variants: dict[tuple[int, ...], VectorVariant] = {}
        self.refused: dict[tuple[int, ...], str] = {}

    def all_locations(self) -> list[tuple[int, ...]]:
        """Every combination of compute locations, random order."""
        import itertools

        combos = list(itertools.islice(itertools.product(*self.location_choices), 4096))
        order = self.rng.permutation(len(combos))
        return [combos[i] for i in order]

    def variant(self, locations: tuple[int, ...]) -> VectorVariant | None:
        """The compiled variant, None where it cannot be vectorised (the log says why)."""
        found = self.variants.get(locations)
        if found is None and locations not in self.refused:
            try:
                try:
                    found = self._compile(locations, EXAMPLES)
                except Unfit:
                    # Too few examples can agree with a wrong formula by chance.
                    found = self._compile(locations, 2 * EXAMPLES)
                self.variants[locations] = found
            except Exception as err:  # whatever keeps a trace from being vectorised, replay still serves it
                self.refused[locations] = f"{type(err).__name__}: {err}"
                self.context.logger.info("search by replay for compute locations %s: %s", locations, err)
        return found

    def _compile(self, locations: tuple[int, ...], count: int = EXAMPLES) -> VectorVariant:
        pool = self.table.sample(self.rng, 400)
        units = (pool[:, :self.table.num_tile_columns] == 1).sum(axis=1)
        order = np.argsort(units + self.rng.random(len(pool)) * 0.5)
        half = count // 2
        pick = [*order[:half], *self.rng.choice(order[half:], count - half, replace=False)]
        examples = pool[pick]
        readings = [self.read(row, locations) for row in examples]
        gpu = self.context.target is not None and "gpu" in self.context.target.keys
        compiled = CompiledVariant(readings, examples[:, :self.table.num_tile_columns], self.table.tile_ranges,
                                   self.table.vectorize, gpu)
        made = VectorVariant(self, locations, compiled)
        checks = self.table.sample(self.rng, CHECKS)
        fast = made.features(checks)
        for k, row in enumerate(checks):
            slow = self.replayed_features(row, locations)
            mine = np.stack([block[k] for block in fast])
            if mine.shape != slow.shape or not np.allclose(mine, slow, rtol=1e-4, atol=1e-3):
                raise Unfit("features differ from those of the program")
        return made

    def read(self, row: Array, locations: tuple[int, ...]) -> Reading:
        """The program of one row, before postprocs."""
        sch = schedule_for_tuning(self.context.mod, 1)  # type: ignore[arg-type]
        self.table.to_trace(row, locations).apply_to_schedule(sch, remove_postproc=True)
        return read_program(sch.mod)

    def replayed_features(self, row: Array, locations: tuple[int, ...]) -> Array:
        """Features by way of the program, weight layouts left as they are (they do not depend on decisions)."""
        from ..feature_extractor import module_features
        from ..postproc import RewriteLayout

        sch = schedule_for_tuning(self.context.mod, 1)  # type: ignore[arg-type]
        self.table.to_trace(row, locations).apply_to_schedule(sch, remove_postproc=True)
        sch.enter_postproc()
        for postproc in self.context.space_generator.postprocs:  # type: ignore[union-attr]
            if not isinstance(postproc, RewriteLayout) and not postproc.apply(sch):
                raise Unfit(f"{type(postproc).__name__} refuses some candidates")
        target = self.context.target
        return module_features(sch.mod, target is not None and "gpu" in target.keys)


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
            except Exception as err:  # one sketch that cannot be vectorised sends the task to replay
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
            rows = variant.sketch.table.sample(self.rng, each)
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
