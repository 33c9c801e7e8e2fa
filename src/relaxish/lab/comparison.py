"""Comparing strategies on recorded spaces: curves with bands, areas under them, tests of ranks, tables."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from ..support.errors import RelaxishError
from ..tools.svg import PALETTE, Axes
from .registry import create_strategy
from .search import Run, run_search
from .space import RecordedSpace, load_space
from ..tools.statistics import friedman, holm, mean_ranks, wilcoxon
from .strategy import Strategy
from .table import write_rows

__all__ = ["Band", "Comparison", "PairTest", "compare"]

Array = np.ndarray[Any, Any]
Make = Callable[[], Strategy]


class Band(NamedTuple):
    """Speed over the best possible speed after each trial, over the seeds: median and quartiles."""

    median: Array
    low: Array
    high: Array


class PairTest(NamedTuple):
    """Whether two strategies differ: wins of the first, of the second, and the probability of that by chance (signed
    ranks over all tasks and seeds, corrected for the number of pairs)."""

    first: str
    second: str
    wins: int
    losses: int
    probability: float


@dataclass
class Comparison:
    """All runs of a comparison: every strategy on every task with every seed."""

    runs: list[Run]
    trials: int

    @property
    def strategies(self) -> list[str]:
        """Their names, in the order given."""
        return list(dict.fromkeys(run.strategy for run in self.runs))

    @property
    def tasks(self) -> list[str]:
        """The names of the spaces."""
        return list(dict.fromkeys(run.task for run in self.runs))

    def of(self, strategy: str, task: str | None = None) -> list[Run]:
        """The runs of a strategy, ordered by task and seed."""
        found = [r for r in self.runs if r.strategy == strategy and task in (None, r.task)]
        return sorted(found, key=lambda r: (self.tasks.index(r.task), r.seed))

    def band(self, strategy: str, task: str) -> Band:
        """The curve of a strategy on a task."""
        curves = np.array([run.optimum / run.curve(self.trials) for run in self.of(strategy, task)])
        low, median, high = np.quantile(curves, [0.25, 0.5, 0.75], axis=0)
        return Band(median, low, high)

    def scores(self) -> Array:
        """``[tasks and seeds, strategies]``: areas under the curves."""
        return np.array([[run.score(self.trials) for run in self.of(name)] for name in self.strategies]).T

    def mean_ranks(self) -> dict[str, float]:
        """The mean rank of each strategy by area under the curve; 1 is best."""
        return dict(zip(self.strategies, mean_ranks(-self.scores()).tolist(), strict=True))

    def friedman(self) -> tuple[float, float]:
        """Whether the strategies differ at all: Friedman's statistic and its probability if they did not."""
        return friedman(-self.scores())

    def pair_tests(self) -> list[PairTest]:
        """Every pair of strategies."""
        table, names = self.scores(), self.strategies
        pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        chances = holm([wilcoxon(table[:, i], table[:, j]) for i, j in pairs])
        return [
            PairTest(
                names[i], names[j], int((table[:, i] > table[:, j]).sum()), int((table[:, i] < table[:, j]).sum()), p
            )
            for (i, j), p in zip(pairs, chances, strict=True)
        ]

    # ---- showing it

    def summary(self) -> list[dict[str, Any]]:
        """One row for each strategy and task."""
        rows = []
        for task in self.tasks:
            for name in self.strategies:
                runs = self.of(name, task)
                final = [run.optimum / run.curve(self.trials)[-1] for run in runs]
                near = [float(run.trials_to(0.95) or math.inf) for run in runs]
                rows.append(
                    {
                        "task": task,
                        "strategy": name,
                        "area": float(np.mean([run.score(self.trials) for run in runs])),
                        "final": float(np.median(final)),
                        "trials to 95 %": float(np.median(near)),
                        "seeds": len(runs),
                        "search seconds": float(np.mean([run.wall for run in runs])),
                    }
                )
        return rows

    def table(self) -> str:
        """The summary, ranks and tests as text."""
        rows = self.summary()
        lines = [f"{'task':<12} {'strategy':<16} {'area':>6} {'final':>6} {'to 95 %':>8} {'seconds':>8}"]
        for row in rows:
            near = f"{row['trials to 95 %']:.0f}" if math.isfinite(row["trials to 95 %"]) else "never"
            lines.append(
                f"{row['task']:<12} {row['strategy']:<16} {row['area']:6.3f} {row['final']:6.3f} {near:>8} "
                f"{row['search seconds']:8.2f}"
            )
        if len(self.strategies) > 1:
            statistic, chance = self.friedman()
            lines += ["", "mean rank: " + ", ".join(f"{n} {r:.2f}" for n, r in self.mean_ranks().items())]
            lines.append(f"Friedman: chi2 = {statistic:.2f}, p = {chance:.2g}")
            for test in self.pair_tests():
                lines.append(f"{test.first} : {test.second} = {test.wins} : {test.losses}, p = {test.probability:.2g}")
        return "\n".join(lines)

    def svg(self, task: str) -> str:
        """Best-so-far curves of a task with bands from the lower to the upper quartile, as an SVG picture."""
        bands = {name: self.band(name, task) for name in self.strategies}
        lowest = min(float(b.low[np.isfinite(b.low)].min(initial=1.0)) for b in bands.values())
        axes = Axes([1.0, float(self.trials)], [lowest, 1.0], x_label="trials", y_label="speed / best speed")
        for number, (name, band) in enumerate(bands.items()):
            color = PALETTE[number % len(PALETTE)]
            axes.parts.append(_area(axes, band, color))
            axes.steps([(i + 1.0, float(y)) for i, y in _corners(band.median)], color, name)
            axes.parts.append(
                f'<text x="560" y="{180 + 14 * number}" style="fill:{color}">{html.escape(name)}</text>'
            )  # fmt: skip
        style = "<style>.curve{fill:none;stroke-width:2}.grid{stroke:#ddd}text{font:12px sans-serif}</style>"
        picture = axes.render().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        return picture.replace(">", f">{style}", 1)

    # ---- files

    def curve_rows(self) -> list[dict[str, Any]]:
        """One row for each trial of each run."""
        return [
            {
                "task": run.task, "strategy": run.strategy, "seed": run.seed, "trial": i + 1, "point": run.points[i],
                "seconds": run.seconds[i], "best": run.best[i], "speed": run.optimum / run.best[i],
            }
            for run in self.runs
            for i in range(len(run.points))
        ]  # fmt: skip

    def metric_rows(self) -> list[dict[str, Any]]:
        """One row for each batch that a cost model had predicted."""
        return [
            {
                "task": run.task, "strategy": run.strategy, "seed": run.seed, "trials": m.trials,
                "rank_correlation": m.rank_correlation, "recall": m.recall, "rmse": m.rmse,
            }
            for run in self.runs
            for m in run.metrics
        ]  # fmt: skip

    def save(self, path: str | PathLike[str]) -> None:
        """Write every trial to a file: ``.csv`` or ``.parquet``."""
        write_rows(self.curve_rows(), path)


