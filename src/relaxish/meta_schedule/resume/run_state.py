"""State of a tuning run, kept on disk so that a killed run goes on: the round of each task, and the trained cost model.

Records say what was measured; ``search_state.json`` beside them says the rest, and is replaced as a whole after every
round. The candidates of a round are in a file of their own (``search_round_<workload>.json``) from the moment they are
chosen until their round is over: the run that goes on measures those of them that have no record yet, so that it takes
the same course as one that was never stopped. A run that ends normally marks the state as finished: the next run in the
same directory is then a new one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...support.log import get_logger
from ...tir import Schedule
from ...tir.schedule import Trace
from ..arg_info import ArgInfo
from ..builder import BuilderResult
from ..database import Database, TuningRecord, Workload, mean_seconds
from ..database.database import is_here
from ..runner import RunnerResult
from ..search_strategy import MeasureCandidate
from ..search_strategy.trace_key import trace_key

if TYPE_CHECKING:
    from ..cost_model import CostModel
    from ..task_scheduler import TaskScheduler
    from ..task_scheduler.task_scheduler import TaskRecord
    from ..tune_context import TuneContext

__all__ = ["RunState"]

_STATE, _MODEL, _NEXT_MODEL = "search_state.json", "cost_model.tar", "cost_model.next.tar"
_log = get_logger("meta_schedule")


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
        self._folder = work_dir
        self._path = os.path.join(work_dir, _STATE)
        self._model_path = os.path.join(work_dir, _MODEL)
        self._next_model_path = os.path.join(work_dir, _NEXT_MODEL)
        self._database = database
        self._model = model
        self._batch = int(settings["trials"][2])
        self._workloads = [_commit(database, task) for task in tasks]
        self._settings = {**settings, "tasks": [w.key for w in self._workloads]}
        self._warned = False
        stored = self._read()
        self.resumed = stored is not None
        self._state: dict[str, Any] = stored or {
            "settings": self._settings,
            "finished": False,
            "scheduler": {},
            "rounds": 0,
            "tasks": [
                {"base": len(database.records_of(w)), "history": [], "trials": 0, "strategy": {}}
                for w in self._workloads
            ],
        }
        if not self.resumed:
            for workload in self._workloads:
                self._forget_round(workload)
            self._write()

    def _read(self) -> dict[str, Any] | None:
        """The state of a run that was stopped, None if there is none that could go on."""
        if not self._database.persistent:
            return None
        stored = _load(self._path)
        if stored is None or stored.get("finished") or stored.get("settings") != self._settings:
            return None
        try:
            enough = all(
                len(self._database.records_of(w)) >= t["base"]
                for w, t in zip(self._workloads, stored["tasks"], strict=True)
            )
        except (KeyError, TypeError, ValueError):
            return None
        return stored if enough else None

    def _write(self) -> None:
        self._replace(self._path, self._state)

    def _replace(
        self,
        path: str,
        value: Mapping[
            str, int | Sequence[Mapping[str, Any]] | Mapping[str, int | Sequence[int | str] | Mapping[str, Any]]
        ],
    ) -> None:
        """Write a file as a whole; a disk without room for it costs the possibility to go on, not the run."""
        try:
            with open(path + ".tmp", "w") as file:
                json.dump(value, file)
            os.replace(path + ".tmp", path)
        except OSError as err:
            with contextlib.suppress(OSError):
                os.unlink(path + ".tmp")
            if not self._warned:
                _log.warning("cannot write %s: %s; a run stopped now could not go on where it was", path, err.strerror)
            self._warned = True

    # ---- the candidates of a round

    def _round_path(self, workload: Workload) -> str:
        return os.path.join(self._folder, f"search_round_{workload.key}.json")

    def _forget_round(self, workload: Workload) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._round_path(workload))

    def save_candidates(self, scheduler: TaskScheduler, task_id: int) -> None:
        """Note a task's candidates before they are measured, and where that leaves the search."""
        if not self._database.persistent:
            return
        task = scheduler.tasks_[task_id]
        self._state["rounds"] += 1
        strategy = task.ctx.search_strategy
        note = {
            "number": self._state["rounds"],
            "trials": task.trials,
            "history": len(task.best_time_cost_history),
            "strategy": {} if strategy is None else strategy.save_state(),
            "scheduler": scheduler.save_state(),
            "candidates": [
                [c.sch.trace.as_json(remove_postproc=False), c.predicted]
                for c in task.measure_candidates or ()
                if c.sch.trace is not None
            ],
        }
        self._replace(self._round_path(self._workloads[task_id]), note)

    def save_round(self, scheduler: TaskScheduler) -> None:
        """Write cost model and state after a round, in this order; then the rounds that are over may be forgotten."""
        self._save_model()
        for stored, task in zip(self._state["tasks"], scheduler.tasks_, strict=True):
            if task.measure_candidates is None:
                stored["history"] = [x if math.isfinite(x) else None for x in task.best_time_cost_history]
                stored["trials"] = task.trials
        self._note_strategies(scheduler)
        self._state["scheduler"] = scheduler.save_state()
        self._write()
        with contextlib.suppress(OSError):
            os.replace(self._next_model_path, self._model_path)
        for workload, task in zip(self._workloads, scheduler.tasks_, strict=True):
            if task.measure_candidates is None:
                self._forget_round(workload)

    def _note_strategies(self, scheduler: TaskScheduler) -> None:
        for stored, task in zip(self._state["tasks"], scheduler.tasks_, strict=True):
            if task.ctx.search_strategy is not None:
                stored["strategy"] = task.ctx.search_strategy.save_state()

    def _save_model(self) -> None:
        if self._model is None:
            return
        try:
            self._model.save(self._next_model_path)
            self._state["samples"] = getattr(self._model, "data_size", None)
        except Exception as err:  # it can be taught again from the records
            self._state["samples"] = None
            _log.debug("the cost model cannot be saved: %s", err)

    def finish(self) -> None:
        """The run has ended; another one in this directory starts anew."""
        self._state["finished"] = True
        self._write()
        for workload in self._workloads:
            self._forget_round(workload)

    # ---- going on

    def restore(self, scheduler: TaskScheduler) -> None:
        """Bring tasks, strategies, scheduler and cost model to where the stopped run was."""
        rounds = [_load(self._round_path(w)) if self.resumed else None for w in self._workloads]
        self._restore_model(scheduler)
        if not self.resumed:
            # What searches have taken from the database already they must not take again when it has grown.
            self._note_strategies(scheduler)
            self._write()
            return
        scheduler.load_state(self._state["scheduler"])
        pending: list[tuple[int, int, dict[str, Any], list[TuningRecord]]] = []
        for task_id, (stored, task) in enumerate(zip(self._state["tasks"], scheduler.tasks_, strict=True)):
            records = _measurements(self._database, self._workloads[task_id], stored["base"])
            note = rounds[task_id]
            current = note is not None and (note.get("trials"), note.get("history")) == (
                stored["trials"],
                len(stored["history"]),
            )
            # Without a note of their round, measurements beyond the last one are a round of their own.
            done = records[: stored["trials"]] if current else records
            self._restore_task(task, stored, done, note["strategy"] if current and note else stored["strategy"])
            if current and note is not None:
                pending.append((int(note["number"]), task_id, note, records[stored["trials"] :]))
        for _, task_id, note, records in sorted(pending, key=lambda item: item[0]):
            self._state["rounds"] = max(self._state.get("rounds", 0), int(note["number"]))
            scheduler.load_state(note["scheduler"])
            self._resume_round(scheduler, task_id, note["candidates"], records)

    def _restore_task(
        self, task: TaskRecord, stored: dict[str, Any], records: Sequence[TuningRecord], strategy: dict[str, Any]
    ) -> None:
        for record in records:
            failed = record.error_msg is not None
            task.build_error_count += failed and record.stage == "build"
            task.run_error_count += failed and record.stage != "build"
            task.latency_ms.append(math.inf if failed else mean_seconds(record.run_secs) * 1000)
        history = [math.inf if x is None else x for x in stored["history"]]
        for done in range(stored["trials"] + self._batch, len(records) + self._batch, self._batch):
            history.append(min(task.latency_ms[:done]))
        task.best_time_cost_history = history
        task.ctx.logger.info("Going on after %d rounds with %d measurements", len(history), len(records))
        if task.ctx.search_strategy is not None:
            task.ctx.search_strategy.resume(len(history), len(records), strategy)

    def _resume_round(
        self, scheduler: TaskScheduler, task_id: int, traces: Sequence[Any], records: Sequence[TuningRecord]
    ) -> None:
        """Go on with a round: its candidates again, those measured before with their results."""
        task = scheduler.tasks_[task_id]
        assert task.ctx.mod is not None
        args = ArgInfo.from_entry_func(task.ctx.mod, remove_preproc=True)
        known = {trace_key(r.trace): r for r in records}
        candidates: list[MeasureCandidate] = []
        results: dict[int, tuple[BuilderResult, RunnerResult]] = {}
        for data, predicted in traces:
            candidate = _candidate(task.ctx, data, args)
            if candidate is None:
                continue
            candidate.predicted = predicted
            assert candidate.sch.trace is not None
            record = known.get(trace_key(candidate.sch.trace))
            if record is not None:
                candidate.recorded = True
                results[len(candidates)] = _result_of(record)
            candidates.append(candidate)
        if not candidates:
            return
        task.measure_candidates = candidates
        if task.ctx.search_strategy is not None:
            task.ctx.search_strategy.note_candidates(candidates)
        scheduler.measure(task_id, results)

    def _restore_model(self, scheduler: TaskScheduler) -> None:
        """Load the model as saved, then teach it what the rounds before the stop measured and it does not know."""
        if self._model is None:
            return
        if not self._load_model() and not self.resumed:
            return
        for stored, task, workload in zip(self._state["tasks"], scheduler.tasks_, self._workloads, strict=True):
            records = _measurements(self._database, workload, 0)
            if self.resumed:
                records = records[: len(_measured(self._database, workload)[: stored["base"]]) + stored["trials"]]
            try:
                self._model.learn_records(task.ctx, [r for r in records if r.stage != "build"])
            except Exception as err:  # a record that cannot be made a program again, say
                _log.warning("the cost model cannot learn from the records of %s: %s", task.ctx.task_name, err)

    def _load_model(self) -> bool:
        """Load the model of the last round that is over; False if there is none."""
        assert self._model is not None
        samples = self._state.get("samples")
        for path in (self._next_model_path, self._model_path):
            if not os.path.exists(path):
                continue
            try:
                self._model.load(path)
            except Exception as err:  # written by a process that died
                _log.warning("%s: the cost model cannot be read: %s", path, err)
                continue
            # A model of a round that the state knows nothing of has learnt more than it should have.
            if path == self._model_path or samples is None or getattr(self._model, "data_size", None) == samples:
                return True
        return False


