"""A tuning run that was stopped goes on from where it was."""

import json
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from search_workloads import WORKLOADS

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.database import JSONDatabase
from relaxish.meta_schedule.database.lines import record_fields
from relaxish.meta_schedule.search_strategy.trace_key import trace_key
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder
from relaxish.target import Target

TARGET = Target("llvm -num-cores=2")


class SimulatedRunner(ms.Runner):
    """Times that depend on nothing but the program."""

    def __init__(self):
        self.measured = []

    def run(self, runner_inputs):
        return [ms.runner.RunnerFuture(lambda: True, lambda x=x: self.result(x)) for x in runner_inputs]

    def result(self, runner_input):
        return ms.runner.RunnerResult([1e-3 + zlib.crc32(runner_input.artifact_path.encode()) / 1e12], None)


class NamingBuilder(DummyBuilder):
    def build(self, build_inputs):
        return [ms.builder.BuilderResult(x.mod.script(), None) for x in build_inputs]


class Stop(BaseException):
    """Like a signal: nothing that guards against mistakes of callbacks takes it for one."""


class StopAfter(ms.MeasureCallback):
    """Ends the run after so many results, in the middle of a batch, or after so many batches."""

    def __init__(self, results=None, batches=None):
        self.left = 1 << 30 if results is None else results
        self.batches = batches

    def on_result(self, *args):
        self.left -= 1
        if self.left < 0:
            raise Stop

    def apply(self, *args):
        if self.batches is not None:
            self.batches -= 1
            if self.batches == 0:
                raise Stop


def tune(work_dir, stop=None, trials=120, names=("matmul",), batch=8, scheduler="gradient"):
    callbacks = [ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()]
    if stop is not None:
        callbacks.append(stop)
    funcs = {name: te.create_prim_func(WORKLOADS[name]()) for name in names}
    from relaxish import IRModule

    mod = IRModule({name: f.with_attr("global_symbol", name) for name, f in funcs.items()})
    return ms.tune_tir(
        mod,
        TARGET,
        str(work_dir),
        trials,
        num_trials_per_iter=batch,
        builder=NamingBuilder(),
        runner=SimulatedRunner(),
        seed=5,
        measure_callbacks=callbacks,
        cost_model="xgb",
        task_scheduler=ms.task_scheduler.GradientBased(seed=1) if scheduler == "gradient" else scheduler,
    )


def keys(database):
    return [trace_key(r.trace) for r in database.get_all_tuning_records()]


def stopped_and_whole(tmp_path, trials, stops):
    """The measurements of a run stopped after each of so many batches, and of one that was not."""
    whole = tune(tmp_path / "whole", trials=trials)
    for batches in stops:
        with pytest.raises(Stop):
            tune(tmp_path / "broken", StopAfter(batches=batches), trials=trials)
    return keys(tune(tmp_path / "broken", trials=trials)), keys(whole)


def test_a_run_stopped_between_rounds_is_the_run_that_was_not(tmp_path):
    broken, whole = stopped_and_whole(tmp_path, 40, (1, 3))
    assert broken == whole


@pytest.mark.slow
def test_a_run_with_a_trained_model_goes_on_the_same(tmp_path):
    broken, whole = stopped_and_whole(tmp_path, 136, (14, 1))
    assert broken == whole


SMALL = ("matmul", "row_sum", "max_pool")


def stopped_at(tmp_path, whole, scheduler, *stops):
    """Whether a run stopped at some points, and started again each time, measures what one that was not does."""
    for number, stop in enumerate(stops):
        with pytest.raises(Stop):
            tune(tmp_path, stop, 40, SMALL, 4, scheduler)
        found = keys(JSONDatabase(work_dir=str(tmp_path)))
        assert found == whole[: len(found)], (number, stop.__dict__)
    return keys(tune(tmp_path, None, 40, SMALL, 4, scheduler)) == whole


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["gradient", "round-robin"])
def test_a_run_killed_at_any_point_is_the_run_that_was_not(tmp_path, scheduler):
    database = tune(tmp_path / "whole", None, 40, SMALL, 4, scheduler)
    whole = keys(database)
    assert len(whole) == 40 and len(database.workloads()) == 3
    rng = random.Random(scheduler)
    # While warming up (the first 12), in the middle of rounds and between them; some runs are stopped twice.
    for number, point in enumerate([0, 2, 5, rng.randrange(12, 39)]):
        assert stopped_at(tmp_path / f"r{number}", whole, scheduler, StopAfter(point))
    assert stopped_at(tmp_path / "batches", whole, scheduler, StopAfter(batches=1), StopAfter(batches=2))
    assert stopped_at(tmp_path / "both", whole, scheduler, StopAfter(9), StopAfter(3), StopAfter(batches=1))


