"""One search on a recorded space: a strategy, a seed, and the curve of the best so far."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..support.errors import RelaxishError
from .metrics import ModelMetrics, model_metrics
from .replay import Noise
from .space import RecordedSpace
from .strategy import Strategy

__all__ = ["Run", "run_search"]

Array = np.ndarray[Any, Any]


@dataclass
class Run:
    """Result of one search.

    ``points`` are the programs in the order tried, ``seconds`` what the search was told they took (with noise), and
    ``best[i]`` the undisturbed time of the program that it would have chosen after trial ``i`` (infinite before one ran).
    ``wall`` is how long the search itself took, which is no part of what two runs of one seed agree in.
    """

    strategy: str
    task: str
    seed: int
    optimum: float
    points: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    metrics: list[ModelMetrics] = field(default_factory=list)
    wall: float = field(default=0.0, compare=False)

    def curve(self, trials: int) -> Array:
        """``[trials]``: the best so far; a search that ended early stays where it was."""
        found = np.full(trials, math.inf)
        known = np.array(self.best[:trials])
        found[: len(known)] = known
        if len(known):
            found[len(known) :] = known[-1]
        return found

    def score(self, trials: int) -> float:
        """The area under the curve of speeds over the best possible speed: 1 for a search that is right at once."""
        return float(np.mean(self.optimum / self.curve(trials)))

    def trials_to(self, share: float) -> int | None:
        """After how many trials a program of that share of the best possible speed was chosen; None if never."""
        return next((i + 1 for i, t in enumerate(self.best) if self.optimum / t >= share), None)


def run_search(
    space: RecordedSpace,
    strategy: Strategy,
    trials: int,
    *,
    seed: int = 0,
    batch: int = 64,
    noise: str | float = "none",
    name: str = "",
) -> Run:
    """Search a recorded space. The same arguments give the same run, bit for bit.

    Raises RelaxishError for a strategy that proposes what is not recorded, or more than it was asked for.
    """
    if trials < 1 or batch < 1:
        raise RelaxishError(f"a search has trials and batches of at least 1, not {trials} and {batch}")
    source = Noise(noise, seed)
    run = Run(name or type(strategy).__name__, space.name, seed, space.best)
    began = time.perf_counter()
    strategy.start(space, seed, trials, batch)
    least, chosen = math.inf, math.inf
    while len(run.points) < trials:
        wanted = min(batch, trials - len(run.points))
        points = [int(p) for p in strategy.propose(wanted)]
        if not points:
            break
        unknown = [p for p in points if p not in space]
        if unknown or len(points) > wanted:
            what = f"the program {unknown[0]}, which was not recorded" if unknown else f"{len(points)} programs"
            raise RelaxishError(f"{run.strategy} proposed {what}, when asked for {wanted} of {space.name}")
        predicted = strategy.predictions()
        seconds = [source.seconds(space, p) for p in points]
        for point, value in zip(points, seconds, strict=True):
            if value < least:
                least, chosen = value, space.time(point)
            run.points.append(point)
            run.seconds.append(value)
            run.best.append(chosen)
        if predicted is not None:
            found = model_metrics(len(run.points), np.array(predicted), np.array(seconds), least)
            run.metrics += [found] if found is not None else []
        strategy.observe(points, seconds)
    strategy.finish()
    run.wall = time.perf_counter() - began
    return run
