"""Builders, runners, cost models, strategies and callbacks of users that fail cost their own work only."""

import json
import threading
import time

import numpy as np
import pytest

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.ir import IRModule
from relaxish.meta_schedule.builder import LocalBuilder
from relaxish.meta_schedule.database import JSONDatabase
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerFuture, RunnerResult
from relaxish.meta_schedule.measure.safe import clean_result
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")


def tune(work_dir, trials=16, mod=None, **options):
    options = {"builder": DummyBuilder(), "runner": DummyRunner(), "cost_model": "random", "validate": False, **options}
    func = te.create_prim_func(te_workload.matmul(32, 32, 32)) if mod is None else mod
    return ms.tune_tir(func, TARGET, str(work_dir), trials, num_trials_per_iter=8, seed=1, **options)


IMPOSSIBLE = [
    None, [], "fast", ["a"], [float("nan")], [float("inf")], [-1.0], [0.0], [1e11], [1.0, float("nan")], 5.0, [None],
    [[1e-9]], {"a": 1}, [10**400],
]  # fmt: skip


@pytest.mark.parametrize("given", IMPOSSIBLE, ids=repr)
def test_times_that_cannot_be_are_failures(given):
    made = clean_result(RunnerResult(given, None))
    assert made.run_secs is None and made.error_msg


@pytest.mark.parametrize(
    "result", [None, 7, "ok", RunnerResult([1e-9], "it failed"), object()], ids=lambda v: type(v).__name__
)
def test_results_that_are_none_are_failures(result):
    made = clean_result(result)
    assert made.run_secs is None and made.error_msg


def test_times_as_objects_with_a_value_are_times():
    class Imm:
        value = 0.5

    assert clean_result(RunnerResult([Imm(), 1], None)).run_secs == [0.5, 1.0]


class Liar(ms.Runner):
    """Every third result is impossible, one raises, one is right."""

    def __init__(self):
        self.count = 0

    def run(self, inputs):
        return [self.future(i) for i in range(len(inputs))]

    def future(self, index):
        self.count += 1
        number = self.count

        def result():
            if number % 3 == 0:
                raise RuntimeError("no such luck")
            return RunnerResult(IMPOSSIBLE[number % len(IMPOSSIBLE)] if number % 3 == 1 else [0.5 + number / 100], None)

        return RunnerFuture(lambda: True, result)


def test_a_runner_that_lies_does_not_win(tmp_path):
    database = tune(tmp_path, runner=Liar())
    records = database.get_all_tuning_records()
    assert len(records) == 16
    good = [r for r in records if r.is_valid()]
    assert 4 <= len(good) <= 6 and all(0.5 <= r.run_secs[0] < 1 for r in good)


def raising(*args):
    raise RuntimeError("not today")


class Broken:
    """Something else than what was asked for, in many forms."""

    def __init__(self, kind):
        self.kind = kind
        self.calls = 0

    def __call__(self, inputs, good):
        self.calls += 1
        if self.calls % 2 == 0:
            return good
        return {
            "raises": raising, "too few": lambda: good[:-3], "too many": lambda: good + good, "none": lambda: None,
            "junk": lambda: [None] * len(inputs), "text": lambda: "abc",
        }[self.kind]()  # fmt: skip


KINDS = ["raises", "too few", "too many", "none", "junk", "text"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["builder", "runner"])
def test_builders_and_runners_that_fail_every_other_time(tmp_path, part, kind):
    broken = Broken(kind)

    class Builder(DummyBuilder):
        def build(self, inputs):
            return broken(inputs, super().build(inputs)) if part == "builder" else super().build(inputs)

    class Runner(DummyRunner):
        def run(self, inputs):
            return broken(inputs, super().run(inputs)) if part == "runner" else super().run(inputs)

    database = tune(tmp_path, builder=Builder(), runner=Runner())
    records = database.get_all_tuning_records()
    assert len(records) == 16
    # The second half of the run was sound.
    assert sum(r.is_valid() for r in records) >= 8
    lines = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert len(lines) == 16 and all(json.loads(line) for line in lines)


SCORES = {
    "raises": raising,
    "not a number": lambda n: np.full(n, np.nan),
    "infinite": lambda n: np.full(n, np.inf),
    "some not": lambda n: np.where(np.arange(n) % 2, np.nan, 1.0),
    "too few": lambda n: np.ones(max(0, n - 1)),
    "too many": lambda n: np.ones(n + 3),
    "a table": lambda n: np.ones((n, 2)),
    "nothing": lambda n: None,
    "text": lambda n: ["a"] * n,
}


