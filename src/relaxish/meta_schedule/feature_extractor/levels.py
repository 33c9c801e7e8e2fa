"""The loops around a store as levels, for many candidates; fused groups fold into their first member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Array", "Levels"]

Array = np.ndarray[Any, Any]


class Levels:
    """``extents`` from the outside in, each a number or a column; the outermost ``num_parallel`` and the innermost
    ``num_vector`` loops are one loop each."""

    def __init__(self, extents: Sequence[Any], num_parallel: int, num_vector: int, size: int) -> None:
        n = self.n = len(extents)
        self.size = size
        self._columns = np.arange(size)
        self.extent = np.empty((n, size), dtype=np.float32)
        for i, extent in enumerate(extents):
            self.extent[i] = extent
        self.suffix = np.ones((n + 1, size), dtype=np.float32)
        for i in range(n - 1, -1, -1):
            np.multiply(self.suffix[i + 1], self.extent[i], out=self.suffix[i])
        self.prod = self.suffix[0]
        self._num_parallel = np.maximum(np.broadcast_to(np.asarray(num_parallel, dtype=np.intp), (size,)), 1)
        head = n - np.maximum(np.broadcast_to(np.asarray(num_vector, dtype=np.intp), (size,)), 1)
        # A nest that is one parallel loop has that as its innermost loop.
        everything = self._num_parallel >= n
        self.par = np.where(everything, 1, self._num_parallel)
        self.head = np.where(everything, 0, head)
        self.moving = (self.extent > 1).astype(np.float32)
        self._ranks = np.arange(1, n + 1, dtype=np.int8)[:, None]
        self._group()

    def _group(self) -> None:
        n = self.n
        row = np.arange(n)[:, None]
        self.in_vector = row >= self.head
        self.in_parallel = (row < self.par) & ~self.in_vector
        self._is_head = row == self.head
        # Rows that may belong to a group at all; most work is done on these only.
        self._par_rows = slice(0, int(self.par.max(initial=0)))
        self._vec_rows = slice(int(self.head.min(initial=n)) if n else 0, n)
        self.exists = ~((row >= 1) & self.in_parallel) & ~(row > self.head)
        self.plain = bool(self.exists.all())
        self.num_loops = self.exists.sum(axis=0)
        self.inner = self.next_rows(list(self.suffix[:n]), 1.0)
        self.group = self.suffix[:n] / self.inner
        if not self.plain:
            self.alone = ~(self.in_parallel | self.in_vector)

    def groups_of(self, position: int) -> list[tuple[int, Array]]:
        """The fused groups (0 parallel, 1 vector) a loop may be in, each with the candidates where it is."""
        if self.plain:
            return []
        found = []
        if position < self._par_rows.stop:
            found.append((0, self.in_parallel[position]))
        if position >= self._vec_rows.start:
            found.append((1, self.in_vector[position]))
        return found

    def next_rows(self, rows: Sequence[Any], last: float) -> Array:
        """For each level the row of the next level inwards, ``last`` inside the innermost."""
        n = self.n
        every = np.empty((n + 1, self.size), dtype=np.float32)
        for i, row in enumerate(rows):
            every[i] = row
        every[n] = last
        if self.plain or n == 0:
            return every[1:]
        out = every[1:].copy()
        out[0] = self.pick(every, self.par)
        heads = self._vec_rows
        np.copyto(out[heads], np.float32(last), where=self._is_head[heads])
        return out

    def pick(self, rows: Array, at: Array) -> Array:
        """``rows[at[p], p]`` for every candidate ``p``."""
        return rows.take(at * self.size + self._columns)

    def innermost(self, flags: Array) -> tuple[Array, Array]:
        """The innermost level that is flagged, and whether there is one; at level 0 where there is none."""
        ranks = (flags & self.exists).view(np.int8) * self._ranks
        best = ranks.max(axis=0).astype(np.intp)
        return np.maximum(best - 1, 0), best > 0

    def fold_any(self, flags: Array) -> None:
        """A fused group is flagged when any member is (in place, at the group's first level)."""
        if self.plain:
            return
        heads, outer = self._vec_rows, self._par_rows
        any_inner = (flags[heads] & self.in_vector[heads]).any(axis=0)
        any_outer = (flags[outer] & self.in_parallel[outer]).any(axis=0)
        np.copyto(flags[heads], any_inner, where=self._is_head[heads])
        np.copyto(flags[0], any_outer, where=self.head != 0)

    def innermost_step(self, steps: Array) -> tuple[Array, Array]:
        """The innermost level that moves an access, and its smallest step (0 for none)."""
        moves = steps > 0
        best = (moves.view(np.int8) * self._ranks).max(axis=0).astype(np.intp)
        at = np.maximum(best - 1, 0)
        found = self.pick(steps, at)
        if self.plain:
            return np.where(best > 0, at, self.n - 1), found
        in_par = (at < self.par) & (self.head > 0)
        in_vec = (at >= self.head) & ~in_par
        for rows, member, here in (
            (self._vec_rows, self.in_vector, in_vec),
            (self._par_rows, self.in_parallel, in_par),
        ):
            least = np.where(moves[rows] & member[rows], steps[rows], np.float32(np.inf)).min(axis=0, initial=np.inf)
            found = np.where(here & (best > 0), least, found)
        at = np.where(in_par, 0, np.where(in_vec, self.head, at))
        return np.where(best > 0, at, self.n - 1), found

    def hide_fused(self, rows: Array) -> None:
        """Give hidden members of a group a neighbour's value, so that the group is one point (in place)."""
        if self.plain:
            return
        n = self.n
        for depth in range(1, n):  # hidden in the vector loop: the loop's own values
            if depth > self._vec_rows.start:
                np.copyto(rows[depth], rows[depth - 1], where=depth > self.head)
        for depth in range(min(n - 2, self._par_rows.stop - 1), 0, -1):  # hidden in the parallel loop: left out
            hidden = self.in_parallel[depth] & (depth <= self.head)
            np.copyto(rows[depth], rows[depth + 1], where=hidden)

    def fused_extents(self) -> tuple[Array, Array]:
        """The number of iterations of the parallel and of the vector loop."""
        if self.n == 0:
            one = np.ones(self.size, dtype=np.float32)
            return one, one
        return self.prod / self.pick(self.suffix, self._num_parallel), self.pick(self.suffix, self.head)
