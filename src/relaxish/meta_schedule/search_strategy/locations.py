"""Possible locations of a sampled block, as a mask over rows of decisions.

A compute location is a loop number. A loop of one iteration is no location: the schedule then takes the nearest one
outside of it, which is another variant of the sketch. So a variant holds only for rows in which each of its locations
stands as written, and that is a question about loop extents, known as formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir import IterVar, Schedule
from ...tir.schedule import checks
from ...tir.schedule.primitives.compute_at import loop_iter_types
from ...tir.stmt import Block
from .fitting import Environment, Fitter, Formula, Table, Unfit
from ...ir.prim import const_int

__all__ = ["FactMask", "LocationMask", "LoopRow", "loops_of_location"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LoopRow:
    """The loops a block's location was chosen from in one program: extents, and which ones are data parallel."""

    extents: tuple[int, ...]
    parallel: tuple[bool, ...]


def loops_of_location(sch: Schedule, block: Block) -> LoopRow:
    """The loops around the first consumer of a block, as the schedule is at this moment."""
    state, sref = sch.state, sch.sref(block)
    consumers = checks.consumers_of(state, sref, checks.scope_root(state, sref))
    if not consumers:
        return LoopRow((), ())
    loops = checks.loops_above(consumers[0])
    if not loops:
        return LoopRow((), ())
    return LoopRow(
        tuple(const_int(loop.stmt.extent, 0) for loop in loops),
        tuple(kind == IterVar.DataPar for kind in loop_iter_types(state, loops)),
    )


class FactMask:
    """For which rows some facts hold that depend on tiles; ``facts[k]`` by example, where known."""

    def __init__(self, fitter: Fitter, facts: Iterable[Mapping[int, bool]]) -> None:
        self._tables = []
        for seen in facts:
            if not all(seen.values()):
                target = np.array([float(seen[k]) if k in seen else np.nan for k in range(fitter.env.size)])
                table = fitter.tabulated(target, ~np.isnan(target))
                if table is None:
                    raise Unfit("which programs are of one form follows from no table")
                self._tables.append(table)

    def __call__(self, env: Environment) -> Array:
        """A flag for each row of the environment; none where nothing is known of a row."""
        keep = np.ones(env.size, dtype=bool)
        for table in self._tables:
            keep &= np.asarray(table(env)) == 1
        return keep


class LocationMask:
    """For which rows the locations ``decisions`` are taken as they are.

    ``rows[k]`` holds, for each sampled location in turn, what was seen in example ``k``; a sequence is shorter where an
    earlier location had moved already.
    """

    def __init__(
        self,
        decisions: Sequence[int],
        rows: Sequence[Sequence[LoopRow]],
        tiles: Sequence[tuple[int, int]],
        examples: Array,
    ) -> None:
        self._tests: list[tuple[int, list[Formula], list[bool]]] = []
        self.tables: set[Table] = set()
        for index, decision in enumerate(decisions):
            if decision < 0:
                continue
            seen = [k for k, row in enumerate(rows) if len(row) > index]
            if not seen:
                raise Unfit("no example reaches this compute location")
            facts = [rows[k][index] for k in seen]
            if len({len(f.extents) for f in facts}) != 1 or len(facts[0].extents) <= decision:
                raise Unfit("the loops to choose a location from change with tile sizes")
            fitter = Fitter(tiles, examples[seen])
            extents = [fitter.fit([float(f.extents[i]) for f in facts]) for i in range(decision + 1)]
            self.tables |= fitter.tables
            self._tests.append((decision, extents, list(facts[0].parallel)))

    def __call__(self, env: Environment) -> Array:
        """A flag for each row of the environment."""
        keep = np.ones(env.size, dtype=bool)
        for decision, formulas, parallel in self._tests:
            many = [np.broadcast_to(np.asarray(f(env)) > 1, (env.size,)) for f in formulas]
            keep &= many[decision]
            # Behind a running reduction loop no parallel loop is a location.
            reduced = np.zeros(env.size, dtype=bool)
            stopped = np.zeros(env.size, dtype=bool)
            for position in range(decision + 1):
                if parallel[position]:
                    stopped = stopped | (reduced & many[position])
                else:
                    reduced = reduced | many[position]
            keep &= ~stopped
        return keep
