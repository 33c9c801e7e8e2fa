"""The measuring engine: what becomes of candidates, in order, with a kind for every way of failing."""

import time

import numpy as np
import pytest

from relaxish import IRModule, te
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.arg_info import TensorInfo
from relaxish.meta_schedule.builder import BuilderResult, LocalBuilder
from relaxish.meta_schedule.verdicts.judge import Verdict
from relaxish.meta_schedule.measure import (
    Candidate, CheckFailedError, FileJournal, Measured, MeasureEngine, MeasureStatus, Prebuilt, ReferenceValidator, Skipped,
)  # fmt: skip
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerResult
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.script import tir as T
from relaxish.support.errors import JournalError
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")
QUICK = EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)


def scale(factor):
    A = te.placeholder((16,), name="A")
    return te.create_prim_func([A, te.compute((16,), lambda i: A[i] * te.const(factor, "float32"), name="B")])


@T.prim_func
def segfault(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        B[T.int64(1099511627776) * T.Cast("int64", i + 1)] = A[i]


@T.prim_func
def hang(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    while A[0] >= T.float32(-1):
        B[0] = A[0]


def refuses():
    raise ValueError("no such tile")


def skips():
    raise Skipped("too large for the device")


@pytest.fixture(scope="module")
def parts():
    builder, runner = LocalBuilder(max_workers=2, timeout_sec=60), LocalRunner(timeout_sec=4, evaluator_config=QUICK)
    yield builder, runner
    builder.shutdown()
    runner.shutdown()


@pytest.mark.parametrize("overlap", [False, True])
def test_every_way_to_fail_has_its_kind_and_costs_itself_only(parts, overlap):
    engine = MeasureEngine(TARGET, *parts, overlap=overlap)
    made = [lambda: scale(2.0), refuses, skips, lambda: segfault, lambda: hang, lambda: 7, lambda: scale(3.0)]
    results = engine.measure([Candidate(m, payload=i) for i, m in enumerate(made)])
    assert [m.status.value for m in results] == [
        "ok", "instantiation", "skipped", "crash", "run_timeout", "instantiation", "ok"
    ]  # fmt: skip
    assert [m.candidate.payload for m in results] == list(range(7))
    assert all(bool(m.error) == (not m.ok) and bool(m.run_secs) == m.ok for m in results)
    assert "no such tile" in results[1].error and isinstance(results[1].exception, ValueError)
    assert results[0].build_seconds > 0 and results[0].run_seconds > 0 and len(results[0].run_secs) == 2
    assert results[4].status.timed_out and results[2].error == "too large for the device"
    assert all(abs(m.timestamp - time.time()) < 600 for m in results)


def fails(mod, target, params):
    raise RuntimeError("the compiler says no")


def sleeps(mod, target, params):
    time.sleep(60)


def exhausts(mod, target, params):
    return np.ones(1 << 36, dtype=np.uint8)


def dies(mod, target, params):
    import os

    os.abort()


@pytest.mark.parametrize(
    ("build", "kind"),
    [(fails, "compile"), (sleeps, "build_timeout"), (exhausts, "out_of_memory"), (dies, "crash")],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_builds_fail_by_kind(parts, build, kind):
    builder = LocalBuilder(max_workers=1, timeout_sec=2, f_build=build, memory_limit=1 << 30)
    try:
        (measured,) = MeasureEngine(TARGET, builder, parts[1]).measure([Candidate(lambda: scale(2.0))])
    finally:
        builder.shutdown()
    assert measured.status.value == kind and measured.error and measured.run_secs == [] and measured.mean == np.inf


def test_a_wrong_answer_gets_no_time(parts):
    reference = IRModule({"main": scale(2.0)})
    engine = MeasureEngine(TARGET, *parts, validator=ReferenceValidator(reference))
    right, wrong = engine.measure([Candidate(lambda: scale(2.0)), Candidate(lambda: scale(2.5))])
    assert right.ok and wrong.status is MeasureStatus.WRONG_ANSWER
    assert "relative error" in wrong.error and not wrong.run_secs


def test_programs_the_caller_refuses_are_not_built(parts):
    class Counting(LocalBuilder):
        built = 0

        def build(self, inputs):
            Counting.built += len(inputs)
            return [BuilderResult(b"", None) for _ in inputs]

    engine = MeasureEngine(TARGET, Counting(), DummyRunner(), verify=lambda mod, target: "too many threads")
    (measured,) = engine.measure([Candidate(lambda: scale(2.0))])
    assert (measured.status, measured.error, Counting.built) == (MeasureStatus.SKIPPED, "too many threads", 0)
    assert MeasureEngine(TARGET, Counting(), DummyRunner()).measure([Candidate(lambda: scale(2.0))])[0].ok
    assert Counting.built == 1


def test_a_journal_knows_what_was_measured(tmp_path):
    seen = []

    class Builder(DummyBuilder):
        def build(self, inputs):
            seen.append(len(inputs))
            return super().build(inputs)

    def measure(keys, scope="a"):
        engine = MeasureEngine(TARGET, Builder(), DummyRunner(), FileJournal(tmp_path / "journal.json", scope))
        return engine.measure(
            [Candidate(refuses if k == "bad" else lambda: scale(2.0), key=k) for k in keys], watched.append
        )

    watched = []
    first = measure(["1", "2", "bad"])
    assert seen == [2] and [m.remembered for m in first] == [False] * 3
    with open(tmp_path / "journal.json", "a") as file:
        file.write('{"key": 5}\nnot json\n{"key": "a/3", "status": "ok", "run_secs": [-1.0], "torn')
    watched.clear()
    again = measure(["bad", "3", "1"])
    assert seen == [2, 1] and [m.remembered for m in again] == [True, False, True]
    assert again[0].status is MeasureStatus.INSTANTIATION and "no such tile" in again[0].error
    assert again[2].run_secs == first[0].run_secs and len(watched) == 3
    assert [m.remembered for m in measure(["1"], scope="b")] == [False]
    assert [m.remembered for m in measure([None, None])] == [False, False]


def test_a_full_disk_costs_the_journal_only(tmp_path, monkeypatch, caplog):
    journal = FileJournal(tmp_path / "journal.json")

    def full(*args):
        raise JournalError("no space left")

    monkeypatch.setattr(journal._file, "append", full)
    engine = MeasureEngine(TARGET, DummyBuilder(), DummyRunner(), journal)
    results = engine.measure([Candidate(lambda: scale(2.0), key=str(k)) for k in range(3)])
    assert all(m.ok for m in results) and caplog.text.count("no space left") == 1


class Broken:
    """Checks that fail in their own way."""

    def check(self, candidate, program, artifact, target):
        if candidate.payload == "raises":
            raise ZeroDivisionError("a check of the user's")
        if candidate.payload == "cannot run":
            raise CheckFailedError(MeasureStatus.CRASH, "it died")
        return Verdict(None, "who knows")


def test_checks_that_fail_are_the_candidates_misfortune(parts):
    engine = MeasureEngine(TARGET, *parts, validator=Broken())
    words = ["raises", "cannot run", "unknown"]
    results = engine.measure([Candidate(lambda: scale(2.0), payload=w) for w in words])
    assert [m.status.value for m in results] == ["wrong_answer", "crash", "ok"]
    assert "a check of the user's" in results[0].error and results[1].error == "it died"


def test_results_of_others_have_a_kind():
    assert BuilderResult("x").status is MeasureStatus.OK
    assert BuilderResult(None, "no").status is MeasureStatus.COMPILE
    assert RunnerResult([1.0]).status is MeasureStatus.OK
    assert RunnerResult(None, "no").status is MeasureStatus.RUNTIME
    assert RunnerResult(None, "no", MeasureStatus.CRASH).status is MeasureStatus.CRASH
    assert RunnerResult(None, "no") == RunnerResult(None, "no", MeasureStatus.CRASH)


def test_code_that_was_built_before_is_run_among_candidates(parts):
    engine = MeasureEngine(TARGET, *parts)
    (first,) = engine.measure([Candidate(lambda: scale(2.0))])
    infos = [TensorInfo("float32", [16])] * 2
    results = engine.measure([Candidate(lambda: scale(4.0)), Prebuilt(first.artifact, infos)])
    assert [m.ok for m in results] == [True, True] and isinstance(results[1], Measured)


def test_records_keep_their_kind(tmp_path):
    class Crashes(DummyRunner):
        def run(self, inputs):
            crash = RunnerResult(None, "killed by SIGSEGV", MeasureStatus.CRASH)
            return [ms.runner.RunnerFuture(lambda: True, lambda: crash) for _ in inputs]

    A = te.placeholder((16, 16), name="A")
    func = te.create_prim_func([A, te.compute((16, 16), lambda i, j: A[i, j] * te.const(2.0, "float32"), name="B")])
    ms.tune_tir(
        func, TARGET, str(tmp_path), 3, builder=DummyBuilder(), runner=Crashes(), cost_model="random", validate=False
    )
    records = ms.database.JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records()
    assert [r.status for r in records] == [MeasureStatus.CRASH] * len(records) and records
