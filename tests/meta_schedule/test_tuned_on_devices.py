"""Building, measuring and tuning for GPUs: whole flows without a GPU, and faults of devices."""

import functools
import os
import time
from pathlib import Path

import numpy as np
import pytest
from gpu_workloads import matmul16, scaled

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax, te, tir
from relaxish.meta_schedule.builder import BuilderInput, LocalBuilder
from relaxish.meta_schedule.builder.local_builder import build_whole
from relaxish.meta_schedule.application.few_shot import few_shot_tune
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from relaxish.meta_schedule.testing import te_workload
from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.errors import CODES, failure
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target
from relaxish.testing import FakeCUDA, use_cuda_provider

A100, H100 = "nvidia/nvidia-a100", "nvidia/nvidia-h100"


ARGS = [ms.arg_info.TensorInfo("float32", (256,))] * 2
ONCE = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)


# ---- faults


def _crash(launch):
    raise failure(CODES["ILLEGAL_ADDRESS"], "running a kernel")


def _memory(launch):
    raise failure(CODES["OUT_OF_MEMORY"], "running a kernel")


def _fake(devices=1):
    kernels = {
        "crash_kernel": _crash,
        "memory_kernel": _memory,
        "hang_kernel": lambda launch: time.sleep(600),
        "killed_kernel": lambda launch: os.kill(os.getpid(), 9),
        "good_kernel": lambda launch: None,
    }
    return FakeCUDA(devices=devices, deferred=False, kernels=kernels)


def offer_fake():
    """What a worker does first: the provider that this test's process uses."""
    providers.register_provider("fake", _fake)


def offer_two():
    """As :func:`offer_fake`, with two devices."""
    providers.register_provider("fake", lambda: _fake(2))


def artifacts(*names):
    """What a builder makes of some kernels."""
    builder = LocalBuilder(max_workers=1)
    try:
        built = builder.build([BuilderInput(scaled(name), Target(A100)) for name in names])
    finally:
        builder.shutdown()
    assert all(result.error_msg is None for result in built), built
    return [result.artifact_path for result in built]


@functools.cache
def good():
    """The artifact of a kernel that runs, built once: starting a builder takes longest."""
    return artifacts("good")[0]


@pytest.mark.slow
def test_faults_cost_one_candidate_each():
    runner = LocalRunner(timeout_sec=6, evaluator_config=ONCE, initializer=offer_fake)
    names = ["good", "crash", "good", "hang", "killed", "memory", "good"]
    with use_cuda_provider(_fake()):
        inputs = [RunnerInput(artifact, "cuda", ARGS) for artifact in artifacts(*names)]
        try:
            results = [future.result() for future in runner.run(inputs)]
        finally:
            runner.shutdown()
    for name, result in zip(names, results, strict=True):
        assert (result.run_secs is not None) == (name == "good"), (name, result.error_msg)
    assert "the device is lost" in results[1].error_msg and "ILLEGAL_ADDRESS" in results[1].error_msg
    assert "Timeout" in results[3].error_msg
    assert "killed" in results[4].error_msg
    assert "OUT_OF_MEMORY" in results[5].error_msg


def test_each_device_has_its_process():
    runner = LocalRunner(evaluator_config=ONCE, initializer=offer_two)
    with use_cuda_provider(_fake(2)):
        inputs = [RunnerInput(artifact, "cuda", ARGS) for artifact in [good()] * 6]
        try:
            assert all(future.result().error_msg is None for future in runner.run(inputs))
            assert [pool.index for pool in runner.device_pools("fake")] == [0, 1]
        finally:
            runner.shutdown()


def test_events_time_the_runs():
    """The fake device's clock advances by a millisecond with each launch, whatever the host does."""
    runner = LocalRunner(evaluator_config=EvaluatorConfig(number=5, repeat=3, min_repeat_ms=0), initializer=offer_fake)
    with use_cuda_provider(_fake()):
        try:
            (future,) = runner.run([RunnerInput(good(), "cuda", ARGS)])
            assert future.result().run_secs == pytest.approx([1e-3] * 3)
        finally:
            runner.shutdown()


def test_a_missing_device_is_a_record():
    runner = LocalRunner(evaluator_config=ONCE)
    with use_cuda_provider(_fake()):
        try:
            (future,) = runner.run([RunnerInput(good(), "cuda", ARGS)])
            assert "no CUDA provider" in future.result().error_msg
        finally:
            runner.shutdown()


def test_a_candidate_that_does_not_build_is_a_record():
    func = te.create_prim_func(te_workload.matmul(8, 8, 8))
    builder = LocalBuilder(max_workers=1)
    try:
        with use_cuda_provider("null"):
            result, good = builder.build(
                [
                    BuilderInput(relaxish.IRModule({"main": func}), Target(A100)),
                    BuilderInput(scaled("good"), Target(A100)),
                ]
            )
        assert result.artifact_path is None and "LocalBuilder: An exception occurred" in result.error_msg
        assert good.error_msg is None
    finally:
        builder.shutdown()


# ---- whole flows


def tuned(func, target, work_dir, trials, provider):
    """A database with a few records."""
    with use_cuda_provider(provider):
        return ms.tune_tir(func, Target(target), str(work_dir), trials, num_trials_per_iter=trials, seed=0)


