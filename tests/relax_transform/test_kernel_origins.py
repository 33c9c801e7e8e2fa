"""Graphs of fused kernels taken back to operators, and pipelines whose results a build lays out like the model itself."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import op as R
from relaxish import relax, transform
from relaxish.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from relaxish.ir.module import functions_of
from relaxish.pipeline import default_build_pipeline, kernel_pipeline, zero_pipeline
from relaxish.relax import BlockBuilder, Function, TensorStructInfo, Var, const
from relaxish.script import ir as I
from relaxish.script import relax as script
from relaxish.target import Target
from relaxish.tir import PrimFunc
from relaxish.transform.kernel_origins import KernelsToOperators, has_origins, unlowered, unrecorded

TARGET = Target("llvm -num-cores=1")


def values(shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


W0, W1, B1 = values((16, 3, 3, 3)), values((24, 16, 3, 3), 1), values((1, 24, 1, 1), 2)
NORM = [np.abs(values((16,), s)) + 0.5 for s in range(4)]
X = values((1, 3, 12, 12), 3)


def convolutions(batch=1):
    """Convolutions, a batch norm, a residual, a pool, a concat, a mean and a softmax."""
    builder, x = BlockBuilder(), Var("x", TensorStructInfo((batch, 3, 12, 12), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.conv2d(x, const(W0), padding=1))
            y = builder.emit(builder.emit(R.nn.batch_norm(y, *map(const, NORM), axis=1, training=False))[0])
            y = builder.emit(R.nn.relu(y))
            z = builder.emit(R.add(builder.emit(R.nn.conv2d(y, const(W1), padding=1)), const(B1)))
            z = builder.emit(R.concat([builder.emit(R.nn.relu(z)), y], axis=1))
            z = builder.emit(R.nn.max_pool2d(z, (2, 2), (2, 2)))
            z = builder.emit(R.mean(z, axis=[2, 3]))
            out = builder.emit_output(R.nn.softmax(builder.emit(R.multiply(z, const(np.float32(3)))), axis=-1))
        builder.emit_func_output(out)
    return builder.finalize()


def reference():
    import torch

    x, *norm = (torch.from_numpy(a).double() for a in (X, *NORM))
    conv = torch.nn.functional.conv2d
    y = conv(x, torch.from_numpy(W0).double(), padding=1)
    gamma, beta, mean, variance = norm
    y = torch.relu(torch.nn.functional.batch_norm(y, mean, variance, gamma, beta, eps=1e-5))
    z = torch.relu(conv(y, torch.from_numpy(W1).double(), padding=1) + torch.from_numpy(B1).double())
    z = torch.nn.functional.max_pool2d(torch.cat([z, y], 1), 2).mean((2, 3))
    return torch.softmax(3 * z, -1).numpy()


def run(mod, *inputs, **options):
    vm = relaxish.VirtualMachine(relaxish.build(mod, TARGET, **options), relaxish.cpu())
    return vm["main"](*[relaxish.nd.array(x) for x in inputs]).numpy()


def operators(mod):
    """Names of what ``main`` calls."""
    found = []

    def look(node):
        if isinstance(node, relax.Call) and hasattr(node.op, "name"):
            found.append(node.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(mod["main"], look)
    return found


def kernels_of(mod):
    """The programs that a build would schedule, most of all in which layout."""
    return sorted(structural_hash(f) for _, f in functions_of(kernel_pipeline(TARGET)(mod), PrimFunc))


def by_hand(mod):
    for each in ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR"):
        mod = getattr(transform, each)()(mod)
    return mod


PIPELINES = {"zero": zero_pipeline(), "default_build": default_build_pipeline(), "by hand": by_hand}


# ---- what comes back


def test_fused_kernels_become_the_operators_they_were_made_from():
    mod = convolutions()
    fused = zero_pipeline()(mod)
    assert has_origins(fused) and set(operators(fused)) == {"call_tir"}
    back = KernelsToOperators()(fused)
    assert sorted(operators(back)) == sorted(operators(mod))
    assert not any(isinstance(f, PrimFunc) for f in back.functions.values())
    # The kernels themselves are as they were.
    assert set(operators(fused)) == {"call_tir"}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_build_lays_out_what_a_pipeline_made(name):
    mod = convolutions()
    made = PIPELINES[name](mod)
    np.testing.assert_allclose(run(made, X), reference(), rtol=2e-5, atol=1e-6)
    assert kernels_of(made) == kernels_of(mod) if name != "default_build" else unlowered(made) is not made


@pytest.mark.parametrize("name", ["zero", "default", "default_build"])
def test_pipelines_named_to_a_build(name):
    np.testing.assert_allclose(run(convolutions(), X, relax_pipeline=name), reference(), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", PIPELINES)
def test_sizes_known_at_run_time(name):
    from relaxish.tir import Var as SizeVar

    made = PIPELINES[name](convolutions(SizeVar("n", "int64")))
    got = run(made, np.concatenate([X, X]))
    np.testing.assert_allclose(got, np.concatenate([reference()] * 2), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", PIPELINES)
def test_parameters_are_bound_after_a_pipeline(name):
    builder = BlockBuilder()
    x, w = Var("x", TensorStructInfo((5, 9), "float32")), Var("w", TensorStructInfo((9, 33), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(R.nn.relu(builder.emit(R.matmul(x, w))))
        builder.emit_func_output(out)
    a, b = values((5, 9)), values((9, 33))
    want = np.maximum(a.astype("float64") @ b, 0)
    made = PIPELINES[name](builder.finalize())
    np.testing.assert_allclose(run(made, a, params={"w": b}), want, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(run(made, a, b), want, rtol=2e-5, atol=1e-5)


# ---- what stays


def test_programs_of_users_stay():
    mod = convolutions()

    def doubled(builder, call):
        return builder.call_te(
            lambda t: relaxish.topi.multiply(relaxish.topi.nn.relu(t), 2.0), call.args[0], primfunc_name_hint="doubled"
        )

    custom = transform.FuseTIR()(
        transform.FuseOps()(transform.AnnotateTIROpPattern()(transform.LegalizeOps({"relax.nn.softmax": doubled})(mod)))
    )
    back = KernelsToOperators()(custom)
    assert "nn.softmax" not in operators(back) and "call_tir" in operators(back)
    assert not np.allclose(run(custom, X), reference())
    with unrecorded():
        assert not has_origins(zero_pipeline()(convolutions()))
    # Text has no memory.
    parsed = relaxish.ir.load_json(relaxish.ir.save_json(zero_pipeline()(mod)))
    assert not has_origins(parsed)
    np.testing.assert_allclose(run(parsed, X), reference(), rtol=2e-5, atol=1e-6)


def test_changed_kernels_stay_as_they_were_changed():
    fused = zero_pipeline()(convolutions())
    softmax = fused["softmax"] if "softmax" in [v.name_hint for v in fused.functions] else None
    name = "softmax" if softmax is not None else next(v.name_hint for v in fused.functions if "softmax" in v.name_hint)
    func = fused[name]
    sch = relaxish.tir.Schedule(IRModule({"main": func}))
    block = sch.get_child_blocks(sch.get_block("root"))[-1]
    sch.split(sch.get_loops(block)[-1], [None, 4])
    changed = fused.clone()
    changed.update_func(changed.get_global_var(name), sch.mod["main"].with_attr("tir.is_scheduled", True))
    back = KernelsToOperators()(changed)
    assert "nn.softmax" not in operators(back) and "nn.conv2d" in operators(back)
    np.testing.assert_allclose(run(changed, X), reference(), rtol=2e-5, atol=1e-6)


def test_a_lowered_module_that_was_changed_is_what_it_says():
    mod = convolutions()
    lowered = default_build_pipeline()(mod)
    assert structural_equal(unlowered(lowered), mod)
    other = lowered.clone()
    name = next(v for v, f in functions_of(other, PrimFunc) if "relu" in v.name_hint)
    other.update_func(name, other[name].with_attr("note", 1))
    assert unlowered(other) is other
    np.testing.assert_allclose(run(other, X), reference(), rtol=2e-5, atol=1e-6)


def test_results_without_a_target_are_as_without_memory():
    for pipeline in (zero_pipeline, default_build_pipeline):
        made = pipeline()(convolutions())
        with unrecorded():
            assert_structural_equal(made, pipeline()(convolutions()))


def test_the_same_argument_twice():
    @I.ir_module
    class Model:
        @script.function
        def main(x: script.Tensor((4, 8), "float32"), y: script.Tensor((4, 8), "float32")):
            with script.dataflow():
                a = script.add(x, x)
                b = script.subtract(y, x)
                c = script.divide(a, b)
                script.output(c)
            return c

    x, y = values((4, 8)), values((4, 8), 1)
    want = 2 * x.astype("float64") / (y.astype("float64") - x)
    np.testing.assert_allclose(run(zero_pipeline()(Model), x, y), want, rtol=1e-5)


# ---- tuned


@pytest.mark.slow
@pytest.mark.parametrize("how", ["tune_relax", "static_shape_tuning"])
def test_tuned_kernels_are_those_of_the_build(how, tmp_path):
    mod = convolutions()
    fused = zero_pipeline()(mod)
    if how == "tune_relax":
        database = ms.tune_relax(
            fused, {}, TARGET, str(tmp_path), 8, num_trials_per_iter=2, cost_model="random", seed=1
        )
        tuned = {r.workload.mod["main"].script() for r in database.get_all_tuning_records()}
        wanted = {t.mod["main"].script() for t in ms.extract_tasks(kernel_pipeline(TARGET)(mod), TARGET)}
        assert tuned and tuned <= wanted
        vm = relaxish.VirtualMachine(ms.compile_relax(database, fused, TARGET, {}), relaxish.cpu())
        made = vm["main"](relaxish.nd.array(X)).numpy()
        with database:
            np.testing.assert_allclose(run(fused, X), reference(), rtol=2e-5, atol=1e-6)
    else:
        made_mod = relax.get_pipeline(how, total_trials=8, target=TARGET, work_dir=str(tmp_path))(mod)
        assert any(isinstance(f, Function) for f in made_mod.functions.values())
        made = run(made_mod, X)
    np.testing.assert_allclose(made, reference(), rtol=2e-5, atol=1e-6)
