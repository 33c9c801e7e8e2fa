"""A genetic search: parents by their speed, children by crossover and mutation of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from .tuner import Tuner, speed_of

if TYPE_CHECKING:
    from ..task.task import Task

__all__ = ["GATuner"]


class GATuner(Tuner):
    """``pop_size`` configurations a generation, of which the best ``elite_num`` ever stay parents."""

    def __init__(self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1) -> None:
        super().__init__(task)
        if elite_num > pop_size:
            raise ValueError("The number of elites must be less than population size")
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        self.space = task.config_space
        self.visited: set[int] = set()
        self.genes: list[list[int]] = []
        self.scores: list[float] = []
        self.elites: list[list[int]] = []
        self.elite_scores: list[float] = []
        self.trial_pt = 0
        self._first_generation()

    def _first_generation(self) -> None:
        count = min(self.pop_size, self.space.count)
        self.genes = [self.space.point2knob(int(i)) for i in self.space.sample_ints(count)]
        self.visited.update(self.space.knob2point(g) for g in self.genes)

    def has_next(self) -> bool:
        return len(self.visited) - (len(self.genes) - self.trial_pt) < self.space.count

    def foresees(self) -> bool:
        return self.trial_pt < len(self.genes)

    def next_batch(self, batch_size: int) -> list[Any]:
        out: list[Any] = []
        while len(out) < batch_size and self.trial_pt < len(self.genes):
            out.append(self.space.get(self.space.knob2point(self.genes[self.trial_pt])))
            self.trial_pt += 1
        return out

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        self.scores += [speed_of(inp, res) for inp, res in zip(inputs, results, strict=True)]
        if len(self.scores) >= len(self.genes) and len(self.visited) < self.space.count:
            self._next_generation()

    def known(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        genes = [self.space.point2knob(int(inp.config.index)) for inp in inputs]
        scores = [speed_of(inp, res) for inp, res in zip(inputs, results, strict=True)]
        done = {int(inp.config.index) for inp in inputs}
        waiting = [g for g in self.genes if self.space.knob2point(g) not in done]
        self.visited |= done
        self.genes, self.scores, self.trial_pt = genes + waiting, list(scores), len(genes)
        if self.trial_pt >= len(self.genes) and len(self.visited) < self.space.count:
            self._next_generation()

    def _next_generation(self) -> None:
        genes, scores = self.genes + self.elites, np.array(self.scores[: len(self.genes)] + self.elite_scores)
        best = np.argsort(-scores, kind="stable")[: self.elite_num]
        self.elites = [list(genes[i]) for i in best]
        self.elite_scores = [float(scores[i]) for i in best]
        chances = scores + 1e-8
        chances /= chances.max() or 1.0
        chances /= chances.sum()
        made = []
        for _ in range(self.pop_size):
            child = self._child(genes, chances)
            if child is None:
                break
            made.append(child)
            self.visited.add(self.space.knob2point(child))
        self.genes, self.scores, self.trial_pt = made, [], 0

    def _child(self, genes: Sequence[Sequence[int]], chances: np.ndarray[Any, Any]) -> list[int] | None:
        """A new configuration; None if there is none left."""
        if len(self.visited) >= self.space.count:
            return None
        dims = self.space.dims
        first, second = np.random.choice(len(genes), size=2, p=chances)
        cut = int(np.random.randint(len(dims))) if dims else 0
        child = [*genes[first][:cut], *genes[second][cut:]]
        for j, size in enumerate(dims):
            if np.random.random() < self.mutation_prob:
                child[j] = int(np.random.randint(size))
        point = self.space.knob2point(child)
        if point not in self.visited and self.space.is_index_valid(point):
            return child
        for _ in range(32):
            for j, size in enumerate(dims):
                if np.random.random() < max(0.3, self.mutation_prob):
                    child[j] = int(np.random.randint(size))
            point = self.space.knob2point(child)
            if point not in self.visited and self.space.is_index_valid(point):
                return child
        found: list[int] = self.space.point2knob(self.space.get_rand_index(to_exclude=self.visited))
        return found

    def reset(self) -> None:
        super().reset()
        self.visited, self.scores, self.elites, self.elite_scores, self.trial_pt = set(), [], [], [], 0
        self._first_generation()
