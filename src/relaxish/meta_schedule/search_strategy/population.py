"""The vectorised search: populations are matrices of decisions, and only what is measured becomes a program."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.schedule import Trace
from ..cost_model.scores import believable_scores
from ..mutator import Mutator
from ..postproc.postproc import Postproc
from ..profiler import Profiler
from ..utils import has_column_form
from .warm_start import Advisor
from .sketch import REFUSALS, VectorSketch, VectorVariant

if TYPE_CHECKING:
    from .evolutionary_search import EvolutionarySearch
    from ..database import TuningRecord
    from .search_task import SearchTask
    from ..cost_model import CostModel

__all__ = ["VectorPool", "VectorSketch", "VectorVariant"]

Array = np.ndarray[Any, Any]
# Learning the formulas of a variant takes as long as scoring ten thousand candidates: a few each round.
FIRST_VARIANTS, MORE_VARIANTS, TRIED_PER_ROUND, MAX_VARIANTS = 3, 2, 6, 48
# Few large matrices are faster than many small ones; the other variants have their turn in later rounds.
PER_ROUND, ROWS = 3, 2048
_CHUNK = 2048
# Rows of a variant that a mutator without a column form changes in a generation, a trace (about 2 ms) each.
_TRACES = 32
Rows = list[tuple[VectorVariant, Array]]
Scored = tuple[float, VectorVariant, Array]


class VectorPool:
    """The sketches of a task that can be searched as matrices; ``left_out`` are the traces of the others."""

    def __init__(self, context: SearchTask, traces: Sequence[Trace], seed: int = 0) -> None:
        self.context = context
        self.rng = np.random.default_rng(seed)
        self.examined = 0
        self.sketches: list[VectorSketch] = []
        self.left_out: list[Trace] = []
        self.reason = ""
        self.mutators, self.shares = self._mutators()
        for index, trace in enumerate(traces):
            try:
                self.sketches.append(VectorSketch(context, trace, (seed, index)))
            except REFUSALS as err:
                self.reason = f"{type(err).__name__}: {err}"
                context.logger.info("a sketch is searched by replaying programs: %s", self.reason)
                self.left_out.append(trace)
        # Variants known to have formulas, by sketch and compute locations, and sketches to look for more in.
        self._names: list[tuple[int, tuple[int, ...]]] = []
        self._queue = [(int(i), 0) for i in self.rng.permutation(len(self.sketches))]
        self._number = {id(sketch): index for index, sketch in enumerate(self.sketches)}
        self._measured: set[tuple[int, tuple[int, ...], bytes]] = set()
        self._noted = 0
        self._stock: dict[int, Array] = {}
        self.advisor = Advisor(context, self.sketches, self.rng)
        self._compile_device_sketches()

    def _compile_device_sketches(self) -> None:
        """Sketches for GPUs have one variant, without which not even their first candidates are likely to be valid."""
        for index, sketch in enumerate(self.sketches):
            if sketch.gpu and self._known(index, ()) is None:
                self.reason = sketch.refused[()]
                self.left_out.append(sketch.table.trace)
        self._usable = [i for i, sketch in enumerate(self.sketches) if not sketch.refused.get((), "")]

    def reseed(self, rng: np.random.Generator) -> None:
        """Draw from ``rng`` from now on."""
        self.rng = self.advisor.rng = rng
        self._stock.clear()

    def save_state(self) -> dict[str, Any]:
        """State of the search's variants, as plain data."""
        return {"variants": [[i, list(x)] for i, x in self._names], "queue": [list(x) for x in self._queue]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Work with the variants of a run that was stopped; they are compiled when needed."""
        self._names = [(int(i), tuple(int(v) for v in x)) for i, x in state.get("variants", [])]
        self._queue = [(int(i), int(turn)) for i, turn in state.get("queue", self._queue)]

    def usable(self) -> bool:
        """Whether some sketch has a matrix form."""
        return bool(self._usable)

    def _mutators(self) -> tuple[list[Mutator], Array]:
        """The mutators, those that move rows to another program last, and the running sum of their shares."""
        assert self.context.space_generator is not None
        given = (self.context.space_generator.mutator_probs or {}).items()
        ordered = sorted(given, key=lambda item: item[0].moves_blocks)
        shares = [float(share) for _, share in ordered]
        return [mutator for mutator, _ in ordered], np.cumsum(np.array(shares) / (sum(shares) or 1.0))

    # ---- variants

    def variants(self, limit: int) -> list[VectorVariant]:
        """Some of the variants with formulas."""
        names = self._names
        if len(names) > limit:
            names = [names[i] for i in self.rng.permutation(len(names))[:limit]]
        found = [self.sketches[i].variant(locations) for i, locations in names]
        return [v for v in found if v is not None]

    def _known(self, index: int, locations: tuple[int, ...]) -> VectorVariant | None:
        """A variant, kept in mind if it has formulas."""
        variant = self.sketches[index].variant(locations)
        if variant is not None and (index, locations) not in self._names:
            self._names.append((index, locations))
        estimate = None if variant is None or variant.compiled is None else variant.compiled.estimate
        if variant is not None and estimate is not None and index not in self.advisor.variants:
            self.advisor.add(index, variant, estimate)
        return variant

    def learn(self) -> None:
        """Compile a few more variants, each sketch in turn."""
        goal = min(MAX_VARIANTS, max(FIRST_VARIANTS, len(self._names) + MORE_VARIANTS))
        for _ in range(TRIED_PER_ROUND):
            if len(self._names) >= goal or not self._queue:
                break
            index, turn = self._queue.pop(0)
            locations = self.sketches[index].all_locations()
            if turn < len(locations):
                self._known(index, locations[turn])
                self._queue.append((index, turn + 1))

    def random_rows(self, count: int) -> list[Scored]:
        """Random rows of random sketches, compute locations left to be sampled."""
        out: list[Scored] = []
        for choice in self.rng.integers(0, len(self._usable), count):
            sketch = self.sketches[self._usable[choice]]
            known = sketch.variants.get(()) if sketch.gpu else None
            rows = sketch.table.sample(self.rng, 1) if known is None else self._valid_rows(known)
            out += [(0.0, VectorVariant(sketch, ()), row) for row in rows]
        return out

    def _valid_rows(self, variant: VectorVariant) -> Array:
        """One random valid row of a GPU sketch, from a stock: most random rows exceed some limit."""
        stock = self._stock.get(id(variant))
        if stock is None or not len(stock):
            stock = variant.sample(self.rng, 256)
        self._stock[id(variant)] = stock[1:]
        return stock[:1]

    # ---- one round of search

    def search(
        self, strategy: EvolutionarySearch, best: Sequence[Trace], wanted: int
    ) -> tuple[list[tuple[float, Trace]], list[Trace]]:
        """Scored traces not yet measured, best first, and random ones."""
        self._note_measured(strategy.records())
        fresh = self._traces(self.random_rows(wanted), 8 + wanted // 4)
        if not strategy.cost_model.trained:
            # Its scores would be random: the analytic estimate, corrected by what was measured, knows better.
            with Profiler.timeit("EvoSearch/SampleInitPopulation"):
                advised = self._advised(strategy, wanted)
            return self._traces(advised, wanted), [t for _, t in fresh]
        self.learn()
        variants = self.variants(PER_ROUND)
        if not variants:
            self.reason = next((r for s in self.sketches for r in s.refused.values()), "no variant")
            return [], [t for _, t in fresh]
        size = max(4 * strategy.population_size, ROWS * len(variants))
        with Profiler.timeit("EvoSearch/SampleInitPopulation"):
            batches = self._initial(variants, best, size)
        ranked = self._evolve(strategy, batches, wanted)
        return self._traces(ranked, wanted), [t for _, t in fresh]

    def advise(self, strategy: EvolutionarySearch, wanted: int) -> list[Trace]:
        """Traces not yet measured, chosen without the cost model."""
        return [trace for _, trace in self._traces(self._advised(strategy, wanted), wanted)]

    def _advised(self, strategy: EvolutionarySearch, wanted: int) -> list[Scored]:
        """Rows that the analytic estimate expects to be fast, random ones where there is none."""
        bare = [VectorVariant(sketch, ()) for sketch in self.sketches]
        advised = [(0.0, *x) for x in self.advisor.propose(bare, strategy.records(), wanted)]
        return advised or self.random_rows(2 * wanted)

    def _evolve(self, strategy: EvolutionarySearch, batches: Rows, wanted: int) -> list[Scored]:
        """Generations of scoring and mutation; the best rows seen, best first."""
        heap: dict[tuple[int, bytes], tuple[float, VectorVariant, Array]] = {}
        for generation in range(strategy.genetic_num_iters + 1):
            with Profiler.timeit("EvoSearch/Evolve/PredictNormalizedScore"):
                scores = [self.score(strategy.cost_model, v, rows) for v, rows in batches]
            self._keep(heap, batches, scores, 8 * wanted)
            if generation == strategy.genetic_num_iters:
                break
            with Profiler.timeit("EvoSearch/Evolve/Mutation"):
                batches = self._next(batches, scores, strategy.genetic_mutate_prob)
        return sorted(heap.values(), key=lambda item: -item[0])

    def _note_measured(self, records: Sequence[TuningRecord]) -> None:
        """Remember rows that were measured; comparing rows is much faster than comparing traces."""
        for record in records[self._noted :]:
            place = self._place(record.trace)
            if place is not None:
                self._measured.add((place[0], place[2], place[1].tobytes()))
        self._noted = len(records)

    def _place(self, trace: Trace) -> tuple[int, Array, tuple[int, ...]] | None:
        """Sketch, row and compute locations of a trace of this space."""
        for index, sketch in enumerate(self.sketches):
            found = sketch.table.from_trace(trace)
            if found is not None:
                return index, *found
        return None

    def granted(self, trace: Trace) -> tuple[Postproc, ...]:
        """The postprocs that are known to change nothing in the program of a trace and to admit it."""
        assert self.context.space_generator is not None
        place = self._place(trace)
        variant = None if place is None else self.sketches[place[0]].variants.get(place[2])
        if place is None or variant is None or variant.compiled is None:
            return ()
        granted = variant.compiled.granted(self.context.space_generator.postprocs or [])
        return granted if granted and variant.valid(place[1][None])[0] else ()

    def _traces(self, rows: Sequence[Scored], wanted: int) -> list[tuple[float, Trace]]:
        """The first ``wanted`` rows that were not measured, as traces."""
        out: list[tuple[float, Trace]] = []
        for score, variant, row in rows:
            if len(out) >= wanted:
                break
            if (self._number[id(variant.sketch)], variant.locations, row.tobytes()) not in self._measured:
                out.append((score, variant.sketch.table.to_trace(row, variant.locations)))
        return out

    def _initial(self, variants: list[VectorVariant], best: Sequence[Trace], size: int) -> Rows:
        """Random rows of every variant, and the best measured ones with the variants they belong to."""
        known: dict[int, list[Array]] = {}
        for trace in best:
            place = self._place(trace)
            variant = None if place is None else self._known(place[0], place[2])
            if place is None or variant is None:
                continue
            if variant not in variants:
                variants.append(variant)
            known.setdefault(variants.index(variant), []).append(place[1])
        each = max(16, (size - len(best)) // max(1, len(variants)))
        batches: Rows = []
        for index, variant in enumerate(variants):
            rows = variant.sample(self.rng, each)
            if index in known:
                rows = np.concatenate([np.stack(known[index]), rows])
            if len(rows):
                batches.append((variant, rows))
        return batches

    def score(self, model: CostModel, variant: VectorVariant, rows: Array) -> Array:
        """Cost-model scores of rows, in chunks that stay in cache."""
        out = []
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            features = variant.feature_rows(part)
            out.append(believable_scores(model, len(part), functools.partial(model.predict_repeated, features)))
        self.examined += len(rows)
        return np.concatenate(out) if out else np.zeros(0)

    @staticmethod
    def _keep(
        heap: dict[tuple[int, bytes], tuple[float, VectorVariant, Array]],
        batches: Rows,
        scores: list[Array],
        limit: int,
    ) -> None:
        merged = np.concatenate(scores)
        if not merged.size:
            return
        floor = np.partition(merged, -min(limit, merged.size))[-min(limit, merged.size)]
        for (variant, rows), score in zip(batches, scores, strict=True):
            for i in np.nonzero(score >= floor)[0][:limit]:
                heap.setdefault((id(variant), rows[i].tobytes()), (float(score[i]), variant, rows[i]))
        if len(heap) > 4 * limit:
            for key, _ in sorted(heap.items(), key=lambda item: item[1][0])[: len(heap) - 2 * limit]:
                del heap[key]

    # ---- the next generation

    def _next(self, batches: Rows, scores: list[Array], mutate_prob: float) -> Rows:
        merged = np.maximum(np.concatenate(scores), 0) + 1e-9
        total = len(merged)
        # Sampling in proportion to the score by its running sum.
        chosen = np.searchsorted(np.cumsum(merged), np.sort(self.rng.random(total)) * merged.sum())
        chosen = np.minimum(chosen, total - 1)
        starts = np.cumsum([0] + [len(rows) for _, rows in batches])
        position = {id(v): i for i, (v, _) in enumerate(batches)}
        made: dict[int, list[Array]] = {}
        for index, (variant, rows) in enumerate(batches):
            low, high = np.searchsorted(chosen, [starts[index], starts[index + 1]])
            children, moved = self._mutated(variant, rows[chosen[low:high] - starts[index]], mutate_prob)
            siblings = [v for v in variant.sketch.variants.values() if v is not variant and id(v) in position]
            if siblings and len(moved):
                where = self.rng.integers(0, len(siblings), len(moved))
                for k, sibling in enumerate(siblings):
                    made.setdefault(position[id(sibling)], []).append(moved[where == k])
            else:
                children = np.concatenate([children, moved])
            made.setdefault(index, []).append(children)
        out: Rows = []
        for i, parts in sorted(made.items()):
            variant, parents = batches[i]
            rows = _distinct(np.concatenate(parts))
            rows = rows[variant.valid(rows)]
            # A population that has found a peak is full of copies; fresh rows take their places.
            rows = np.concatenate([rows, variant.sample(self.rng, max(0, len(parents) - len(rows)))])
            if len(rows):
                out.append((variant, rows))
        return out or batches

    def _mutated(self, variant: VectorVariant, rows: Array, mutate_prob: float) -> tuple[Array, Array]:
        """Changed copies of rows, and those that shall move to another compute location."""
        roll = self.rng.random(len(rows)) / max(mutate_prob, 1e-9)
        kind = np.searchsorted(self.shares, roll, side="right")
        kind[roll >= 1] = len(self.mutators)
        moving = np.zeros(len(rows), dtype=bool)
        for number, mutator in enumerate(self.mutators):
            picked = kind == number
            if mutator.moves_blocks:
                moving |= picked
                continue
            part = rows[picked]
            if not (has_column_form(mutator) and mutator.on_columns(variant.sketch.table, self.rng, part)):
                self._mutate_traces(mutator, variant, part)
            rows[picked] = part
        return rows[~moving], rows[moving]

    def _mutate_traces(self, mutator: Mutator, variant: VectorVariant, rows: Array) -> None:
        """The first rows changed by a mutator without a column form; where its trace is no row of the variant, not."""
        table = variant.sketch.table
        for row in rows[:_TRACES]:
            seed = int(self.rng.integers(1, 1 << 31))
            made = mutator.apply(table.to_trace(row, variant.locations), random.Random(seed))
            found = None if made is None else table.from_trace(made)
            if found is not None and found[1] == variant.locations:
                row[:] = found[0]


def _distinct(rows: Array) -> Array:
    """Rows without copies, compared by a hash."""
    weights = np.random.default_rng(1).integers(1, 1 << 62, rows.shape[1])
    kept: Array = rows[np.unique(rows @ weights, return_index=True)[1]]
    return kept
