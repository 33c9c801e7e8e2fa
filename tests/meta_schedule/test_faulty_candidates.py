"""A candidate that crashes, hangs or eats memory costs one record that says so, and nothing else."""

import os
import time

import psutil
import pytest

from relaxish import IRModule, te
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.arg_info import TensorInfo
from relaxish.meta_schedule.builder import BuilderInput, LocalBuilder
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from relaxish.meta_schedule.testing import te_workload
from relaxish.script import tir as T
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")
ARGS = [TensorInfo("float32", [16])]
QUICK = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)


@T.prim_func
def good(A: T.Buffer((16,), "float32")):
    for i in range(16):
        A[i] = A[i] + T.float32(1)


@T.prim_func
def segfault(A: T.Buffer((16,), "float32")):
    for i in range(16):
        A[T.int64(1099511627776) * T.Cast("int64", i + 1)] = T.float32(1)


@T.prim_func
def hang(A: T.Buffer((16,), "float32")):
    while A[0] >= T.float32(0):
        A[0] = A[0] * T.float32(0.5) + T.float32(1)


@T.prim_func
def hungry(A: T.Buffer((16,), "float32")):
    while A[0] >= T.float32(0):
        T.evaluate(T.call_extern("int32", "posix_memalign", T.address_of(A[2]), T.int64(64), T.int64(1 << 26)))
        T.evaluate(
            T.call_extern("handle", "memset", T.call_extern("handle", "malloc", T.int64(1 << 26)), 1, T.int64(1 << 26))
        )


@T.prim_func
def clipped(A: T.Buffer((16,), "float32")):
    for i in range(16):
        A[i] = T.max(A[i], T.float32(0)) + T.float32(1)


@T.prim_func
def half(A: T.Buffer((16,), "float32")):
    for i in range(8):
        A[i] = A[i] + T.float32(1)


def module(func):
    return IRModule({"main": func.with_attr("global_symbol", "main")})


@pytest.fixture(scope="module")
def builder():
    made = LocalBuilder(max_workers=1, timeout_sec=20)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def artifacts(builder):
    names = {"good": good, "segfault": segfault, "hang": hang, "hungry": hungry}
    results = builder.build([BuilderInput(module(f), TARGET) for f in names.values()])
    assert [r.error_msg for r in results] == [None] * 4
    return {name: r.artifact_path for name, r in zip(names, results)}


def children():
    return {p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


def test_bad_kernels_cost_one_result_each(artifacts):
    before = children()
    runner = LocalRunner(timeout_sec=5, evaluator_config=QUICK, memory_limit=1 << 30)
    order = ["good", "segfault", "good", "hang", "good"]
    begin = time.monotonic()
    futures = runner.run([RunnerInput(artifacts[name], "llvm", ARGS) for name in order])
    results = [f.result() for f in futures]
    assert time.monotonic() - begin < 60  # four limits of 5 s at most, on a machine that does other things as well
    runner.shutdown()
    # To fill a gigabyte takes a busy machine more than 5 s.
    runner = LocalRunner(timeout_sec=60, evaluator_config=QUICK, memory_limit=1 << 30)
    late = ["hungry", "good"]
    results += [f.result() for f in runner.run([RunnerInput(artifacts[name], "llvm", ARGS) for name in late])]
    order += late
    for i, name in enumerate(order):
        assert (results[i].error_msg is None) == (name == "good"), (name, results[i].error_msg)
        assert (results[i].run_secs is not None) == (name == "good")
    assert "SIGSEGV" in results[1].error_msg
    assert "Timeout" in results[3].error_msg
    assert any(word in results[5].error_msg for word in ("oom", "crash", "SIG"))
    runner.shutdown()
    deadline = time.monotonic() + 5
    while children() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not children() - before


@pytest.mark.parametrize("wrong", [clipped, half], ids=["right for positive inputs", "part of the output"])
def test_wrong_results_are_seen(builder, wrong):
    right, other = (r.artifact_path for r in builder.build([BuilderInput(module(f), TARGET) for f in (good, wrong)]))
    runner = LocalRunner(timeout_sec=5, evaluator_config=QUICK)
    assert runner.check(right, right, ARGS) == (True, "")
    valid, reason = runner.check(other, right, ARGS)
    runner.shutdown()
    assert valid is False and "relative error" in reason


def test_a_wrong_default_schedule_is_no_reference(monkeypatch):
    from relaxish.meta_schedule.verdicts import baseline
    from relaxish.meta_schedule.verdicts.judge import Judge

    judge = Judge()
    for default in (good, clipped):
        monkeypatch.setattr(baseline, "default_schedule", lambda mod, target, func=default: module(func))
        before = module(good)
        assert judge.compare(before, module(good), TARGET).valid is True
        assert judge.compare(before, module(clipped), TARGET).valid is False
    judge.shutdown()


def _build_badly(mod, target, params):
    from relaxish.meta_schedule.builder.local_builder import default_build

    text = mod.script()
    if "hang" in text:
        time.sleep(60)
    if "crash" in text:
        os.abort()
    if "eat" in text:
        bytearray(8 << 30)
    return default_build(mod, target, params)


def named(name):
    x = te.placeholder((16,), "float32", name="X")
    return IRModule({"main": te.create_prim_func([x, te.compute((16,), lambda i: x[i] + 1.0, name=name)])})


def test_builds_that_hang_crash_or_eat_memory():
    builder = LocalBuilder(max_workers=1, timeout_sec=5, f_build=_build_badly, memory_limit=2 << 30)
    names = ["fine", "hang", "fine2", "crash", "fine3", "eat", "fine4"]
    results = builder.build([BuilderInput(named(n), TARGET) for n in names])
    builder.shutdown()
    assert [r.error_msg is None for r in results] == [n.startswith("fine") for n in names]
    assert "Timeout" in results[1].error_msg
    assert "SIGABRT" in results[3].error_msg
    assert "oom" in results[5].error_msg or "MemoryError" in results[5].error_msg


BAD = {3: segfault, 5: hang, 9: hungry}


class SpoilingBuilder(ms.Builder):
    """Puts a bad kernel in the place of some candidates."""

    def __init__(self, artifacts):
        self.local = LocalBuilder(max_workers=1, timeout_sec=20)
        self.artifacts = artifacts
        self.count = 0

    def build(self, inputs):
        results = self.local.build(inputs)
        for result in results:
            bad = BAD.get(self.count)
            if bad is not None:
                result.artifact_path = self.artifacts[bad.attrs["global_symbol"]]
            self.count += 1
        return results


def test_a_tuning_run_with_bad_candidates(tmp_path, artifacts):
    func = te.create_prim_func(te_workload.matmul(32, 32, 32))
    spoil = SpoilingBuilder(artifacts)
    runner = LocalRunner(timeout_sec=5, evaluator_config=QUICK, memory_limit=1 << 30)
    database = ms.tune_tir(
        func,
        TARGET,
        str(tmp_path),
        12,
        num_trials_per_iter=4,
        builder=spoil,
        runner=runner,
        cost_model="random",
        validate=False,
        seed=3,
    )
    runner.shutdown()
    spoil.local.shutdown()
    records = database.get_all_tuning_records()
    assert len(records) == 12
    failed = [i for i, r in enumerate(records) if r.error_msg]
    assert failed == sorted(BAD)
    assert all(not records[i].is_valid() and records[i].stage == "run" for i in failed)
    assert database.query_tuning_record(ms.TuneContext(func).mod, TARGET) is not None
