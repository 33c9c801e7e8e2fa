"""Coordinate descent over a grid of choices: from the best point known to its neighbours, as far as times get better.

The same search serves AutoTVM's ``DropletTuner`` and ``PostOpt``. A point is accepted when it is faster and a t-test
says that this is no chance; where no neighbour is, points further away along each axis follow.

Source: Canesche et al., "The droplet search algorithm for kernel scheduling" (ACM TACO, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["DropletSearch", "t_test"]

_ROUNDS = 200
_TINY = 1e-300


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _ROUNDS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away(1.0 + step * d)
            c = _away(1.0 + step / c)
            value *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return value


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _regularized_beta(a: float, b: float, x: float) -> float:
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def t_test(first: Sequence[float], second: Sequence[float]) -> float:
    """The probability that two samples with means so different are of equal mean (Welch's test, two-sided).

    0 where one of them has fewer than two values, or neither varies: then the means alone decide.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) < 2 or len(b) < 2:
        return 0.0
    spread = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if sum(spread) <= 0.0:
        return 0.0
    t2 = float((a.mean() - b.mean()) ** 2 / sum(spread))
    freedom = sum(spread) ** 2 / (spread[0] ** 2 / (len(a) - 1) + spread[1] ** 2 / (len(b) - 1))
    return _regularized_beta(float(freedom) / 2.0, 0.5, float(freedom) / (float(freedom) + t2))


class DropletSearch:
    """Points of a grid to try next.

    ``dims`` says how many choices each axis has, ``start`` where to begin, ``best`` what is known of the start (costs),
    ``batch`` how many points to have ready, ``valid`` which points exist at all.
    """

    def __init__(
        self,
        dims: Sequence[int],
        start: Sequence[int] | None = None,
        *,
        best: Sequence[float] | None = None,
        pvalue: float = 0.05,
        batch: int = 16,
        valid: Callable[[tuple[int, ...]], bool] | None = None,
    ) -> None:
        self.dims = [int(d) for d in dims]
        first = tuple(int(x) for x in start) if start is not None else (0,) * len(self.dims)
        if len(first) != len(self.dims) or any(not 0 <= x < d for x, d in zip(first, self.dims, strict=True)):
            raise ValueError(f"the start {list(first)} is no point of a grid of {self.dims} choices")
        self.pvalue, self.batch = pvalue, max(1, batch)
        self._valid = valid or _always
        self.best_point = first
        self.best_costs: list[float] = list(best) if best is not None else []
        self.visited: set[tuple[int, ...]] = set()
        self.reach = 1
        self._queue: list[tuple[int, ...]] = []
        if best is None:
            self._offer(first)
        else:
            self.visited.add(first)
        self._fill()

    # ---- points

    def _offer(self, point: tuple[int, ...]) -> None:
        if point not in self.visited:
            self.visited.add(point)
            if self._valid(point):
                self._queue.append(point)

    def _around(self, distance: int) -> None:
        """The points a distance away along one axis, which wraps around for choices without order at its ends."""
        for axis, size in enumerate(self.dims):
            for step in (distance, -distance):
                place = self.best_point[axis] + step
                if 0 <= place < size:
                    self._offer((*self.best_point[:axis], place, *self.best_point[axis + 1 :]))

    def _fill(self) -> None:
        while len(self._queue) < self.batch and self.reach <= max(self.dims, default=0):
            self._around(self.reach)
            self.reach += 1

    def has_next(self) -> bool:
        """Whether there are points left to try."""
        return bool(self._queue)

    def propose(self, count: int) -> list[tuple[int, ...]]:
        """Up to ``count`` points to measure; their costs are expected by :meth:`update`."""
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def update(self, points: Sequence[Sequence[int]], costs: Sequence[Sequence[float] | None]) -> bool:
        """Learn what points cost (None: they failed); whether a better one was found."""
        found = False
        for point, measured in zip(points, costs, strict=True):
            self.visited.add(tuple(int(x) for x in point))
            if not measured:
                continue
            if not self.best_costs or (
                np.mean(measured) < np.mean(self.best_costs) and t_test(self.best_costs, measured) <= self.pvalue
            ):
                self.best_point, self.best_costs = tuple(int(x) for x in point), list(measured)
                found = True
        if found:
            self._queue, self.reach = [], 1
            # What was waiting around the old point may be tried again from the new one.
        self._fill()
        return found


def _always(point: object) -> bool:
    return True