def _load(path: str) -> dict[str, Any] | None:
    try:
        with open(path) as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _candidate(ctx: TuneContext, data: Sequence[Any], args: list[ArgInfo]) -> MeasureCandidate | None:
    """A candidate made again from its trace; None where that fails."""
    assert ctx.mod is not None
    sch = Schedule(ctx.mod, debug_mask="none", error_render_level="none")
    try:
        Trace.from_json(data).apply_to_schedule(sch, remove_postproc=False)
    except Exception as err:  # of another version, or damaged
        ctx.logger.warning("a candidate of the stopped round cannot be made again: %s", err)
        return None
    return MeasureCandidate(sch, args)


def _result_of(record: TuningRecord) -> tuple[BuilderResult, RunnerResult]:
    if record.error_msg is None:
        return BuilderResult(b"", None), RunnerResult(record.run_secs, None)
    failed = RunnerResult(None, record.error_msg, record.status)
    built = record.stage != "build"
    return BuilderResult(b"", None) if built else BuilderResult(None, record.error_msg, record.status), failed


def _commit(database: Database, task: TuneContext) -> Workload:
    assert task.mod is not None
    return database.commit_named(task.mod, task.task_name)


def _measured(database: Database, workload: Workload) -> list[TuningRecord]:
    return [r for r in database.records_of(workload) if not r.again]


def _measurements(database: Database, workload: Workload, base: int) -> list[TuningRecord]:
    """Measurements on this machine, beyond the first ``base`` records."""
    return [r for r in database.records_of(workload)[base:] if not r.again and is_here(r)]
