"""Coordinate descent over the parameters of a space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from ...meta_schedule.post_optimization.droplet_search import DropletSearch
from .tuner import Tuner

if TYPE_CHECKING:
    from ..task.task import Task

__all__ = ["DropletTuner"]


class DropletTuner(Tuner):
    """From ``start_position`` (the number of each parameter's value) to neighbours that a t-test with ``pvalue`` finds
    faster; ends where none is."""

    def __init__(self, task: Task, start_position: Sequence[int] | None = None, pvalue: float = 0.05) -> None:
        super().__init__(task)
        self.start_position, self.pvalue = start_position, pvalue
        self.space = task.config_space
        self.search = self._begin()
        self.results: dict[tuple[int, ...], Any] = {}
        self._waiting: list[tuple[int, ...]] = []

    def _begin(self) -> DropletSearch:
        start = self.start_position
        if start is None and not self.space.is_index_valid(0):
            start = self.space.point2knob(self.space.get_next_index(0))
        return DropletSearch(self.space.dims, start, pvalue=self.pvalue, valid=self._valid)

    def _valid(self, point: tuple[int, ...]) -> bool:
        found: bool = self.space.is_index_valid(self.space.knob2point(point))
        return found

    @property
    def best_choice(self) -> tuple[int, list[int], list[float]]:
        """Number, values and costs of the best configuration so far."""
        point = self.search.best_point
        return self.space.knob2point(point), list(point), list(self.search.best_costs)

    def has_next(self) -> bool:
        return self.search.has_next()

    def next_batch(self, batch_size: int) -> list[Any]:
        while True:
            points = self.search.propose(batch_size)
            remembered = [p for p in points if p in self.results]
            # What an earlier run measured is known at once.
            self.search.update(remembered, [self.results[p] for p in remembered])
            self._waiting = [p for p in points if p not in self.results]
            if self._waiting or not self.search.has_next():
                return [self.space.get(self.space.knob2point(p)) for p in self._waiting]

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        points = [tuple(self.space.point2knob(int(inp.config.index))) for inp in inputs]
        self.search.update(points, [list(r.costs) if int(r.error_no) == 0 else None for r in results])

    def known(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            point = tuple(self.space.point2knob(int(inp.config.index)))
            self.results[point] = list(res.costs) if int(res.error_no) == 0 else None

    def reset(self) -> None:
        super().reset()
        self.search = self._begin()
