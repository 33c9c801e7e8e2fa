"""A budget of trials is exact: so many records are in the file, whatever candidates do and however many tasks there are."""

import json

import pytest

from relaxish import IRModule, te
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.builder import BuilderResult
from relaxish.meta_schedule.database import JSONDatabase
from relaxish.meta_schedule.runner import RunnerFuture, RunnerResult
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")


def module(*sizes):
    return IRModule({f"f{n}": te.create_prim_func(te_workload.matmul(n, n, n)) for n in sizes})


def lines_of(folder):
    return [json.loads(x) for x in (folder / "database_tuning_record.json").read_text().splitlines()]


def tune(folder, mod, trials, **options):
    given = {"builder": DummyBuilder(), "runner": DummyRunner(), "cost_model": "random", "validate": False, "seed": 3}
    return ms.tune_tir(mod, TARGET, str(folder), trials, **{**given, **options})


def test_four_trials_on_the_real_machine_leave_four_records(tmp_path):
    database = ms.tune_tir(module(32)["f32"], TARGET, str(tmp_path), max_trials_global=4, seed=1)
    assert len(lines_of(tmp_path)) == len(database) == len(JSONDatabase(work_dir=str(tmp_path))) == 4
    # Winners were checked all the same, and the verdicts are read again.
    verdicts = [r.numerically_valid for r in JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records()]
    assert verdicts == [r.numerically_valid for r in database.get_all_tuning_records()] and True in verdicts


@pytest.mark.parametrize("strategy", ["evolutionary", "replay-trace"])
@pytest.mark.parametrize(("trials", "batch", "per_task"), [(4, 64, None), (6, 4, None), (10, 3, None), (9, 4, 4)])
def test_several_tasks_share_a_budget(tmp_path, strategy, trials, batch, per_task):
    tune(
        tmp_path, module(32, 48, 64), trials, strategy=strategy, num_trials_per_iter=batch, max_trials_per_task=per_task
    )
    counts = {}
    for line in lines_of(tmp_path):
        counts[line[0]] = counts.get(line[0], 0) + 1
    assert sum(counts.values()) == trials
    assert per_task is None or max(counts.values()) <= per_task


def test_a_budget_for_each_task_is_exact(tmp_path):
    tune(tmp_path, module(32, 48), 100, max_trials_per_task=5, num_trials_per_iter=2)
    assert sorted(line[0] for line in lines_of(tmp_path)) == [0] * 5 + [1] * 5


def test_failures_are_trials(tmp_path):
    class Builder(DummyBuilder):
        def build(self, inputs):
            return [BuilderResult(None, "no") if i % 3 == 0 else r for i, r in enumerate(super().build(inputs))]

    class Runner(DummyRunner):
        def run(self, inputs):
            failed = RunnerFuture(lambda: True, lambda: RunnerResult(None, "lost"))
            return [failed if i % 2 else f for i, f in enumerate(super().run(inputs))]

    tune(tmp_path, module(32, 48), 11, builder=Builder(), runner=Runner(), num_trials_per_iter=4)
    lines = lines_of(tmp_path)
    assert len(lines) == 11
    failed = [x for x in lines if x[1][1] == [1e10]]
    assert {x[2]["status"] for x in failed} == {"compile", "runtime"} and 0 < len(failed) < 11


def test_a_strategy_that_gives_too_many_is_held_to_the_budget(tmp_path):
    class Greedy(ms.search_strategy.ReplayTrace):
        def generate_measure_candidates(self):
            return [c for _ in range(3) for c in super(Greedy, self).generate_measure_candidates() or ()] or None

    tune(tmp_path, module(32, 48), 7, strategy=Greedy(), num_trials_per_iter=4)
    assert len(lines_of(tmp_path)) == 7