@pytest.mark.parametrize("features", [False, True], ids=["programs", "features"])
@pytest.mark.parametrize("kind", SCORES)
def test_cost_models_with_bad_scores(tmp_path, kind, features):
    class Model(ms.cost_model.PyCostModel):
        def load(self, path):
            raise OSError("no")

        def save(self, path):
            raise OSError("no")

        def update(self, context, candidates, results):
            raise ValueError("too hard")

        def predict(self, context, candidates):
            return SCORES[kind](len(candidates))

    class OfFeatures(Model):
        def predict_features(self, blocks):
            return SCORES[kind](len(blocks[0]) if blocks else 0)

    strategy = ms.search_strategy.EvolutionarySearch(population_size=16, init_min_unmeasured=8, genetic_num_iters=1)
    database = tune(tmp_path, cost_model=(OfFeatures if features else Model)(), strategy=strategy)
    assert len(database) == 16


def test_callbacks_that_raise(tmp_path):
    seen = []

    class Bad(ms.measure_callback.PyMeasureCallback):
        def on_result(self, *args):
            raise KeyError("on_result")

        def apply(self, *args):
            raise ValueError("apply")

    class Good(ms.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler, task_id, candidates, built, ran):
            seen.append(len(candidates))

    database = tune(tmp_path, measure_callbacks=[Bad(), ms.measure_callback.AddToDatabase(), Bad(), Good()])
    assert len(database) == 16 and seen == [8, 8]


def test_a_search_that_fails_ends_its_task_and_not_the_others(tmp_path):
    class Failing(ms.search_strategy.ReplayTrace):
        def generate_measure_candidates(self):
            if self._context.task_name == "bad":
                raise ZeroDivisionError("in the search")
            return super().generate_measure_candidates()

        def clone(self):
            return Failing()

    func = te.create_prim_func(te_workload.matmul(32, 32, 32))
    other = te.create_prim_func(te_workload.matmul(16, 32, 32))
    mod = IRModule({"bad": func.with_attr("global_symbol", "bad"), "good": other.with_attr("global_symbol", "good")})
    database = tune(tmp_path, mod=mod, strategy=Failing())
    assert len(database) == 16 and len(database.workloads()) == 1
    with pytest.raises(ZeroDivisionError):
        tune(tmp_path / "alone", mod=IRModule({"bad": func.with_attr("global_symbol", "bad")}), strategy=Failing())


# ---- when results are written


def test_results_are_in_the_journal_while_others_are_measured(tmp_path, monkeypatch):
    """Each is there when it arrives, although the scheduler's own thread is busy with something else."""
    counts = []
    path = tmp_path / "database_tuning_record.json"

    class Watching(ms.search_strategy.ReplayTrace):
        def generate_measure_candidates(self):
            if self._round_number:  # the first batch is under way: nothing but its arrival changes the journal
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline and (not counts or counts[-1] < 6):
                    now = path.read_bytes().count(b"\n")
                    if not counts or now != counts[-1]:
                        counts.append(now)
                    time.sleep(0.01)
            return super().generate_measure_candidates()

        def clone(self):
            return Watching()

    class Hurrying(ms.task_scheduler.TaskScheduler):
        """Makes the next round before the last one is over."""

        def next_task_id(self):
            return 0

        def _one_round(self, task_id):
            self.tasks_[task_id].ctx.search_strategy._round_number and self._candidates(task_id)
            super()._one_round(task_id)

    slow = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=60)
    runner, builder = LocalRunner(timeout_sec=20, evaluator_config=slow), LocalBuilder(max_workers=1)
    try:
        ms.tune_tir(
            te.create_prim_func(te_workload.matmul(32, 32, 32)), TARGET, str(tmp_path), 12, num_trials_per_iter=6,
            builder=builder, runner=runner, cost_model="random", validate=False, strategy=Watching(),
            task_scheduler=Hurrying(), seed=1,
        )  # fmt: skip
    finally:
        runner.shutdown()
        builder.shutdown()
    # Not all at once at the end of the batch.
    assert counts[-1] >= 6 and len(counts) >= 4, counts
    assert len(JSONDatabase(work_dir=str(tmp_path))) == 12
    assert threading.active_count() < 50
