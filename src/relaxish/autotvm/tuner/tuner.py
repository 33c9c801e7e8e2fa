"""Base of tuners: propose configurations, measure them, learn, keep the best."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np

from ...meta_schedule.database import Database
from ...support.log import get_logger
from ...support.sequences import of_kind
from ..env import GLOBAL_SCOPE
from ..measure import MeasureBatch, MeasureInput, MeasureOption, MeasureResult, create_measure_batch
from .callback import Callback, format_si_prefix, log_to_file

if TYPE_CHECKING:
    from ..task.task import Task

__all__ = ["Tuner", "speed_of"]

_log = get_logger("autotvm")
_NEVER = 1 << 62
# A batch that is being measured, and what waits for its results.
_Running = tuple[list[MeasureInput], Callable[[], list[MeasureResult]]]
# Logs to which this process has appended: what they hold is no earlier run's.
_OWN_LOGS: set[tuple[Path, str]] = set()


def speed_of(inp: MeasureInput, res: MeasureResult) -> float:
    """Operations a second, 0 for what failed."""
    if int(res.error_no) != 0:
        return 0.0
    cost = float(np.mean(res.costs))
    return float(inp.task.flop or 0.0) / cost if cost > 0 and np.isfinite(cost) else 0.0


class Tuner:
    """Subclass and define ``has_next``, ``next_batch`` and ``update``.

    After tuning ``best_config``, ``best_flops`` (operations a second), ``best_measure_pair`` and ``best_iter`` say what
    was found; ``ttl`` is how many trials are left at most.
    """

    #: Whether what an earlier run measured can be given to :meth:`update` and counts as trials.
    learns_from_log = True

    def __init__(self, task: Task, **kwargs: Any) -> None:
        self.task = task
        self.param = kwargs
        self.recorder = None
        self.best_config: Any = None
        self.best_flops: float = 0.0
        self.best_measure_pair: Any = None
        self.best_iter = 0
        self.error_ct_threshold = 150
        self.ttl: int | None = None
        self.n_trial: int | None = None
        self.early_stopping: int | None = None

    # ---- to be defined

    def has_next(self) -> bool:
        """Whether there are configurations left to try."""
        raise NotImplementedError

    def next_batch(self, batch_size: int) -> list[Any]:
        """Up to ``batch_size`` configurations to measure."""
        raise NotImplementedError

    def foresees(self) -> bool:
        """Whether the next batch can be proposed well before the results of the last one are known."""
        return False

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from measurements."""

    def load_history(self, data_set: Sequence[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 500) -> None:
        """Learn from measurements of other tasks, if there are ``min_seed_records``."""
        raise NotImplementedError(f"{type(self).__name__} does not learn from other tasks; XGBTuner does")

    # ---- tuning

    def tune(
        self,
        n_trial: int,
        measure_option: MeasureOption,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure up to ``n_trial`` configurations, stopping when the last ``early_stopping`` brought nothing better.

        A log among the callbacks in which an earlier process has measured this task is gone on with: what it holds is
        learned and counts. Where a ``meta_schedule`` database is in scope, each measurement goes there as well.
        """
        format_si_prefix(0.0, si_prefix)
        patience = early_stopping or _NEVER
        self.n_trial, self.early_stopping = n_trial, early_stopping
        done = self._go_on(callbacks, n_trial)
        if done >= n_trial:
            self.ttl = 0
            return
        measure_batch = create_measure_batch(self.task, measure_option)
        level = _log.level
        errors: list[str] = []
        in_row, failed = 0, 0
        before, GLOBAL_SCOPE.in_tuning = GLOBAL_SCOPE.in_tuning, True
        first = done
        try:
            running = self._propose(measure_batch, n_trial - done)
            while running is not None:
                inputs, wait = running
                given = done + len(inputs)
                # While this batch is timed, the next one is built.
                ahead = None
                if measure_batch.overlaps and given < self.best_iter + patience and self.foresees():
                    ahead = self._propose(measure_batch, n_trial - given)
                results = wait()
                for k, (inp, res) in enumerate(zip(inputs, results, strict=True)):
                    if int(res.error_no) != 0:
                        in_row, failed = in_row + 1, failed + 1
                        errors.append(str(res.costs[0]))
                    else:
                        in_row = 0
                    self._judge(inp, res, done + k + 1, si_prefix)
                done = given
                self.ttl = min(patience + self.best_iter, n_trial) - done
                self.update(inputs, results)
                for callback in [*callbacks, *_in_scope()]:
                    callback(self, inputs, results)
                    _note_own(callback, self.task)
                if done >= self.best_iter + patience:
                    _log.debug("Early stopped. Best iter: %d.", self.best_iter)
                    break
                _watch_errors(in_row, self.error_ct_threshold, level)
                running = ahead or self._propose(measure_batch, n_trial - done)
        finally:
            GLOBAL_SCOPE.in_tuning = before
            _log.setLevel(level)
        if failed and failed == done - first and self.best_config is None:
            _report_errors(self.task, errors)

    def _propose(self, measure_batch: MeasureBatch, most: int) -> _Running | None:
        """Begin to measure the next batch; None where there is none."""
        configs = self.next_batch(min(measure_batch.n_parallel, most)) if most > 0 and self.has_next() else []
        if not configs:
            return None
        inputs = [MeasureInput(self.task.target, self.task, config) for config in configs]
        return inputs, measure_batch.begin(inputs)

    def _judge(self, inp: MeasureInput, res: MeasureResult, number: int, si_prefix: str = "G") -> None:
        flops = speed_of(inp, res)
        if flops > self.best_flops:
            self.best_flops, self.best_config = flops, inp.config
            self.best_measure_pair, self.best_iter = (inp, res), number
        _log.debug(
            "No: %d\t%sFLOPS: %.2f/%.2f\tresult: %s\t%s",
            number,
            si_prefix,
            format_si_prefix(flops, si_prefix),
            format_si_prefix(self.best_flops, si_prefix),
            res,
            inp.config,
        )

    # ---- going on after a break

    def _go_on(self, callbacks: Sequence[Any], n_trial: int) -> int:
        """Learn what an earlier process wrote to the logs among the callbacks; how many trials that makes."""
        if not self.learns_from_log:
            return 0
        found: dict[int, tuple[Any, Any]] = {}
        logs = [c for c in of_kind(callbacks, log_to_file) if c.path is not None and c.path.exists()]
        for callback in logs:
            if _own(callback, self.task) in _OWN_LOGS:
                continue
            for inp, res in _measured(callback.path, self.task):
                found.setdefault(int(inp.config.index), (inp, res))
        known = list(found.values())[:n_trial]
        if not known:
            return 0
        inputs, results = [], []
        for number, (inp, res) in enumerate(known):
            mine = MeasureInput(self.task.target, self.task, self.task.config_space.get(inp.config.index))
            mine.config.cost = inp.config.cost
            self._judge(mine, res, number + 1)
            inputs.append(mine)
            results.append(res)
        _log.info("%s: going on after %d measurements of an earlier run", self.task.name, len(known))
        self.ttl = n_trial - len(known)
        self.known(inputs, results)
        for callback in callbacks:
            if not isinstance(callback, log_to_file):
                callback(self, inputs, results)
        return len(known)

    def known(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn what an earlier run measured, so that it is not measured again."""
        self.update(inputs, results)

    # ---- other

    def reset(self) -> None:
        """Forget what was found."""
        self.best_config = self.best_measure_pair = None
        self.best_flops, self.best_iter = 0.0, 0

    def set_error_threshold(self, threshold: int) -> None:
        """After how many errors in a row the log says everything."""
        self.error_ct_threshold = threshold


def _own(callback: Any, task: Task) -> tuple[Path, str]:
    return callback.path.resolve(), repr((task.workload, str(task.target)))


def _note_own(callback: Any, task: Task) -> None:
    if isinstance(callback, log_to_file) and callback.path is not None:
        _OWN_LOGS.add(_own(callback, task))


def _in_scope() -> list[Callable[..., None]]:
    """Callbacks for what is in scope: the database of ``meta_schedule``."""
    from ..task.relax_integration import KernelDatabase
    from .callback import log_to_database

    database = Database.current()
    while isinstance(database, KernelDatabase):  # which only reads
        database = database.outside
    if database is None:
        return []
    return [log_to_database(database)]


def _measured(path: Any, task: Task) -> list[tuple[Any, Any]]:
    """The measurements of a task in a log that fit its space."""
    from ..record import load_from_file, same_workload

    out = []
    for inp, res in load_from_file(path):
        if not same_workload(task, task.target, inp):
            continue
        index = int(inp.config.index)
        if task.config_space.is_index_valid(index) and task.config_space.get(index) == inp.config:
            out.append((inp, res))
    return out


def _watch_errors(in_row: int, threshold: int, level: int) -> None:
    if in_row > threshold:
        if _log.level != logging.DEBUG:
            _log.warning("Too many errors happen in the tuning. Switching to debug mode.")
        _log.setLevel(logging.DEBUG)
    else:
        _log.setLevel(level)


def _report_errors(task: Task, errors: Sequence[str]) -> None:
    handle, path = tempfile.mkstemp(prefix="autotvm_errors_", suffix=".log", text=True)
    with os.fdopen(handle, "w") as out:
        out.write("\n".join(errors))
    _log.warning(
        "Could not find any valid schedule for task %s. A file containing the errors has been written to %s.",
        task,
        path,
    )
