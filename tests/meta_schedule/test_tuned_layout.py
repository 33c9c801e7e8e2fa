"""Weights in the order the tuned program reads them, from the postproc to a model that runs."""

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax, te, tir
from relaxish.meta_schedule.postproc import RewriteLayout
from relaxish.meta_schedule.testing import te_workload
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def tiled(factors_i=(16, 4), factors_j=(4, 16), factors_k=(8, 8), fuse=False):
    func = te.create_prim_func(te_workload.matmul(64, 64, 64)).with_attr("layout_free_buffers", [1])
    sch = tir.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors_i)
    j0, j1 = sch.split(j, factors_j)
    k0, k1 = sch.split(k, factors_k)
    sch.reorder(i0, j0, k0, k1, i1, j1)
    if fuse:
        sch.fuse(i0, j0)
    return sch


def packed_indices(sch):
    copy = next(
        b
        for b in (sch.get(x) for x in sch.get_child_blocks(sch.get_block("root")))
        if "meta_schedule.layout_rewrite_preproc" in b.annotations
    )
    return [str(i) for i in copy.body.indices], [int(x) for x in copy.body.buffer.shape]


def test_tiles_become_dimensions():
    sch = tiled()
    assert RewriteLayout().apply(sch)
    assert packed_indices(sch) == (["v1 // 16", "v0 // 8", "v0 % 8", "v1 % 16"], [4, 8, 8, 16])


def test_digits_of_fused_loops_are_told_apart():
    sch = tiled(fuse=True)
    assert RewriteLayout().apply(sch)
    # The fused loop also walks over rows of A; only its lower digit concerns the weight.
    assert packed_indices(sch) == (["v1 // 16", "v0 // 8", "v0 % 8", "v1 % 16"], [4, 8, 8, 16])


def test_unmarked_buffers_stay():
    plain = tir.Schedule(tiled().mod["main"].without_attr("layout_free_buffers"))
    before = plain.mod
    assert RewriteLayout().apply(plain)
    relaxish.ir.assert_structural_equal(before, plain.mod)


def test_trace_repeats_the_rewriting():
    sch = tiled()
    assert RewriteLayout().apply(sch)
    again = tir.Schedule(te.create_prim_func(te_workload.matmul(64, 64, 64)).with_attr("layout_free_buffers", [1]))
    tir.schedule.Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    relaxish.ir.assert_structural_equal(sch.mod, again.mod)


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((32, 64), "float32"), w: R.Tensor((64, 96), "float32")) -> R.Tensor((32, 96), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


@pytest.fixture(scope="module")
def tuned_layer(tmp_path_factory):
    target = relaxish.Target("llvm -num-cores 1")
    mod = relax.transform.AttachAttrLayoutFreeBuffers()(relax.get_pipeline("zero")(Layer))
    work_dir = str(tmp_path_factory.mktemp("layer"))
    tasks, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        ms.extract_tasks(mod, target), work_dir, seed=1
    )
    # Without baselines: four trials need not beat the default schedule, which would then be applied instead.
    database = ms.tune_tasks(tasks=tasks, task_weights=weights, work_dir=work_dir, max_trials_global=4, baselines=False)
    with target, database, relaxish.transform.PassContext(opt_level=3):
        return relax.transform.MetaScheduleApplyDatabase()(mod), target


def test_the_database_is_applied(tuned_layer):
    mod, _ = tuned_layer
    func = next(f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    assert func.attrs["tir.is_scheduled"]
    assert "meta_schedule.layout_rewrite_preproc" in mod.script()


def test_weights_are_packed_once(tuned_layer):
    mod, target = tuned_layer
    mod = relax.transform.LiftTransformParams()(relax.transform.SplitLayoutRewritePreproc()(mod))
    names = {gv.name_hint for gv in mod.functions}
    assert "main_transform_params" in names and any(n.endswith("_weight_prepack") for n in names)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((32, 64)).astype("float32"), rng.standard_normal((64, 96)).astype("float32")
    machine = relax.VirtualMachine(relaxish.build(mod, target), relaxish.cpu())
    packed = machine["main_transform_params"]([relaxish.nd.array(w)])
    assert packed[0].numpy().ndim > 2
    out = machine["main"](relaxish.nd.array(x), *packed)
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


def test_candidates_are_timed_without_the_packing():
    from relaxish.meta_schedule.analysis.schedules import remove_weight_layout_rewrite

    sch = tiled()
    assert RewriteLayout().apply(sch)
    func = remove_weight_layout_rewrite(sch.mod)["main"]
    assert [int(x) for x in func.buffer_map[func.params[1]].shape] == [4, 8, 8, 16]
    assert "T.evaluate(0)" in func.script()  # the block that packed is still there, but does nothing


def test_layout_free_attribute_in_script():
    @T.prim_func
    def scaled(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8, 8), "float32"), c: T.Buffer((8, 8), "float32")):
        T.func_attr({"layout_free_buffers": [1]})
        for j, i in T.grid(8, 8):
            with T.block("scale"):
                vj, vi = T.axis.remap("SS", [j, i])
                c[vi, vj] = a[vi, vj] * b[vi, vj]

    sch = tir.Schedule(scaled)
    assert RewriteLayout().apply(sch)
    assert packed_indices(sch) == (["v1", "v0"], [8, 8])
