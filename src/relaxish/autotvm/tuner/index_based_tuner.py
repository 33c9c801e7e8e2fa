"""Tuners that go through the numbers of a space: in order, or at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from .tuner import Tuner

if TYPE_CHECKING:
    from ..task.task import Task

__all__ = ["GridSearchTuner", "IndexBaseTuner", "RandomTuner"]


class IndexBaseTuner(Tuner):
    """``range_idx`` (first, last), both included, is the part of the space that is searched."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task)
        if range_idx is not None and not isinstance(range_idx, tuple):
            raise TypeError("range_idx must be None or a tuple of two numbers")
        space = task.config_space
        self.begin_idx, end = range_idx or (0, space.range_length - 1)
        self.end_idx = end + 1
        self.range_length = space.subrange_length(self.begin_idx, self.end_idx)
        self.visited: set[int] = set()
        self.visited_max = self.range_length

    def has_next(self) -> bool:
        return len(self.visited) < self.visited_max

    def foresees(self) -> bool:
        return True

    def known(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        found = (int(inp.config.index) for inp in inputs)
        self.visited.update(i for i in found if self.begin_idx <= i < self.end_idx)

    def reset(self) -> None:
        super().reset()
        self.visited = set()


class GridSearchTuner(IndexBaseTuner):
    """All configurations in the order of their numbers."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None) -> None:
        super().__init__(task, range_idx)
        self.index: int | None = self._first()

    def _first(self) -> int | None:
        if self.task.config_space.is_index_valid(self.begin_idx):
            return self.begin_idx
        found: int | None = self.task.config_space.get_next_index(
            self.begin_idx, start=self.begin_idx, end=self.end_idx
        )
        return found

    def next_batch(self, batch_size: int) -> list[Any]:
        space = self.task.config_space
        out: list[Any] = []
        while len(out) < batch_size and self.index is not None:
            if self.index not in self.visited:
                self.visited.add(self.index)
                out.append(space.get(self.index))
            self.index = space.get_next_index(self.index, start=self.begin_idx, end=self.end_idx)
        return out

    def has_next(self) -> bool:
        return self.index is not None and super().has_next()

    def reset(self) -> None:
        super().reset()
        self.index = self._first()


class RandomTuner(IndexBaseTuner):
    """Configurations at random, none twice."""

    def next_batch(self, batch_size: int) -> list[Any]:
        space = self.task.config_space
        out: list[Any] = []
        while len(out) < batch_size and self.has_next():
            index = space.get_rand_index(self.begin_idx, self.end_idx, to_exclude=self.visited)
            self.visited.add(index)
            out.append(space.get(index))
        return out
