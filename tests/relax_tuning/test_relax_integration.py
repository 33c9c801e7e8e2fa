"""Models tuned for real, with few trials: tasks, databases, passes, pipelines, and numbers that come out right."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax
from relaxish.ir import IRModule, assert_structural_equal, structural_equal
from relaxish.meta_schedule.passes import ApplyFasterOfDatabaseAndDefault
from relaxish.meta_schedule.verdicts.baseline import baseline_seconds, commit_baseline
from relaxish.meta_schedule.builder import LocalBuilder
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner
from relaxish.meta_schedule.analysis.schedules import normalize_mod
from relaxish.pipeline import get_pipeline, kernel_pipeline
from relaxish.runtime import VirtualMachine, cpu
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import PrimFunc

TARGET = Target("llvm -num-cores=2")
RNG = np.random.default_rng(0)
W = RNG.standard_normal((32, 32)).astype("float32")
X = RNG.standard_normal((16, 32)).astype("float32")


@I.ir_module
class Mlp:
    @R.function
    def main(x: R.Tensor((16, 32), "float32"), w: R.Tensor((32, 32), "float32")) -> R.Tensor((16, 32), "float32"):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            e = R.matmul(d, w)
            R.output(e)
        return e


def expected():
    hidden = np.maximum(np.maximum(X @ W, 0) @ W, 0)
    return hidden @ W


def legalized(mod=Mlp, params=None):
    with TARGET:
        return get_pipeline("zero")(relax.transform.BindParams("main", params)(mod) if params else mod)


@pytest.fixture(scope="module")
def tools():
    """One builder and one quick runner for all tests."""
    builder, runner = LocalBuilder(max_workers=2), LocalRunner(evaluator_config=EvaluatorConfig(1, 1, 1))
    yield {"builder": builder, "runner": runner}
    builder.shutdown()
    runner.shutdown()


def run(executable, *args):
    return VirtualMachine(executable, cpu())["main"](*args).numpy()


# ---- tasks


def test_tasks_are_the_distinct_kernels_weighted_by_call_sites():
    tasks = ms.extract_tasks(legalized(), TARGET)
    assert [(t.task_name, t.weight) for t in tasks] == [("fused_matmul_relu", 2), ("matmul", 1)]
    for task in tasks:
        assert_structural_equal(task.mod, task.dispatched[0])
        assert [g.name_hint for g in task.mod.functions] == ["main"]
        assert task.mod["main"].attrs["global_symbol"] == "main" and task.target == TARGET


def test_tasks_of_anchor_blocks_keep_the_plainest_variant():
    tasks = ms.extract_tasks(legalized(), "llvm -num-cores=2", module_equality="anchor-block")
    assert [(t.task_name, t.weight) for t in tasks] == [("matmul", 3)]
    assert len(ms.extract_tasks(legalized(), TARGET, module_equality="ignore-ndarray")) == 2
    with pytest.raises(ValueError, match="equality"):
        ms.extract_tasks(legalized(), TARGET, module_equality="no such thing")


def test_a_module_of_operators_has_no_tasks(tmp_path):
    assert ms.extract_tasks(Mlp, TARGET) == []
    with pytest.raises(ValueError, match="No tasks to tune"):
        ms.tune_relax(Mlp, {}, TARGET, str(tmp_path), 4)
    with pytest.raises(ValueError, match="No tasks to tune"):
        ms.tune_relax(legalized(), {}, TARGET, str(tmp_path), 4, op_names=["conv"])


def test_scheduled_and_dynamic_programs_are_left_out(tmp_path):
    mod = legalized()
    marked = mod["fused_matmul_relu"].with_attr("tir.is_scheduled", True)
    mod = mod.clone()
    mod.update_func(mod.get_global_var("fused_matmul_relu"), marked)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
            ms.extract_tasks(mod, TARGET), str(tmp_path)
        )
    assert [c.task_name for c in contexts] == ["matmul"] and weights == [1.0]
    assert any("already scheduled" in str(w.message) for w in seen)


# ---- tuning and compiling


def test_tune_and_compile(tmp_path, tools):
    params = {"w": W}
    mod = kernel_pipeline(TARGET)(relax.transform.BindParams("main", params)(Mlp))
    database = ms.tune_relax(
        mod, {}, TARGET, str(tmp_path), 16, num_trials_per_iter=4, seed=3, cost_model="random", baselines=True, **tools
    )
    assert {p.name for p in tmp_path.iterdir()} >= {"database_workload.json", "database_tuning_record.json", "logs"}
    assert (tmp_path / "logs" / "task_scheduler.log").exists()
    executable = ms.compile_relax(database, Mlp, TARGET, params)
    np.testing.assert_allclose(run(executable, X), expected(), rtol=1e-4, atol=1e-4)
    again = JSONDatabase(work_dir=str(tmp_path))
    for task in ms.extract_tasks(mod, TARGET):
        assert baseline_seconds(again, task.mod) is not None
        assert again.query_tuning_record(task.mod, TARGET) is not None
    with again:
        np.testing.assert_allclose(run(relaxish.build(Mlp, TARGET, params=params), X), expected(), rtol=1e-4, atol=1e-4)


def test_op_names_and_trials_per_task(tmp_path, tools):
    database = ms.tune_relax(
        legalized(), {}, TARGET, str(tmp_path), 8, 4, ["relu"], num_trials_per_iter=4, database="memory", validate=False,
        cost_model="random", **tools,
    )  # fmt: skip
    records = database.get_all_tuning_records()
    assert len(records) == 4 and not (tmp_path / "database_workload.json").exists()


@pytest.mark.parametrize("prepack", [False, True])
def test_static_shape_tuning(tmp_path, prepack):
    bound = relax.transform.BindParams("main", {"w": W})(Mlp)
    pipeline = get_pipeline(
        "static_shape_tuning", total_trials=8, target=TARGET, work_dir=str(tmp_path), cpu_weight_prepack=prepack
    )
    mod = pipeline(bound)
    # A kernel whose default schedule is faster than its best record is left to the build.
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path))) == 8
    executable = relaxish.build(mod, TARGET, relax_pipeline="default_build")
    args = [X]
    if any(g.name_hint == "main_transform_params" for g in mod.functions):
        packed = VirtualMachine(executable, cpu())["main_transform_params"]()
        args += list(packed)
    np.testing.assert_allclose(run(executable, *args), expected(), rtol=1e-4, atol=1e-4)


def test_static_shape_tuning_without_trials_applies_what_is_there(tmp_path):
    pipeline = get_pipeline("static_shape_tuning", total_trials=0, target=TARGET, work_dir=str(tmp_path))
    mod = pipeline(Mlp)
    assert not any((f.attrs or {}).get("tir.is_scheduled") for f in mod.functions.values())


# ---- passes


@T.prim_func
def doubled(a: T.Buffer((64, 64), "float32"), b: T.Buffer((64, 64), "float32")):
    T.func_attr({"tir.noalias": True, "note": 7})
    for i, j in T.grid(64, 64):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = a[vi, vj] * T.float32(2)


def for_kind_of(mod):
    """How the outermost loop of ``doubled`` runs."""
    sch = relaxish.tir.Schedule(mod["doubled"])
    return sch.get(sch.get_loops("b")[0]).kind.name


def recorded(func, database):
    """A database with one hand-written schedule of a function."""
    module = normalize_mod(func)
    sch = relaxish.tir.Schedule(module)
    sch.parallel(sch.get_loops("b")[0])
    sch.annotate("b", "tuned", 1)
    workload = database.commit_workload(module)
    database.commit_tuning_record(ms.database.TuningRecord(sch.trace, workload, [1.0], TARGET, []))
    return database


def test_apply_keeps_attributes_and_marks(caplog):
    mod = IRModule({"doubled": doubled, "other": doubled.with_attr("other", 1)})
    with TARGET, recorded(doubled, MemoryDatabase()), caplog.at_level(logging.WARNING):
        out = relax.transform.MetaScheduleApplyDatabase(enable_warning=True)(mod)
    attrs = dict(out["doubled"].attrs.items())
    assert attrs == {**dict(doubled.attrs.items()), "tir.is_scheduled": True}
    assert for_kind_of(out) == "PARALLEL"
    assert_structural_equal(out["other"], mod["other"])
    assert any("Tuning record is not found for primfunc: other" in r.getMessage() for r in caplog.records)


def test_blocks_may_have_other_names_than_the_record_says():
    @T.prim_func
    def renamed(x: T.Buffer((64, 64), "float32"), y: T.Buffer((64, 64), "float32")):
        T.func_attr({"tir.noalias": True, "note": 7})
        for i, j in T.grid(64, 64):
            with T.block("another_name"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(2)

    with TARGET, recorded(doubled, MemoryDatabase()):
        out = relax.transform.MetaScheduleApplyDatabase()(
            IRModule({"doubled": renamed.with_attr("global_symbol", "doubled")})
        )
    assert out["doubled"].attrs["tir.is_scheduled"] and "T.parallel" in out.script()


def test_apply_needs_a_target_and_a_database(tmp_path):
    mod = IRModule({"doubled": doubled})
    with pytest.raises(ValueError, match="[Tt]arget"):
        relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(mod)
    with TARGET, pytest.raises(ValueError, match="work_dir"):
        relax.transform.MetaScheduleApplyDatabase()(mod)
    with TARGET:
        assert structural_equal(relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(mod), mod)


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_a_record_slower_than_the_default_schedule_is_not_built(tmp_path, kind):
    database = MemoryDatabase() if kind == "memory" else JSONDatabase(work_dir=str(tmp_path))
    recorded(doubled, database)
    mod = IRModule({"doubled": doubled})
    commit_baseline(database, normalize_mod(doubled), [2.0])

    def is_tuned(scope, apply=ApplyFasterOfDatabaseAndDefault):
        with TARGET, scope:
            func = apply()(mod)["doubled"]
        if not func.attrs.get("tir.is_scheduled"):
            return False  # left to the default schedules of the build
        sch = relaxish.tir.Schedule(func)
        return "tuned" in sch.get(sch.get_block("b")).annotations

    assert is_tuned(database)
    commit_baseline(database, normalize_mod(doubled), [0.5])
    assert not is_tuned(database)
    # The public pass applies what was recorded, whatever else was measured.
    assert is_tuned(database, relax.transform.MetaScheduleApplyDatabase)
    assert not is_tuned(ms.database.UnionDatabase(MemoryDatabase(), database))
    if kind == "json":
        again = JSONDatabase(work_dir=str(tmp_path))
        assert baseline_seconds(again, normalize_mod(doubled)) == 0.5


def test_tune_tir_pass_tunes_each_function(tmp_path):
    mod = IRModule({n: doubled.with_attr("global_symbol", n) for n in ("one", "two")})
    with TARGET:
        same = relax.transform.MetaScheduleTuneTIR(str(tmp_path), 2)(mod)
        assert same is mod
        out = relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(mod)
    database = JSONDatabase(work_dir=str(tmp_path))
    assert all(database.has_workload(normalize_mod(mod[name])) for name in ("one", "two"))
    built = relaxish.driver.build_tir(out, TARGET)
    x = RNG.standard_normal((64, 64)).astype("float32")
    for name in ("one", "two"):
        y = relaxish.nd.empty((64, 64), "float32")
        built[name](relaxish.nd.array(x), y)
        np.testing.assert_allclose(y.numpy(), 2 * x)


def test_tune_irmod_pass(tmp_path):
    mod = legalized()
    with TARGET:
        assert relax.transform.MetaScheduleTuneIRMod({}, str(tmp_path), 4, 2)(mod) is mod
        with pytest.raises(ValueError, match="No tasks to tune"):
            relax.transform.MetaScheduleTuneIRMod({}, str(tmp_path), 4)(Mlp)
    assert JSONDatabase(work_dir=str(tmp_path)).has_workload(normalize_mod(mod["matmul"]))


# ---- anchor blocks


def test_a_trace_of_one_variant_serves_the_other(tmp_path, tools):
    mod = legalized()
    database = ms.tune_relax(
        mod, {}, TARGET, str(tmp_path), 6, num_trials_per_iter=3, module_equality="anchor-block", cost_model="random", **tools
    )  # fmt: skip
    workloads = {id(r.workload) for r in database.get_all_tuning_records()}
    assert len(workloads) == 1
    with TARGET, database:
        out = relax.transform.MetaScheduleApplyDatabase()(mod)
    for name in ("matmul", "fused_matmul_relu"):
        assert out[name].attrs["tir.is_scheduled"]
    assert not structural_equal(out["fused_matmul_relu"], mod["fused_matmul_relu"])
    np.testing.assert_allclose(run(relaxish.build(out, TARGET), X, W), expected(), rtol=1e-4, atol=1e-4)


# ---- few shots


@pytest.mark.parametrize("count, benchmark", [(1, False), pytest.param(3, True, marks=pytest.mark.slow)])
def test_few_shot_tuning(count, benchmark):
    mod = legalized()
    with TARGET:
        out = relax.transform.FewShotTuning(valid_count=count, benchmark=benchmark)(mod)
    for gv, func in out.functions.items():
        if isinstance(func, PrimFunc):
            assert func.attrs["tir.is_scheduled"]
            assert set(func.attrs.keys()) == {*mod[gv.name_hint].attrs.keys(), "tir.is_scheduled"}
    np.testing.assert_allclose(run(relaxish.build(out, TARGET), X, W), expected(), rtol=1e-4, atol=1e-4)
    with TARGET:
        assert relax.transform.FewShotTuning()(out) is out


def test_few_shot_tuning_checks_its_arguments():
    with TARGET:
        with pytest.raises(ValueError, match="Valid_count must be positive"):
            relax.transform.FewShotTuning(0)(legalized())
        with pytest.raises(ValueError, match="at least two valid trials"):
            relax.transform.FewShotTuning(1, True)(legalized())
    with pytest.raises(ValueError, match="[Tt]arget"):
        relax.transform.FewShotTuning()(legalized())
