"""Choice of example candidates for fitting formulas: few, with different values for every product of tile factors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from .column_program import ColumnProgram
from .decisions import DecisionTable
from .fitting import Environment, Table, Unlike, column_ranges

__all__ = ["ExampleChooser", "Examples", "Lesson"]

R = TypeVar("R")
P = TypeVar("P", bound=ColumnProgram)

Array = np.ndarray[Any, Any]
_POOL, _LOOK_AT = 600, 48
# Of so many rows, one for each choice that a table does not know is an example more: so many at a time, so often.
_MORE_ROWS, _MORE_EXAMPLES, _MORE_ROUNDS = 4096, 24, 4


class ExampleChooser:
    """Hands out random rows, each time one that tells most of the still indistinguishable products apart.

    A formula found on examples on which two columns agree may name the wrong one: extents like 7, with few
    factorisations, agree by chance all the time.
    """

    def __init__(self, table: DecisionTable, rng: np.random.Generator, pool: Array | None = None) -> None:
        self.rng = rng
        self.pool = table.sample(rng, _POOL) if pool is None else pool
        count = len(self.pool)
        ranges = column_ranges(table.tile_ranges)
        width = table.num_tile_columns
        env = Environment(self.pool[:, :width])
        # Ranks instead of values: what matters is on which rows a product is larger, formulas may scale it. The last
        # line is the constant.
        self._codes = np.zeros((len(ranges) + 1, count), dtype=np.int64)
        for i, key in enumerate(ranges):
            self._codes[i] = np.unique(env.range(key), return_inverse=True)[1]
        self._groups = np.zeros(len(ranges) + 1, dtype=np.int64)
        self._scale = int(self._codes.max()) + 1
        self._last = 0
        units = (self.pool[:, :width] == 1).sum(axis=1)
        self._open = list(np.argsort(units + rng.random(count) * 0.5))

    def keep(self, valid: Array) -> None:
        """From now on only rows flagged in ``valid``."""
        self._open = [i for i in self._open if valid[i]]

    def next(self) -> Array | None:
        """Another row, None when there are no more."""
        if not self._open:
            return None
        best, most = self._open[0], -1
        looked = min(len(self._open), _LOOK_AT)
        # The first ones have the fewest ones, so that ties go to programs in which every loop is visible.
        for i in [*self._open[: looked // 2], *self.rng.choice(self._open, looked - looked // 2)]:
            count = len(np.unique(self._groups * self._scale + self._codes[:, i]))
            if count > most:
                best, most = i, count
        self._open.remove(best)
        self._last = best
        row: Array = self.pool[best]
        return row

    def accept(self) -> None:
        """The last row became an example."""
        self._groups = np.unique(self._groups * self._scale + self._codes[:, self._last], return_inverse=True)[1]


class Examples(Generic[R]):
    """Programs to learn formulas from, ``readings``, with their ``rows``; and what was seen of all rows ``tried``.

    ``read`` gives the program of a row, None where formulas cannot be learnt from it, and facts by name: the masks of
    formulas' rows are learnt from these.
    """

    def __init__(
        self, chooser: ExampleChooser, read: Callable[[Array], tuple[R | None, Mapping[Hashable, bool]]]
    ) -> None:
        self.chooser = chooser
        self.read = read
        self.readings: list[R] = []
        self.rows: list[Array] = []
        self.tried: list[Array] = []
        self._numbers: list[int] = []  # of the readings among the rows tried
        self._facts: dict[Hashable, dict[int, bool]] = {}
        #: Whether some were left out.
        self.parted = False

    def add(self, row: Array) -> bool:
        """Read the program of a row; whether formulas can be learnt from it."""
        reading, facts = self.read(row)
        for name, fact in facts.items():
            self._facts.setdefault(name, {})[len(self.tried)] = fact
        if reading is not None:
            self.readings.append(reading)
            self.rows.append(row)
            self._numbers.append(len(self.tried))
        self.tried.append(row)
        return reading is not None

    def part(self, unlike: Unlike) -> None:
        """Leave out programs that are written in another way than most."""
        for name, alike in unlike.alike.items():
            self._facts.setdefault(name, {}).update(zip(self._numbers, alike, strict=True))
        kept = [k for k, alike in enumerate(zip(*unlike.alike.values(), strict=True)) if all(alike)]
        self.readings, self.rows, self._numbers = (
            [self.readings[k] for k in kept], [self.rows[k] for k in kept], [self._numbers[k] for k in kept]
        )  # fmt: skip
        self.parted = True

    def facts(self) -> list[dict[int, bool]]:
        """Each fact by number of a row tried, where known; of the readings all hold."""
        return [{**dict.fromkeys(self._numbers, True), **seen} for seen in self._facts.values()]


@dataclass
class Lesson(Generic[R, P]):
    """How a program of formulas is learnt: ``gather`` sees to it that there are enough examples, ``fit`` makes formulas of
    them."""

    examples: Examples[R]
    gather: Callable[[], None]
    fit: Callable[[], P]

    def program(self, table: DecisionTable, seed: Sequence[int]) -> P:
        """The program from examples that show all that its tables should know."""
        rows: Array | None = None
        rounds = 0
        while True:
            self.gather()
            try:
                made = self.fit()
            except Unlike as unlike:
                self.examples.part(unlike)
                continue
            rounds += 1
            if not made.tables or rounds > _MORE_ROUNDS:
                return made
            if rows is None:
                rows = table.sample(np.random.default_rng([*seed, 9]), _MORE_ROWS)
                rows = rows[made.possible(made.environment(rows))]
            more = unseen(made.tables, made.environment(rows), _MORE_EXAMPLES)
            if not len(more):
                return made
            for at in more:
                self.examples.add(rows[at])
            rows = np.delete(rows, more, axis=0)


def unseen(tables: Collection[Table], env: Environment, most: int) -> Array:
    """The numbers of rows that stand for all choices that a table does not know, at most so many."""
    chosen: dict[int, None] = {}
    for table in sorted(tables, key=lambda t: t.keys):
        unknown = np.flatnonzero(np.isnan(np.asarray(table(env))))
        if len(unknown):
            choices = np.stack([env.range(key)[unknown] for key in table.keys])
            chosen.update(dict.fromkeys(unknown[np.unique(choices, axis=1, return_index=True)[1]].tolist()))
    return np.array(list(chosen)[:most], dtype=np.intp)
