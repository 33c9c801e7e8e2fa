"""Improve the best records of a tuning run by coordinate descent."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...support.log import get_logger
from ...target import Target
from ..arg_info import ArgInfo
from ..database import Database, JSONDatabase, TuningRecord
from ..database.database import mean_seconds
from .droplet_search import DropletSearch
from .space import Space

if TYPE_CHECKING:
    from ..builder import Builder
    from ..runner import Runner

__all__ = ["Droplet", "PostOpt"]

_log = get_logger("meta_schedule")


class Droplet:
    """The search around one record: :meth:`tune` measures neighbours, and their neighbours where they are faster."""

    def __init__(
        self, record: TuningRecord, target: Target, database: Database | None = None, pvalue: float = 0.05
    ) -> None:
        self.record, self.target, self.database = record, target, database
        self.space = Space(record, target)
        self.search = DropletSearch(
            self.space.dims, self.space.start, best=record.run_secs or [], pvalue=pvalue, valid=self.space.valid
        )
        self.measured = 0

    def tune(self, n_trial: int = 100, builder: Builder | str = "local", runner: Runner | str = "local") -> list[float]:
        """Measure up to ``n_trial`` points; the times of the best. New records go into the database."""
        from ..measure import Candidate, MeasureEngine

        with MeasureEngine(self.target, builder, runner) as engine:
            while self.measured < n_trial and self.search.has_next():
                points = self.search.propose(n_trial - self.measured)
                candidates = [Candidate(functools.partial(self.space.schedule, p)) for p in points]
                self.measured += len(points)
                costs: list[list[float] | None] = []
                for point, result in zip(points, engine.measure(candidates), strict=True):
                    costs.append(result.run_secs if result.ok else None)
                    if result.ok:
                        self._commit(point, result.run_secs)
                self.search.update(points, costs)
        return self.search.best_costs

    def _commit(self, point: tuple[int, ...], times: list[float]) -> None:
        if self.database is None:
            return
        trace = self.space.schedule(point).trace
        if trace is not None:
            args_info = ArgInfo.from_entry_func(self.record.workload.mod, remove_preproc=True)
            self.database.commit_tuning_record(
                TuningRecord(trace, self.record.workload, times, self.target, args_info)
            )  # fmt: skip


class PostOpt:
    """Coordinate descent from the best record of each workload in ``work_dir``, ``trials`` measurements each.

    :meth:`run` prints a row for each: the time before (MS), after (DPMS), and the speedup. What is found goes into the
    same database, unchecked as all new records are until they are applied.
    """

    def __init__(
        self, work_dir: str, target: Target | str, trials: int = 100, database: Database | None = None
    ) -> None:
        self.work_dir = work_dir
        self.target = target if isinstance(target, Target) else Target(target)
        self.trials = trials
        self.database = database

    def run(self, builder: Builder | str = "local", runner: Runner | str = "local") -> list[tuple[float, float]]:
        """Mean seconds before and after, for each workload."""
        database = self.database if self.database is not None else JSONDatabase(work_dir=self.work_dir)
        print("id | time MS (s) | time DPMS (s) | speedup")
        found: list[tuple[float, float]] = []
        for number, workload in enumerate(database.workloads()):
            best = database.get_top_k(workload, 1)
            if not best:
                continue
            before = mean_seconds(best[0].run_secs)
            try:
                times = Droplet(best[0], self.target, database).tune(self.trials, builder, runner)
            except Exception as error:  # a record of another version, say: the other workloads go on
                _log.warning("workload %d is left as it is: %s", number, error)
                continue
            after = min(before, mean_seconds(times))
            found.append((before, after))
            print(f"{number:2d} | {before:.10f} | {after:.10f} | {before / after:.2f}")
        database.flush()
        return found