def test_work_is_shared_between_kernels_after_a_stop_while_warming_up(tmp_path):
    """A run stopped in its first round used to give all that was left to one kernel."""
    with pytest.raises(Stop):
        tune(tmp_path, StopAfter(1), 24, SMALL, 4)
    database = tune(tmp_path, None, 24, SMALL, 4)
    counts = [len(database.records_of(w)) for w in database.workloads()]
    assert len(counts) == 3 and min(counts) >= 4 and sum(counts) == 24


def test_a_damaged_state_costs_the_state_only(tmp_path):
    with pytest.raises(Stop):
        tune(tmp_path, StopAfter(9), 24, SMALL, 4)
    before = keys(JSONDatabase(work_dir=str(tmp_path)))
    for path in [*tmp_path.glob("search_*.json"), *tmp_path.glob("cost_model*")]:
        path.write_bytes(path.read_bytes()[:-7] + b"\0\0")
    database = tune(tmp_path, None, 24, SMALL, 4)
    after = keys(database)
    assert after[: len(before)] == before and len(after) == len(before) + 24
    for workload in database.workloads():
        mine = [trace_key(r.trace) for r in database.records_of(workload)]
        assert len(set(mine)) == len(mine)


def test_nothing_is_lost_or_measured_twice(tmp_path):
    for stop in (3, 11, 0):
        before = keys(JSONDatabase(work_dir=str(tmp_path)))
        with pytest.raises(Stop):
            tune(tmp_path, StopAfter(stop), names=("matmul", "row_sum"), trials=40)
        after = keys(JSONDatabase(work_dir=str(tmp_path)))
        assert after[: len(before)] == before
        # The result whose handling was interrupted had been recorded before.
        assert len(after) == len(before) + stop + 1
    database = tune(tmp_path, names=("matmul", "row_sum"), trials=40)
    per_task = {}
    for record in database.get_all_tuning_records():
        per_task.setdefault(id(record.workload), []).append(trace_key(record.trace))
    assert 40 <= sum(map(len, per_task.values())) < 48  # the last round is not cut short
    assert all(len(set(found)) == len(found) for found in per_task.values())
    assert json.loads((tmp_path / "search_state.json").read_text())["finished"]


def test_a_finished_run_is_followed_by_a_new_one(tmp_path):
    tune(tmp_path, trials=16)
    assert len(tune(tmp_path, trials=16)) == 32


def test_the_files_are_those_of_the_api(tmp_path):
    database = tune(tmp_path, trials=8)
    lines = [json.loads(x) for x in (tmp_path / "database_tuning_record.json").read_text().splitlines()]
    assert all(index == 0 and len(record) == 4 for index, record, _ in lines)
    trace, run_secs, target, args_info = lines[0][1]
    assert len(trace) == 2 and len(run_secs) == 1 and target["kind"] == "llvm"
    assert args_info[0] == ["TENSOR", "float32", [64, 128]]
    assert {"time", "hardware", "workload"} <= set(lines[0][2])
    (workload,) = [json.loads(x) for x in (tmp_path / "database_workload.json").read_text().splitlines()]
    assert workload[0].isdigit() and workload[2]["name"] == "matmul" and "def main" in workload[2]["script"]
    # Lines as another writer of the format leaves them, without notes.
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "database_workload.json").write_text(json.dumps(workload[:2]) + "\n")
    (tmp_path / "plain" / "database_tuning_record.json").write_text(
        "".join(json.dumps(line[:2]) + "\n" for line in lines)
    )
    assert keys(JSONDatabase(work_dir=str(tmp_path / "plain"))) == keys(database)
    assert record_fields(lines[0][:2], ["abc"])["workload"] == "abc"


@pytest.mark.slow
def test_kill_nine(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "faults.py"
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "4", "--trials", "48", "--size", "64", "--no-bar-8", "--no-save"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
