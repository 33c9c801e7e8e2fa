"""Tuning default schedules, choosing winners inside a model, budgets, and the models the demo uses."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax
from relaxish.dlight.cpu import contraction_variants
from relaxish.ir import assert_structural_equal, structural_equal
from relaxish.meta_schedule.resume.budget import TimeBudget, worthwhile
from relaxish.meta_schedule.builder import LocalBuilder
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner
from relaxish.meta_schedule.analysis.variants import measure_variants
from relaxish.pipeline import kernel_pipeline
from relaxish.runtime import VirtualMachine, cpu
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target
from relaxish.tir import Schedule
from relaxish.tir.schedule import ScheduleError, Trace
from relaxish.tools.tuning_in_place import kernel_seconds, settle

TARGET = Target("llvm -num-cores=2")
RNG = np.random.default_rng(0)


@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor((24, 64), "float32"), w: R.Tensor((64, 96), "float32"), v: R.Tensor((96, 64), "float32")):
        with R.dataflow():
            a = R.nn.relu(R.matmul(x, w))
            b = R.matmul(a, v)
            R.output(b)
        return b


W = RNG.standard_normal((64, 96)).astype("float32")
V = RNG.standard_normal((96, 64)).astype("float32")
X = RNG.standard_normal((24, 64)).astype("float32")


@pytest.fixture(scope="module")
def net():
    return relax.transform.BindParams("main", {"w": W, "v": V})(Net)


def run(mod, database):
    with database:
        executable = relaxish.build(mod, TARGET)
    return VirtualMachine(executable, cpu())["main"](X).numpy()


def test_variants_are_one_step_traces_that_replay(net):
    task = ms.extract_tasks(kernel_pipeline(TARGET)(net), TARGET)[0]
    variants = contraction_variants(task.mod["main"], TARGET, 6)
    assert len(variants) == 6
    assert len({str(v.mod) for v in variants}) == 6
    for variant in variants:
        assert [i.kind.name for i in variant.trace.insts] == ["ApplyRule"]
        again = Schedule(task.mod)
        Trace.apply_json_to_schedule(variant.trace.as_json(), again)
        assert_structural_equal(again.mod["main"], variant.mod["main"])
        text = Schedule(task.mod)
        variant.trace.apply_to_schedule(text, remove_postproc=False)
        assert structural_equal(text.mod["main"], variant.mod["main"])


def test_rules_that_do_not_fit_or_exist(net):
    task = ms.extract_tasks(kernel_pipeline(TARGET)(net), TARGET)[0]
    sch = Schedule(task.mod)
    with pytest.raises(ScheduleError, match="no schedule rule 'nope'"):
        sch.apply_rule("nope", {})
    relu = ms.extract_tasks(kernel_pipeline(TARGET)(relu_only()), TARGET)[0]
    assert contraction_variants(relu.mod["main"], TARGET) == []
    with pytest.raises(ScheduleError, match="does not fit"):
        options = {"rows": 1, "vectors": 1, "order": "mixed", "target": TARGET.export()}
        Schedule(relu.mod).apply_rule("cpu.contraction", options)


def relu_only():
    @I.ir_module
    class Relu:
        @R.function
        def main(x: R.Tensor((24, 64), "float32")) -> R.Tensor((24, 64), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    return Relu


def test_settling_in_the_model(net, tmp_path):
    tasks = ms.extract_tasks(kernel_pipeline(TARGET)(net), TARGET)
    assert len(tasks) == 2
    contexts, _ = ms.relax_integration.extracted_tasks_to_tune_contexts(tasks, str(tmp_path), num_threads=2)
    database = JSONDatabase(work_dir=str(tmp_path))
    builder, runner = LocalBuilder(max_workers=2), LocalRunner(evaluator_config=EvaluatorConfig(1, 1, 1))
    try:
        count = measure_variants(contexts, database, builder, runner, limit=4)
        assert count == len(database) == 8
        assert measure_variants(contexts, database, builder, runner, limit=4) == 0  # nothing is measured twice
    finally:
        builder.shutdown()
        runner.shutdown()
    best = MemoryDatabase()
    times = settle(net, TARGET, database, best, [X], finalists=2, rounds=3)
    assert [t.calls for t in times] == [1, 1] and all(len(t.tuned) == 2 and t.default > 0 for t in times)
    assert len(best) == sum(t.winner is not None for t in times)
    want = np.maximum(X @ W, 0) @ V
    for used in (best, database):
        np.testing.assert_allclose(run(net, used), want, rtol=1e-4, atol=1e-3)
    seconds = kernel_seconds(net, TARGET, [X], rounds=2)
    assert set(seconds) == {t.name for t in times}


def test_worthwhile_tasks():
    assert worthwhile(["a", "b", "c", "d"], [1, 50, 9, 40], 0.9) == ["b", "d"]
    assert worthwhile(["a", "b"], [0.0, 0.0]) == ["a"] and worthwhile([], []) == []


def test_a_time_budget_stops_in_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("relaxish.meta_schedule.resume.budget.time.monotonic", lambda: now[0])
    monkeypatch.setattr("relaxish.meta_schedule.task_scheduler.GradientBased.next_task_id", lambda self: 3)
    budget = TimeBudget(10)
    assert budget.next_task_id() == 3
    now[0] = 109.0
    assert budget.next_task_id() == 3
    now[0] = 110.0
    assert budget.next_task_id() == -1


def test_light_models():
    pytest.importorskip("onnx")
    from relaxish.support.errors import RelaxishError
    from relaxish.tools.light_models import light_model, light_model_names

    assert "resnet50" in light_model_names() and len(light_model_names()) == 9
    model, same, other = light_model("squeezenet", 1), light_model("squeezenet", 1), light_model("squeezenet", 2)
    assert model == same and model != other
    assert not any(n.op_type == "ConstantOfShape" for n in model.graph.node)
    assert "data_0" in [i.name for i in model.graph.input]
    with pytest.raises(RelaxishError, match="resnet50"):
        light_model("resnet51")
