"""What builders give callers who ask them directly: one file for each candidate, which is theirs to use and delete."""

import os

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish.ir import IRModule
from relaxish.meta_schedule.builder import BuilderInput, LocalBuilder, PyBuilder
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from relaxish.meta_schedule.runner.local_runner import (
    default_alloc_argument,
    default_cleanup,
    default_run_evaluator,
)
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

QUICK = EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)
ARGS = [ms.arg_info.TensorInfo("float32", (64,))] * 2


@T.prim_func
def double(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            B[vi] = A[vi] * T.float32(2)


@T.prim_func
def double_by_threads(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in T.thread_binding(64, "threadIdx.x"):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            B[vi] = A[vi] * T.float32(2)


def built(func, target, **options):
    builder = LocalBuilder(max_workers=1, **options)
    try:
        (result,) = builder.build([BuilderInput(IRModule({"main": func.with_attr("global_symbol", "main")}), target)])
    finally:
        builder.shutdown()
    return result


def test_an_artifact_is_one_file_in_a_folder_of_its_own():
    result = built(double, Target("llvm"))
    path = result.artifact_path
    assert result.error_msg is None and os.path.isfile(path)
    a = np.random.default_rng(0).standard_normal(64).astype("float32")
    x, y = relaxish.nd.array(a), relaxish.nd.empty((64,))
    relaxish.runtime.load_module(path)(x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * a)
    runner = LocalRunner(timeout_sec=20, evaluator_config=QUICK)
    (future,) = runner.run([RunnerInput(path, "llvm", ARGS)])
    ran = future.result()
    assert ran.error_msg is None and len(ran.run_secs) == 2
    assert runner.check(path, path, ARGS) == (True, "")
    runner.shutdown()
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def test_artifacts_for_devices_are_files_too():
    with use_cuda_provider("null"):
        result = built(double_by_threads, Target("nvidia/nvidia-a100"))
        path = result.artifact_path
        assert result.error_msg is None and os.path.isfile(path)
        runner = LocalRunner(timeout_sec=20, evaluator_config=QUICK)
        (future,) = runner.run([RunnerInput(path, "cuda", ARGS)])
        ran = future.result()
        runner.shutdown()
    assert ran.error_msg is None and len(ran.run_secs) == 2
    ms.measure_callback.RemoveBuildArtifact().apply(None, 0, [], [result], [])
    assert not os.path.exists(os.path.dirname(path))


def test_artifacts_are_removed_by_a_global_function(tmp_path):
    remove = relaxish.get_global_func("meta_schedule.remove_build_dir")
    path = built(double, Target("llvm")).artifact_path
    remove(path)
    assert not os.path.exists(os.path.dirname(path))
    # What lies beside an artifact that somebody else put there stays.
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "module.so").write_bytes(b"")
    remove(str(tmp_path / "module.so"))
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def fail(mod, target, params):
    raise ValueError("this module is not liked")


def test_what_fails_says_where():
    result = built(double, Target("llvm"), f_build=fail)
    assert result.artifact_path is None
    assert result.error_msg.startswith("LocalBuilder: An exception occurred") and "not liked" in result.error_msg
    with pytest.raises(ValueError, match="no packed function"):
        LocalBuilder(f_build="nobody.registered.this")


@pytest.mark.parametrize(
    ("base", "call", "text"),
    [
        (PyBuilder, lambda x: x.build([]), "PyBuilder's Build method not implemented"),
        (ms.runner.PyRunner, lambda x: x.run([]), "PyRunner's Run method"),
        (ms.space_generator.PySpaceGenerator, lambda x: x.generate_design_space(None), "GenerateDesignSpace method"),
        (
            ms.space_generator.PySpaceGenerator,
            lambda x: x._initialize_with_tune_context(ms.TuneContext()),
            "PySpaceGenerator's InitializeWithTuneContext method",
        ),
        (ms.task_scheduler.PyTaskScheduler, lambda x: x.next_task_id(), "PyTaskScheduler's NextTaskId method"),
        (ms.schedule_rule.PyScheduleRule, lambda x: x.apply(None, None), "PyScheduleRule's Apply method"),
    ],
)
def test_methods_that_a_subclass_lacks_are_named(base, call, text):
    part = ms.derived_object(type("Mine", (base,), {}))()
    with pytest.raises(relaxish.TVMError, match=text) as caught:
        call(part)
    assert isinstance(caught.value, NotImplementedError)


def test_a_space_generator_needs_no_initialisation_of_its_own():
    class OnlyThis(ms.space_generator.PySpaceGenerator):
        def generate_design_space(self, mod):
            return [relaxish.tir.Schedule(mod)]

    context = ms.TuneContext(mod=double, target="llvm", space_generator=ms.derived_object(OnlyThis)())
    assert len(context.generate_design_space()) == 1


def test_a_derived_object_is_its_own_outer_object():
    @ms.derived_object
    class Turns(ms.task_scheduler.PyTaskScheduler):
        def next_task_id(self):
            return -1 if all(t.is_terminated for t in self._outer().tasks_) else 0

    scheduler = Turns()
    assert scheduler._outer() is scheduler and scheduler.next_task_id() == -1


def test_a_cost_model_learns_without_a_task():
    pytest.importorskip("xgboost")
    rng = np.random.default_rng(3)
    model = ms.cost_model.XGBModel(extractor=ms.feature_extractor.RandomFeatureExtractor(), num_warmup_samples=2)
    context = ms.TuneContext()
    candidates = [ms.MeasureCandidate(relaxish.tir.Schedule(double), None) for _ in range(6)]
    model.update(context, candidates, [ms.runner.RunnerResult([t], None) for t in rng.uniform(0.1, 1, 6)])
    scores = model.predict(context, candidates)
    assert model.trained and scores.shape == (6,) and np.isfinite(scores).all()


def _allocate(device, args_info, repeat):
    made = default_alloc_argument(device, args_info, repeat)
    assert device == relaxish.cpu() and len(made) == repeat
    return made


def _evaluate(rt_mod, device, config, repeated):
    """Figures that say what was given: the right result is timed, any other is none."""
    found = []
    for x, y in repeated:
        rt_mod(x, y)
        np.testing.assert_array_equal(y.numpy(), 2 * x.numpy())
        found += rt_mod.time_evaluator(rt_mod.entry_name, device, number=config.number, repeat=config.repeat)(
            x, y
        ).results
    return found


@pytest.mark.parametrize(
    "steps",
    [
        {"f_alloc_argument": _allocate, "f_run_evaluator": _evaluate},
        {"f_alloc_argument": _allocate},
        {"f_run_evaluator": _evaluate, "f_cleanup": default_cleanup},
        {"f_run_evaluator": default_run_evaluator},
    ],
)
def test_steps_of_a_measurement_are_given_modules_devices_and_arrays(steps):
    result = built(double, Target("llvm"))
    runner = LocalRunner(timeout_sec=30, evaluator_config=QUICK, alloc_repeat=3, **steps)
    try:
        (future,) = runner.run([RunnerInput(result.artifact_path, "llvm", ARGS)])
        ran = future.result()
    finally:
        runner.shutdown()
    assert ran.error_msg is None and len(ran.run_secs) == 6 and min(ran.run_secs) > 0
    os.remove(result.artifact_path)
