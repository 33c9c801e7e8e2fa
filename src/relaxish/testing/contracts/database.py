"""Contract tests of databases of tuning records."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from ... import te
from ...ir import IRModule
from ...meta_schedule.arg_info import ArgInfo, TensorInfo
from ...meta_schedule.database import Database, MemoryDatabase, TuningRecord, hardware_fingerprint
from ...meta_schedule.measure.status import MeasureStatus
from ...support import config
from ...target import Target
from ...tir import Schedule
from ...tir.schedule import Trace

__all__ = ["DatabaseContract"]

_TARGET = Target("llvm -num-cores=1")


def _program(size: int) -> IRModule:
    x = te.placeholder((size, 16), "float32", name="X")
    return IRModule({"main": te.create_prim_func([x, te.compute((size, 16), lambda i, j: x[i, j] * 2.0, name="Y")])})


def _trace(mod: IRModule, unroll: int) -> Trace:
    sch = Schedule(mod)
    sch.annotate(sch.get_loops("Y")[0], "pragma_auto_unroll_max_step", unroll)
    assert sch.trace is not None
    return sch.trace


class DatabaseContract:
    """Subclass and define :meth:`make`; ``pytest`` runs what is here.

    >>> class TestMine(DatabaseContract):
    ...     def make(self, folder):
    ...         return MyDatabase(folder / "records.db")
    """

    def make(self, folder: Path) -> Database:
        """The database in ``folder``: a new one the first time, the same one again the second time."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _as_recorded(self) -> object:
        """What records compute is for other tests."""
        with config.UNCHECKED_RECORDS.override("trust"):
            yield

    @pytest.fixture
    def database(self, tmp_path: Path) -> Database:
        """A new database."""
        return self.make(tmp_path)

    @staticmethod
    def record(
        database: Database, size: int, seconds: list[float] | None, unroll: int = 1, **notes: object
    ) -> TuningRecord:
        """A record of a program of ``size`` rows; ``unroll`` tells its traces apart."""
        workload = database.commit_workload(_program(size))
        args: list[ArgInfo] = [TensorInfo("float32", [size, 16])] * 2
        return TuningRecord(_trace(workload.mod, unroll), workload, seconds, _TARGET, args, **notes)  # type: ignore[arg-type]

    def filled(self, database: Database, size: int, times: list[float]) -> list[TuningRecord]:
        """Commit a record for each time, every one with a trace of its own."""
        made = [self.record(database, size, [t], unroll) for unroll, t in enumerate(times)]
        database.commit_tuning_records(made)
        return made

    # ---- workloads

    def test_a_program_is_stored_once(self, database: Database) -> None:
        """Equal programs are one workload, other programs are others."""
        assert not database.has_workload(_program(4))
        first = database.commit_workload(_program(4))
        assert database.commit_workload(_program(4)) is first
        assert database.commit_workload(_program(8)) is not first
        assert database.has_workload(_program(4)) and not database.has_workload(_program(6))
        assert len(database) == 0

    def test_workloads_are_those_with_records(self, database: Database) -> None:
        """A program without records is none."""
        database.commit_workload(_program(4))
        self.filled(database, 8, [1.0, 2.0])
        assert [w.shash for w in database.workloads()] == [database.commit_workload(_program(8)).shash]

    # ---- records

    def test_the_fastest_come_first(self, database: Database) -> None:
        """Ranking by the mean, ties in the order committed, as many as asked for."""
        rng = np.random.default_rng(7)
        times = [float(t) for t in rng.integers(1, 9, 20)]
        self.filled(database, 4, times)
        self.filled(database, 8, [0.5])
        workload = database.commit_workload(_program(4))
        found = database.get_top_k(workload, 7)
        order = sorted(range(20), key=lambda i: times[i])[:7]
        assert [r.run_secs for r in found] == [[times[i]] for i in order]
        assert [r.trace.as_json() for r in found] == [_trace(workload.mod, i).as_json() for i in order]
        assert [r.run_secs for r in database.ranked(workload)] == [[t] for t in sorted(times)]
        assert len(database.get_top_k(workload, 100)) == 20 and database.get_top_k(workload, 0) == []
        assert database.get_top_k(database.commit_workload(_program(16)), 3) == []
        with pytest.raises(ValueError):
            database.get_top_k(workload, -1)

    def test_the_mean_counts(self, database: Database) -> None:
        """Of several repeats."""
        database.commit_tuning_record(self.record(database, 4, [1.0, 9.0], 1))
        database.commit_tuning_record(self.record(database, 4, [4.0, 4.0], 2))
        best = database.get_top_k(database.commit_workload(_program(4)), 1)[0]
        assert best.run_secs == [4.0, 4.0]

    def test_records_come_back_as_they_were(self, database: Database) -> None:
        """Trace, times, target, arguments and notes."""
        given = self.record(database, 4, [1.5, 2.5], 3, predicted=0.25, time=1234.5, hardware="a machine")
        database.commit_tuning_record(given)
        (found,) = database.records_of(given.workload)
        assert found.as_json() == given.as_json() and found.notes() == given.notes()
        assert found.workload is database.commit_workload(_program(4))
        found.as_measure_candidate()

    def test_failures_are_kept_and_never_win(self, database: Database) -> None:
        """Each with its status; times nobody can believe do not win either."""
        crash = self.record(
            database, 4, [1e10], 1, error_msg="it died", stage="run", status=MeasureStatus.CRASH, valid=False
        )
        database.commit_tuning_record(crash)
        database.commit_tuning_record(self.record(database, 4, None, 2, error_msg="no", stage="build"))
        database.commit_tuning_record(self.record(database, 4, [-1.0], 3))
        workload = database.commit_workload(_program(4))
        assert database.get_top_k(workload, 5) == [] and len(database) == 3
        found = database.records_of(workload)
        assert [r.status for r in found][:2] == [MeasureStatus.CRASH, MeasureStatus.COMPILE]
        database.commit_tuning_record(self.record(database, 4, [3.0], 4))
        assert [r.run_secs for r in database.get_top_k(workload, 5)] == [[3.0]]

    def test_records_of_one_workload(self, database: Database) -> None:
        """In the order committed, those of others not among them."""
        for turn in range(3):
            for size in (4, 8):
                database.commit_tuning_record(self.record(database, size, [float(turn + size)], turn))
        assert [r.run_secs for r in database.records_of(database.commit_workload(_program(8)))] == [
            [8.0],
            [9.0],
            [10.0],
        ]
        assert len(database.get_all_tuning_records()) == len(database) == 6

    def test_records_of_another_database(self, database: Database) -> None:
        """Their programs are this database's own once they are committed."""
        other = MemoryDatabase()
        database.commit_tuning_records([self.record(other, 4, [1.0]), self.record(other, 4, [2.0], 2)])
        assert [r.run_secs for r in database.get_top_k(database.commit_workload(_program(4)), 5)] == [[1.0], [2.0]]

    def test_soon_is_now_for_readers(self, database: Database) -> None:
        """Records committed without being durable yet are visible to readers."""
        database.commit_soon(self.record(database, 4, [1.0]))
        assert len(database) == 1 and database.unwritten == 0
        database.flush()
        assert len(database) == 1

    # ---- verdicts

    def _verdict(self, database: Database, record: TuningRecord, valid: bool, seconds: list[float]) -> None:
        error = None if valid else "wrong result"
        database.commit_verdict(
            TuningRecord(
                record.trace, record.workload, seconds, record.target, record.args_info,
                valid=valid, error_msg=error, hardware=record.hardware, again=True,
            )
        )  # fmt: skip

    def test_what_is_wrong_never_wins(self, database: Database) -> None:
        """Neither a measurement made before the verdict, nor one made after."""
        fast, slow = self.filled(database, 4, [1.0, 2.0])
        self._verdict(database, fast, False, [1.0])
        database.commit_tuning_record(self.record(database, 4, [0.5], 0))
        workload = database.commit_workload(_program(4))
        assert [r.run_secs for r in database.get_top_k(workload, 5)] == [[2.0]]
        assert [r.numerically_valid for r in database.records_of(workload)] == [False, None, False]
        self._verdict(database, fast, True, [0.1])
        assert [r.run_secs for r in database.get_top_k(workload, 5)] == [[2.0]], "wrong once is wrong"

    def test_a_second_time_counts(self, database: Database) -> None:
        """The verdict that a record is right brings its newer time; the number of records stays."""
        fast, slow = self.filled(database, 4, [1.0, 2.0])
        self._verdict(database, fast, True, [3.0])
        workload = database.commit_workload(_program(4))
        found = database.get_top_k(workload, 5)
        assert [r.run_secs for r in found] == [[2.0], [3.0]] and [r.numerically_valid for r in found] == [None, True]
        assert len(database) == 2 and len(database.records_of(workload)) == 2

    # ---- queries

    def test_queries(self, database: Database) -> None:
        """Record, schedule and module of the best; None for programs nobody tuned."""
        self.filled(database, 4, [2.0, 1.0, 3.0])
        record = database.query_tuning_record(_program(4), _TARGET)
        assert record is not None and record.run_secs == [1.0]
        found = database.query_ir_module(_program(4), _TARGET)
        assert found is not None and "pragma_auto_unroll_max_step" in found.script()
        assert database.query_schedule(_program(8), _TARGET) is None
        with database:
            assert Database.current() is database
        assert Database.current() is not database

    def test_other_machines_are_passed_over(self, database: Database) -> None:
        """Unless their results are asked for; results for devices count everywhere."""
        database.commit_tuning_record(self.record(database, 4, [1.0], 1, hardware="elsewhere"))
        database.commit_tuning_record(self.record(database, 4, [2.0], 2, hardware=hardware_fingerprint()))
        device = self.record(database, 4, [3.0], 3, hardware="elsewhere")
        device.target = Target("nvidia/nvidia-a100")
        database.commit_tuning_record(device)
        workload = database.commit_workload(_program(4))
        assert [r.run_secs for r in database.get_top_k(workload, 5)] == [[2.0], [3.0]]
        with config.ANY_HARDWARE.override(True):
            assert [r.run_secs for r in database.get_top_k(workload, 2)] == [[1.0], [2.0]]
        if database.persistent:
            assert database.left_out() == {"elsewhere": 1}

    def test_baselines(self, database: Database) -> None:
        """The last note of a workload counts."""
        workload = database.commit_workload(_program(4))
        assert database.baselines() == {}
        database.add_baseline(workload, [3.0], None)
        database.add_baseline(workload, [4.0, 5.0], 2.0)
        assert database.baselines() == {workload.key: ([4.0, 5.0], 2.0)}

    def test_pruning(self, database: Database) -> None:
        """One record of each workload and machine, the fastest."""
        self.filled(database, 4, [2.0, 1.0])
        self.filled(database, 8, [5.0])
        database.commit_tuning_record(self.record(database, 8, [4.0], 7, hardware="elsewhere"))
        pruned = MemoryDatabase()
        database.dump_pruned(pruned)
        assert sorted(r.run_secs[0] for r in pruned.get_all_tuning_records() if r.run_secs) == [1.0, 4.0, 5.0]

    # ---- several readers and writers

    def test_it_is_there_again(self, database: Database, tmp_path: Path) -> None:
        """Committed records are read by the next process."""
        if not database.persistent:
            pytest.skip("lives and dies with its process")
        fast, _ = self.filled(database, 4, [1.0, 2.0])
        self._verdict(database, fast, False, [1.0])
        database.add_baseline(fast.workload, [7.0], None)
        again = self.make(tmp_path)
        workload = again.commit_workload(_program(4))
        assert len(again) == 2 and [r.run_secs for r in again.get_top_k(workload, 5)] == [[2.0]]
        assert again.baselines() == {workload.key: ([7.0], None)}
        again.commit_tuning_record(self.record(again, 4, [0.5], 9))
        assert len(self.make(tmp_path)) == 3

    def test_several_threads(self, database: Database) -> None:
        """Nothing is lost, nothing is there twice."""
        if not database.thread_safe:
            pytest.skip("for one thread")
        records = [self.record(database, size, [1.0 + n], n) for size in (4, 8) for n in range(20)]
        problems: list[Exception] = []

        def work(part: list[TuningRecord]) -> None:
            try:
                for record in part:
                    database.commit_soon(record)
                    assert database.get_top_k(record.workload, 3)
            except Exception as err:
                problems.append(err)

        threads = [threading.Thread(target=work, args=(records[i::4],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems and len(database) == 40
        found = sorted(r.run_secs[0] for r in database.get_all_tuning_records() if r.run_secs)
        assert found == sorted(2 * [1.0 + n for n in range(20)])
