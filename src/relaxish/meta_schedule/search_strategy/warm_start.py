"""Candidates for a search's first rounds, before its cost model has learnt anything.

A search's first population begins with the tilings that ``carver.recommend`` gives for the function. The analytic estimate
of a sketch (``space_generator.hints``) ranks others; what has been measured so far corrects the estimate of its neighbours.
So a search starts near the best schedules and moves on from those that really were fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.schedule import Trace
from ..mutator import MutateTileSize, MutateUnroll
from ..space_generator.hints import SketchEstimate, TiledBlock, estimate_sketch, tiled_blocks
from .recommended import recommended_hints, rows_of_hint

if TYPE_CHECKING:
    from ..database import TuningRecord
    from .population import VectorSketch, VectorVariant
    from ..task import Task

__all__ = ["Advisor"]

Array = np.ndarray[Any, Any]
# Random tilings looked at for each variant, and children of each of the best measured ones.
_SAMPLES = 8192
_PARENTS, _CHILDREN = 8, 96
# Two tilings are neighbours when this many factors of two separate them.
_REACH = 3.0
# Proposals of one round that share the innermost tiles of every axis.
_SAME_TILE = 3
# Tilings that carver is asked for, and one in how many of the first population they may be.
_HINTS, _SHARE = 10, 4


class Advisor:
    """Proposes rows of decisions for the sketches that have an estimate."""

    def __init__(self, context: Task, sketches: Sequence[VectorSketch], rng: np.random.Generator) -> None:
        self.context = context
        self.rng = rng
        # Rows of decisions to what they are expected to take, in any unit.
        self.estimates: dict[int, Callable[[Array], Array]] = {}
        self.models: dict[int, SketchEstimate] = {}
        self.samples: dict[int, Array] = {}
        self.variants: dict[int, VectorVariant] = {}
        self.known: dict[int, tuple[TuningRecord, tuple[int, Array, float] | None]] = {}
        self.sketches = list(sketches)
        for index, sketch in enumerate(self.sketches):
            estimate = estimate_sketch(context, sketch.table.trace)
            if estimate is not None:
                self.models[index] = estimate
                self.estimates[index] = self._of_factors(sketch, estimate)

    @staticmethod
    def _of_factors(sketch: VectorSketch, estimate: SketchEstimate) -> Callable[[Array], Array]:
        def cycles(rows: Array) -> Array:
            return estimate.cycles({inst: rows[:, at : at + n] for inst, at, n, _, _ in sketch.table.tiles})

        return cycles

    def add(self, index: int, variant: VectorVariant, estimate: Callable[[Array], Array]) -> None:
        """A sketch whose estimate comes from its compiled variant, which also knows what is valid."""
        self.variants[index], self.estimates[index] = variant, estimate

    def usable(self) -> bool:
        """Whether some sketch has an estimate."""
        return bool(self.estimates)

    def propose(
        self, variants: Sequence[VectorVariant], records: Sequence[TuningRecord], wanted: int
    ) -> list[tuple[VectorVariant, Array]]:
        """The most promising rows, different enough from one another; more than ``wanted``, best first."""
        measured = self._measured(records)
        pool: list[tuple[VectorVariant, Array]] = []
        scores: list[Array] = []
        for variant in variants:
            index = self.sketches.index(variant.sketch)
            if index not in self.estimates:
                continue
            rows = self._rows(index, measured)
            pool += [(variant, row) for row in rows]
            scores.append(self._log_time(index, rows, measured))
        if not pool:
            return []
        merged = np.concatenate(scores)
        order = np.argsort(merged, kind="stable")[: 64 * wanted]
        ranked = [pool[i] for i in order]
        if not measured:
            ranked = _without_twins([*self._recommended(variants)[: max(1, wanted // _SHARE)], *ranked])
        return self._spread(ranked, 2 * wanted)

    def _recommended(self, variants: Sequence[VectorVariant]) -> list[tuple[VectorVariant, Array]]:
        """Rows tiled as carver recommends, its best first: of each tiling the row with the least estimate."""
        hints = recommended_hints(self.context, _HINTS)
        best: list[tuple[float, VectorVariant, Array] | None] = [None] * len(hints)
        for variant in variants if hints else ():
            index = self.sketches.index(variant.sketch)
            if index not in self.estimates:
                continue
            table, compiled = variant.sketch.table, self.variants.get(index)
            blocks = self._blocks(index)
            for number, hint in enumerate(hints):
                # Decisions that are no tiles come from a random row, another one for each hint.
                rows = rows_of_hint(hint, blocks, table, self.samples[index][number])
                rows = rows if compiled is None or not len(rows) else rows[compiled.valid(rows)]
                if not len(rows):
                    continue
                times = self._estimated(index, rows)
                least, known = int(np.argmin(times)), best[number]
                if known is None or times[least] < known[0]:
                    best[number] = float(times[least]), variant, rows[least]
        return [(found[1], found[2]) for found in best if found is not None]

    def _blocks(self, index: int) -> Sequence[TiledBlock]:
        estimate = self.models.get(index)
        return estimate.blocks if estimate is not None else tiled_blocks(self.context, self.sketches[index].table.trace)

    def _rows(self, index: int, measured: Sequence[tuple[int, Array, float]]) -> Array:
        """Random rows and children of the fastest measured ones."""
        table = self.sketches[index].table
        variant = self.variants.get(index)
        parts = [table.sample(self.rng, _SAMPLES) if variant is None else variant.sample(self.rng, _SAMPLES // 2)]
        self.samples[index] = parts[0]
        mine = sorted((m for m in measured if m[0] == index), key=lambda m: m[2])[:_PARENTS]
        for _, row, _ in mine:
            children = np.repeat(row[None, :], _CHILDREN, axis=0)
            for mutator, each in ((MutateTileSize(), 1), (MutateTileSize(), 2), (MutateUnroll(), 3)):
                mutator.on_columns(table, self.rng, children[::each])
            parts.append(children if variant is None else children[variant.valid(children)])
        return np.unique(np.concatenate(parts), axis=0)

    def _estimated(self, index: int, rows: Array) -> Array:
        logs: Array = np.log(self.estimates[index](rows))
        return logs

    def _log_time(self, index: int, rows: Array, measured: Sequence[tuple[int, Array, float]]) -> Array:
        """Estimated log time, moved towards what similar tilings took."""
        logs = self._estimated(index, rows)
        if not measured:
            return logs
        estimated = np.array([float(self._estimated(i, row[None, :])[0]) for i, row, _ in measured])
        residual = np.log([seconds for _, _, seconds in measured]) - estimated
        residual -= np.median(residual)
        table = self.sketches[index].table
        place = table.place(rows)
        total, weight = np.zeros(len(rows)), np.full(len(rows), 0.5)
        for (other, row, _), error in zip(measured, residual, strict=True):
            if len(row) != rows.shape[1]:
                continue
            distance = np.abs(place - table.place(row[None])).sum(axis=1) + (0 if other == index else 2)
            near = np.exp(-((distance / _REACH) ** 2))
            total += near * error
            weight += near
        corrected: Array = logs + total / weight
        return corrected

    def _spread(self, ranked: Sequence[tuple[VectorVariant, Array]], count: int) -> list[tuple[VectorVariant, Array]]:
        """The best rows, only a few of each innermost tile."""
        chosen: list[tuple[VectorVariant, Array]] = []
        rest: list[tuple[VectorVariant, Array]] = []
        uses: dict[tuple[int, ...], int] = {}
        for variant, row in ranked:
            inner = variant.sketch.table.innermost(row)
            uses[inner] = uses.get(inner, 0) + 1
            (chosen if uses[inner] <= _SAME_TILE else rest).append((variant, row))
            if len(chosen) >= count:
                break
        return chosen + rest[: max(0, count - len(chosen))]

    def _measured(self, records: Sequence[TuningRecord]) -> list[tuple[int, Array, float]]:
        for record in records:
            if id(record) not in self.known:
                self.known[id(record)] = record, self._place(record.trace, record.run_secs)
        return [found for record in records if (found := self.known[id(record)][1]) is not None]

    def _place(self, trace: Trace, run_secs: Sequence[float] | None) -> tuple[int, Array, float] | None:
        """Sketch, row and seconds of a record of this search space."""
        if not run_secs or float(min(run_secs)) >= 1e9:
            return None
        for index, sketch in enumerate(self.sketches):
            found = sketch.table.from_trace(trace) if index in self.estimates else None
            if found is not None:
                return index, found[0], float(np.mean([float(x) for x in run_secs]))
        return None


def _without_twins(rows: Sequence[tuple[VectorVariant, Array]]) -> list[tuple[VectorVariant, Array]]:
    """The rows, each once."""
    return list({(id(variant), row.tobytes()): (variant, row) for variant, row in reversed(rows)}.values())[::-1]
