"""Choice of example candidates for fitting formulas: few, with different values for every product of tile factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .decisions import DecisionTable
from .fitting import Environment, column_ranges

__all__ = ["ExampleChooser"]

Array = np.ndarray[Any, Any]
_POOL, _LOOK_AT = 600, 48


class ExampleChooser:
    """Hands out random rows, each time one that tells most of the still indistinguishable products apart.

    A formula found on examples on which two columns agree may name the wrong one: extents like 7, with few
    factorisations, agree by chance all the time.
    """

    def __init__(self, table: DecisionTable, rng: np.random.Generator) -> None:
        self.rng = rng
        self.pool = table.sample(rng, _POOL)
        ranges = column_ranges(table.tile_ranges)
        width = table.num_tile_columns
        env = Environment(self.pool[:, :width])
        # Ranks instead of values: what matters is on which rows a product is larger, formulas may scale it. The last
        # line is the constant.
        self._codes = np.zeros((len(ranges) + 1, _POOL), dtype=np.int64)
        for i, key in enumerate(ranges):
            self._codes[i] = np.unique(env.range(key), return_inverse=True)[1]
        self._groups = np.zeros(len(ranges) + 1, dtype=np.int64)
        self._scale = int(self._codes.max()) + 1
        self._last = 0
        units = (self.pool[:, :width] == 1).sum(axis=1)
        self._open = list(np.argsort(units + rng.random(_POOL) * 0.5))

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
