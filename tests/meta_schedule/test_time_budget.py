"""Tuning against the clock, on a clock that only building and running move."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from relaxish import IRModule, te
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.builder import Builder, BuilderResult, LocalBuilder
from relaxish.meta_schedule.resume import budget as budget_module
from relaxish.meta_schedule.resume.budget import TimeBudget
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, Runner, RunnerFuture, RunnerResult
from relaxish.meta_schedule.runner import local_runner
from relaxish.meta_schedule.task_scheduler import GradientBased, TaskRecord
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(budget_module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


class SlowBuilder(Builder):
    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def build(self, inputs):
        self.clock.now += self.seconds * len(inputs)
        return [BuilderResult(b"code") for _ in inputs]


class SlowRunner(Runner):
    """Each measurement takes ``seconds`` and gives the next of ``times``."""

    def __init__(self, clock, seconds, times):
        self.clock, self.seconds, self.times = clock, seconds, times

    def run(self, inputs):
        self.clock.now += self.seconds * len(inputs)
        return [RunnerFuture(lambda: True, lambda t=next(self.times): RunnerResult([t])) for _ in inputs]


def noting(kind, *args, **options):
    """A scheduler that notes the rounds it starts: task and number of candidates."""

    class Noting(kind):
        def measure(self, task_id, known):
            self.rounds.append((task_id, len(self.tasks_[task_id].measure_candidates)))
            super().measure(task_id, known)

    made = Noting(*args, **options)
    made.rounds = []
    return made


def randomly(seed):
    rng = np.random.default_rng(seed)
    while True:
        yield float(rng.uniform(0.5, 1.0))


def tune(folder, clock, scheduler, sizes, times, trials=1 << 30, **options):
    options.setdefault("num_trials_per_iter", 16)
    mod = IRModule({f"f{n}": te.create_prim_func(te_workload.matmul(n, n, n)) for n in sizes})
    ms.tune_tir(
        mod, TARGET, str(folder), trials, builder=SlowBuilder(clock, 0.1), runner=SlowRunner(clock, 0.4, times),
        cost_model="random", seed=3, task_scheduler=scheduler, strategy="replay-trace", database="memory",
        **{"validate": False, **options},
    )  # fmt: skip
    return scheduler.rounds


@pytest.mark.parametrize("seconds", [30, 60])
def test_it_ends_in_time_and_no_kernel_is_left_out(tmp_path, clock, seconds):
    sizes = (16, 64, 32, 48, 8, 128)
    scheduler = noting(TimeBudget, seconds, started=clock.now - 2, seed=1)
    rounds = tune(tmp_path, clock, scheduler, sizes, randomly(1))
    used = clock.now - 998
    assert 0.7 * seconds < used <= 1.05 * seconds
    # The largest first, each once before any twice.
    first = [sizes[task] for task, _ in rounds[: len(sizes)]]
    assert first == sorted(sizes, reverse=True)
    assert min(n for _, n in rounds) >= 1


def test_too_little_time_goes_to_what_costs_most(tmp_path, clock):
    rounds = tune(tmp_path, clock, noting(TimeBudget, 3, started=clock.now, seed=1), (16, 64, 32, 48), randomly(1))
    assert rounds[0][0] == 1 and 1 <= len(rounds) <= 6 and [n for _, n in rounds] == [1] * len(rounds)
    assert clock.now - 1000 <= 3.5


@pytest.mark.slow
def test_it_ends_in_time_on_the_real_clock(tmp_path):
    """Real builds, measurements, default schedules and checks, with whatever else the machine does."""
    begin = time.monotonic()
    sizes = (64, 96, 128, 160)
    mod = IRModule({f"f{n}": te.create_prim_func(te_workload.matmul(n, n, n)) for n in sizes})
    budget = TimeBudget(40, started=begin, seed=1)
    database = ms.tune_tir(
        mod, TARGET, str(tmp_path), 1 << 30, num_trials_per_iter=16, task_scheduler=budget, seed=3, baselines=True
    )
    used = time.monotonic() - begin
    print(f"{used:.1f} s of 40, {len(database)} records")
    assert 0.6 * 40 < used <= 1.05 * 40
    assert all(database.records_of(w) for w in database.workloads()) and len(database.workloads()) == len(sizes)


@pytest.mark.slow
def test_a_task_that_improves_no_more_ends(tmp_path, clock):
    scheduler = noting(TimeBudget, 10_000, started=clock.now, seed=1)
    times = iter([1.0, 0.5] + [0.8] * 2000)
    tune(tmp_path, clock, scheduler, (32,), times)
    assert 256 <= scheduler.tasks_[0].trials <= 288


@pytest.mark.slow
def test_a_task_that_improves_goes_on(tmp_path, clock):
    scheduler = noting(TimeBudget, 10_000, started=clock.now, seed=1)
    tune(
        tmp_path, clock, scheduler, (32,), (1.0 / (1 + n / 50) for n in range(5000)), trials=640, num_trials_per_iter=16
    )
    assert scheduler.tasks_[0].trials == 640


def test_trials_stay_exact_under_a_clock(tmp_path, clock):
    rounds = tune(tmp_path, clock, noting(TimeBudget, 10_000, started=clock.now), (16, 32), randomly(2), trials=23)
    assert sum(n for _, n in rounds) == 23


def test_measured_defaults_say_what_costs_most(clock):
    scheduler = TimeBudget(100)
    records = [TaskRecord(None, weight, flop) for weight, flop in ((1, 1e6), (4, 1e6), (1, 1e9))]
    scheduler.tasks_ = records
    records[0].default_seconds, records[1].default_seconds = 0.5, 0.25
    costs = [scheduler._cost(t) for t in records]
    assert costs[:2] == [0.5, 1.0] and costs[2] > 100
    for record, best in zip(records, ([400.0], [50.0], [])):
        record.latency_ms = best
    assert scheduler.check_order() == [1, 0, 2]


def test_the_final_check_is_part_of_it(tmp_path, clock, monkeypatch):
    checked = []

    def check(task, *args, **options):
        checked.append(task.task_name)
        clock.now += 4

    monkeypatch.setattr(ms.tune, "trusted_winners", check)
    # What checks take is timed by the driver.
    monkeypatch.setattr(ms.tune, "time", SimpleNamespace(monotonic=clock.monotonic))
    told = []
    scheduler = noting(TimeBudget, 60, started=clock.now, seed=1)
    scheduler.watchers.append(lambda *said: told.append(said))
    tune(tmp_path, clock, scheduler, (16, 64, 32, 48, 8, 24), randomly(1), validate=True)
    assert clock.now - 1000 <= 63
    assert 1 <= len(checked) < 6 and [t.spent["check"] for t in scheduler.tasks_ if "check" in t.spent] == [
        (4.0, 1)
    ] * len(checked)
    assert told[0] == ("final check", 0, 6) and told[-1] == ("final check", 6, 6)


def test_every_winner_is_checked_without_a_clock(tmp_path, monkeypatch):
    checked = []
    monkeypatch.setattr(ms.tune, "trusted_winners", lambda task, *args, **options: checked.append(task.task_name))
    tune(tmp_path, Clock(), noting(GradientBased), (16, 32, 8), randomly(1), trials=6, validate=True)
    assert checked == ["f16", "f32", "f8"]


# ---- candidates that are clearly worse


class Kernel:
    """Takes the next of some seconds, the last again and again."""

    def __init__(self, seconds):
        self.seconds, self.now, self.runs = list(seconds), 0.0, 0

    def __call__(self):
        self.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.runs += 1
        return 0


def timed(monkeypatch, seconds, worst, config=EvaluatorConfig(3, 4, 100)):
    kernel = Kernel(seconds)
    monkeypatch.setattr(local_runner, "time", SimpleNamespace(perf_counter=lambda: kernel.now))
    return [round(t, 9) for t in local_runner._time(kernel, config, worst)], kernel.runs


def test_a_clearly_worse_candidate_is_not_timed_in_full(monkeypatch):
    full, runs = timed(monkeypatch, [0.01], None)
    assert full == [0.01] * 4 and runs == 1 + 4 * 11
    assert timed(monkeypatch, [0.01], 0.005) == ([0.01], 2)
    assert timed(monkeypatch, [1e-4], 5e-5) == ([1e-4], 1 + 20)
    # A first run that is slow for other reasons costs nothing.
    assert timed(monkeypatch, [0.01, 0.001], 0.005)[0] == [0.001] * 4
    # One that turns out to be slow is left in the middle of its repeats.
    slowly, _ = timed(monkeypatch, [0.001] * 120 + [0.01], 0.005)
    assert len(slowly) < 4 and slowly[-1] > 0.005
    assert timed(monkeypatch, [0.004], 0.005)[0] == [0.004] * 4


def test_the_scheduler_says_what_is_clearly_worse(clock):
    scheduler = TimeBudget(100, started=clock.now)
    scheduler._engine = SimpleNamespace(builder=LocalBuilder(), runner=LocalRunner(), begin=None)
    scheduler.tasks_ = [TaskRecord(None)]
    scheduler._note_timeouts()
    seen = []
    runner, builder = scheduler._engine.runner, scheduler._engine.builder

    class Stop(Exception):
        pass

    def stop(*args):
        seen.append((runner.worst_seconds, runner.timeout_sec, builder.timeout_sec))
        raise Stop

    scheduler._build_default = stop
    for latencies, now in (([], 0), ([5.0, 2.0], 90)):
        clock.now, scheduler.tasks_[0].latency_ms = 1000.0 + now, latencies
        with pytest.raises(Stop):
            scheduler.measure(0, {})
    assert seen == [(None, 30.0, 30.0), (pytest.approx(0.006), 10.0, 10.0)]
    scheduler.after_search()
    assert (runner.worst_seconds, runner.timeout_sec, builder.timeout_sec) == (None, 30.0, 30.0)