@pytest.mark.slow
def test_the_null_driver_runs_the_whole_flow(tmp_path):
    func = te.create_prim_func(te_workload.matmul(64, 64, 64))
    database = tuned(func, A100, tmp_path / "one", 4, "null")
    records = database.get_all_tuning_records()
    assert len(records) == 4 and all(record.run_secs and 0 < record.run_secs[0] < 1e-2 for record in records)
    again = tuned(func, A100, tmp_path / "two", 4, "null")
    assert sorted(r.run_secs for r in records) == sorted(r.run_secs for r in again.get_all_tuning_records())
    schedule = ms.tir_integration.compile_tir(database, func, Target(A100))
    with use_cuda_provider("null"):
        module = relaxish.build(schedule.mod, target=Target(A100))
        arrays = [relaxish.nd.empty((64, 64), "float32", relaxish.cuda(0)) for _ in range(3)]
        module["main"](*arrays)


def test_the_emulator_computes_what_was_tuned(tmp_path):
    func = te.create_prim_func(matmul16(64, 64, 64, "float32"))
    database = tuned(func, H100, tmp_path, 3, "emulator")
    records = database.get_all_tuning_records()
    assert any(record.numerically_valid for record in records), [record.error_msg for record in records]
    schedule = ms.tir_integration.compile_tir(database, func, Target(H100))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype("float16") for _ in range(2))
    with use_cuda_provider("emulator"):
        module = relaxish.build(schedule.mod, target=Target(H100))
        device = relaxish.cuda(0)
        x, y = relaxish.nd.array(a, device), relaxish.nd.array(b, device)
        z = relaxish.nd.empty((64, 64), "float32", device)
        module["main"](x, y, z)
        result = z.numpy()
    np.testing.assert_allclose(result, a.astype("float32") @ b.astype("float32"), rtol=1e-2, atol=1e-2)


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((32, 32), "float32"), w: R.Tensor((32, 32), "float32")) -> R.Tensor((32, 32), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


def run_model(executable):
    """The model on random arguments, and what it should give."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((32, 32)).astype("float32") for _ in range(2))
    vm = relax.VirtualMachine(executable, relaxish.cuda(0))
    device = relaxish.cuda(0)
    found = vm["main"](relaxish.nd.array(x, device), relaxish.nd.array(w, device))
    return found.numpy(), np.maximum(x @ w, 0)


def test_a_model_is_tuned_and_built_with_its_records(tmp_path):
    target = Target(A100)
    with use_cuda_provider("emulator"):
        with target:
            lowered = relax.get_pipeline("zero")(Model)
            database = ms.relax_integration.tune_relax(
                lowered, {}, target, str(tmp_path), 3, num_trials_per_iter=3, seed=0
            )
            assert database.get_all_tuning_records()
            with database:
                applied = relax.transform.MetaScheduleApplyDatabase()(lowered)
        kernels = [f for f in applied.functions.values() if isinstance(f, tir.PrimFunc)]
        assert all(f.attrs.get("tir.is_scheduled") for f in kernels)
        executable = relaxish.compile(applied, target)
        found, wanted = run_model(executable)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_static_shape_tuning(tmp_path):
    target = Target(H100)
    with use_cuda_provider("emulator"), target:
        tuned_model = relax.get_pipeline("static_shape_tuning", total_trials=2, target=target, work_dir=str(tmp_path))(
            Model
        )
        executable = relaxish.compile(tuned_model, target)
        found, wanted = run_model(executable)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_few_shot_tuning():
    func = te.create_prim_func(te_workload.matmul(64, 64, 64))
    with use_cuda_provider("null"):
        found = few_shot_tune(func, Target(A100), 2, True)
    text = found.script()
    assert "blockIdx.x" in text and "threadIdx.x" in text and "blockIdx.x" not in func.script()


def test_corrupt_artifacts_are_records():
    runner = LocalRunner(timeout_sec=6, evaluator_config=ONCE, initializer=offer_fake)
    with use_cuda_provider(_fake()):
        part = Path(good()).read_bytes()[:200]
        inputs = [RunnerInput(broken, "cuda", ARGS) for broken in (part, b"", good())]
        try:
            results = [future.result() for future in runner.run(inputs)]
        finally:
            runner.shutdown()
    assert [result.error_msg is None for result in results] == [False, False, True]


@pytest.mark.slow
def test_what_computes_something_else_is_found_out():
    runner = LocalRunner(timeout_sec=30)
    x = te.placeholder((256,), "float32", name="X")
    right = te.create_prim_func([x, te.compute((256,), lambda i: x[i] * 2.0, name="Y")])
    wrong = te.create_prim_func([x, te.compute((256,), lambda i: x[i] * 2.5, name="Y")])
    with use_cuda_provider("emulator"):
        (artifact,) = artifacts("good")
        try:
            for func, verdict in ((right, True), (wrong, False)):
                reference = build_whole(relaxish.IRModule({"main": func}), Target("llvm"))
                assert runner.check(artifact, reference, ARGS)[0] == verdict
        finally:
            runner.shutdown()
    with use_cuda_provider("null"):
        (artifact,) = artifacts("good")
        try:
            assert runner.check(artifact, reference, ARGS)[0] is None
        finally:
            runner.shutdown()
