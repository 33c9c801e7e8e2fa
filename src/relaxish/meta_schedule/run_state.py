"""What lets a tuning run that was killed go on: which round each task is in, and what the cost model has learnt.

Records say what was measured; ``search_state.json`` beside them says the rest, and is replaced as a whole after every
round. A run that ends normally marks the state as finished: the next run in the same directory is then a new one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .database import Database, JSONDatabase, TuningRecord, Workload, mean_seconds

if TYPE_CHECKING:
    from .cost_model import CostModel
    from .task_scheduler import TaskScheduler
    from .tune_context import TuneContext

__all__ = ["RunState"]

_STATE, _MODEL = "search_state.json", "cost_model.tar"


class RunState:
    """The state of one run. ``settings`` identify it: a stopped run goes on only under the same ones."""

    def __init__(
        self,
        work_dir: str,
        database: Database,
        tasks: Sequence[TuneContext],
        settings: dict[str, Any],
        model: CostModel | None,
    ) -> None:
        self._path = os.path.join(work_dir, _STATE)
        self._model_path = os.path.join(work_dir, _MODEL)
        self._database = database
        self._model = model
        self._batch = int(settings["trials"][2])
        self._workloads = [_commit(database, task) for task in tasks]
        self._settings = {**settings, "tasks": [w.key for w in self._workloads]}
        stored = self._read()
        self.resumed = stored is not None
        self._state: dict[str, Any] = stored or {
            "settings": self._settings,
            "finished": False,
            "scheduler": {},
            "tasks": [
                {"base": len(database.records_of(w)), "history": [], "trials": 0, "strategy": {}}
                for w in self._workloads
            ],
        }
        if not self.resumed:
            self._write()

    def _read(self) -> dict[str, Any] | None:
        """The state of a run that was stopped, None if there is none that could go on."""
        if not isinstance(self._database, JSONDatabase):
            return None
        try:
            with open(self._path) as file:
                stored = json.load(file)
        except (OSError, ValueError):
            return None
        if not isinstance(stored, dict) or stored.get("finished") or stored.get("settings") != self._settings:
            return None
        enough = all(
            len(self._database.records_of(w)) >= t["base"]
            for w, t in zip(self._workloads, stored["tasks"], strict=True)
        )
        return stored if enough else None

    def _write(self) -> None:
        with open(self._path + ".tmp", "w") as file:
            json.dump(self._state, file)
        os.replace(self._path + ".tmp", self._path)

    def save_round(self, scheduler: TaskScheduler) -> None:
        """Write state and cost model after a round."""
        if self._model is not None and self._model.trained:
            self._model.save(self._model_path)
        self.save(scheduler)

    def save(self, scheduler: TaskScheduler) -> None:
        """Write the state, as soon as a round's candidates are chosen."""
        for stored, task in zip(self._state["tasks"], scheduler.tasks_, strict=True):
            stored["history"] = [x if math.isfinite(x) else None for x in task.best_time_cost_history]
            stored["trials"] = task.trials if task.measure_candidates is None else stored["trials"]
            if task.ctx.search_strategy is not None:
                stored["strategy"] = task.ctx.search_strategy.save_state()
        self._state["scheduler"] = scheduler.save_state()
        self._write()

    def finish(self) -> None:
        """The run has ended; another one in this directory starts anew."""
        self._state["finished"] = True
        self._write()

    # ---- going on

    def restore(self, scheduler: TaskScheduler) -> None:
        """Bring tasks, strategies, scheduler and cost model to where the stopped run was."""
        self._restore_model(scheduler)
        if not self.resumed:
            return
        scheduler.load_state(self._state["scheduler"])
        for stored, task, workload in zip(self._state["tasks"], scheduler.tasks_, self._workloads, strict=True):
            records = _measurements(self._database, workload, stored["base"])
            for record in records:
                failed = record.error_msg is not None
                task.build_error_count += failed and record.stage == "build"
                task.run_error_count += failed and record.stage != "build"
                task.latency_ms.append(math.inf if failed else mean_seconds(record.run_secs) * 1000)
            history = [math.inf if x is None else x for x in stored["history"]]
            # Rounds that were complete although the note of it was not written.
            for done in range(stored["trials"] + self._batch, len(records) + 1, self._batch):
                history.append(min(task.latency_ms[:done]))
            task.best_time_cost_history = history
            task.ctx.logger.info("Going on after %d rounds with %d measurements", len(history), len(records))
            if task.ctx.search_strategy is not None:
                task.ctx.search_strategy.resume(len(history), len(records), stored["strategy"])

    def _restore_model(self, scheduler: TaskScheduler) -> None:
        """Load the model as saved, then teach it what was recorded after that."""
        if self._model is None:
            return
        if os.path.exists(self._model_path):
            self._model.load(self._model_path)
        elif not self.resumed:
            return
        for task, workload in zip(scheduler.tasks_, self._workloads, strict=True):
            records = [r for r in _measurements(self._database, workload, 0) if r.stage != "build"]
            self._model.learn_records(task.ctx, records)


def _commit(database: Database, task: TuneContext) -> Workload:
    assert task.mod is not None
    if isinstance(database, JSONDatabase):
        return database.commit_workload(task.mod, task.task_name)
    return database.commit_workload(task.mod)


def _measurements(database: Database, workload: Workload, base: int) -> list[TuningRecord]:
    return [r for r in database.records_of(workload)[base:] if not r.again]