def _corners(values: Array) -> list[tuple[int, float]]:
    """Where a curve changes, its first and its last value."""
    changed = np.flatnonzero(np.diff(values, prepend=-1.0))
    places = sorted({*changed.tolist(), len(values) - 1})
    return [(i, float(values[i])) for i in places]


def _area(axes: Axes, band: Band, color: str) -> str:
    upper = [f"{axes.x(i + 1):.1f},{axes.y(float(v)):.1f}" for i, v in enumerate(band.high)]
    lower = [f"{axes.x(i + 1):.1f},{axes.y(float(v)):.1f}" for i, v in enumerate(band.low)]
    return f'<polygon fill="{color}" fill-opacity=".15" points="{" ".join([*upper, *reversed(lower)])}"/>'


def _maker(given: str | Make | Mapping[str, Any]) -> Make:
    match given:
        case str():
            return lambda: create_strategy(given)
        case Mapping():
            options = {k: v for k, v in given.items() if k != "strategy"}
            return lambda: create_strategy(str(given["strategy"]), options)
    return given


def compare(
    strategies: Sequence[str] | Mapping[str, str | Make | Mapping[str, Any]],
    tasks: Sequence[str | RecordedSpace],
    seeds: int | Sequence[int] = 5,
    *,
    trials: int = 500,
    batch: int = 64,
    noise: str | float = "none",
    watch: Callable[[Run], None] | None = None,
) -> Comparison:
    """Search every task with every strategy and every seed, and put the runs side by side.

    ``strategies`` are names (see ``strategy_names``), or names of the caller's own with what they stand for: a name, a
    mapping with the key ``strategy`` and options, or a function that gives a new :class:`Strategy`. ``tasks`` are recorded
    spaces, or what ``load_space`` takes; ``watch(run)`` is told of each run. Raises RelaxishError for unknown names.
    """
    given = dict(strategies) if isinstance(strategies, Mapping) else {name: name for name in strategies}
    spaces = [load_space(task) if not isinstance(task, RecordedSpace) else task for task in tasks]
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not given or not spaces or not numbers:
        raise RelaxishError("a comparison needs at least one strategy, one task and one seed")
    if len({space.name for space in spaces}) < len(spaces):
        raise RelaxishError("two tasks of a comparison have the same name")
    runs: list[Run] = []
    for space in spaces:
        for name, what in given.items():
            for seed in numbers:
                run = run_search(space, _maker(what)(), trials, seed=seed, batch=batch, noise=noise, name=name)
                runs.append(run)
                if watch is not None:
                    watch(run)
    return Comparison(runs, trials)
