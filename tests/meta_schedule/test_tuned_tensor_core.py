"""Sketches for tensor cores: what they are made of, and their results for random decisions in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import interp, te, tir
from relaxish import meta_schedule as ms
from relaxish.ir import IRModule
from relaxish.ir.transform import PassContext
from relaxish.meta_schedule.schedule_rule import MultiLevelTilingTensorCore, ReuseType
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target
from relaxish.tir.schedule import Trace
from relaxish.tir.tensor_intrin import mma_m16n8k8
from relaxish.tir.tensor_intrin.cuda import get_wmma_intrin_group
from relaxish.tir.transform.base import LoweringError
from relaxish.tir.transform.steps import default_passes

TARGET = Target("nvidia/nvidia-a100")
BINDS = ["blockIdx.y", "blockIdx.x", "threadIdx.y"]
rng = np.random.default_rng(21)


def product(m, n, k, in_dtype, out_dtype, batch=None):
    """A product and the larger of its elements and zero."""
    outer = () if batch is None else (batch,)
    a = te.placeholder((*outer, m, k), name="A", dtype=in_dtype)
    b = te.placeholder((*outer, k, n), name="B", dtype=in_dtype)
    r = te.reduce_axis((0, k), name="r")

    def element(*at):
        left, right = a[(*at[:-1], r)], b[(*at[:-2], r, at[-1])]
        return te.sum(left.astype(out_dtype) * right.astype(out_dtype), axis=r)

    c = te.compute((*outer, m, n), element, name="C")
    return te.create_prim_func([a, b, te.compute(c.shape, lambda *i: tir.max(c[i], tir.const(0, out_dtype)), name="D")])


def wmma_rule(in_dtype="float16", out_dtype="float32", trans_b=False):
    group = get_wmma_intrin_group("shared.dyn", "shared.dyn", in_dtype, out_dtype, trans_b)
    return MultiLevelTilingTensorCore(
        [group],
        "SSSRRSRS",
        BINDS,
        4,
        [1, 2, 4],
        ReuseType("must", (4,), "shared.dyn"),
        ReuseType("must", (2,), "shared.dyn"),
    )


def sketches(func, rules, seed=1):
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs="cuda-tensorcore", mutator_probs={})
    context = ms.TuneContext(mod=func, target=TARGET, space_generator=space, task_name="t", rand_state=seed)
    found = context.generate_design_space()
    for postproc in space.postprocs:
        postproc._initialize_with_tune_context(context)
    return found, space.postprocs


def candidate(func, sketch, postprocs, seed):
    """The sketch with other decisions, or None where a postproc refuses them."""
    sch = tir.Schedule(func, seed=seed)
    Trace(sketch.trace.insts, {}).apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    return sch if all(postproc.apply(sch) for postproc in postprocs) else None


@pytest.mark.parametrize(
    "in_dtype, out_dtype, shape, batch",
    [
        ("float16", "float32", (64, 32, 48), None),
        ("int8", "int32", (32, 32, 64), None),
        ("float16", "float16", (32, 32, 32), 3),
    ],
)
def test_candidates_compute_the_product(in_dtype, out_dtype, shape, batch):
    m, n, k = shape
    func = product(m, n, k, in_dtype, out_dtype, batch)
    rules = [wmma_rule(in_dtype, out_dtype, True), *ms.ScheduleRule.create("cuda")[2:]]
    [sketch], postprocs = sketches(func, rules)
    outer = () if batch is None else (batch,)
    checked = 0
    for seed in range(1, 9):
        sch = candidate(func, sketch, postprocs, seed)
        if sch is None:
            continue
        if in_dtype == "int8":
            a, b = (rng.integers(-128, 128, s).astype(in_dtype) for s in ((*outer, m, k), (*outer, k, n)))
        else:
            a, b = (rng.standard_normal(s).astype(in_dtype) for s in ((*outer, m, k), (*outer, k, n)))
        out = np.empty((*outer, m, n), out_dtype)
        interp.run_prim_func(sch.mod["main"], [a, b, out])
        wanted = np.maximum(a.astype("float64") @ b.astype("float64"), 0)
        np.testing.assert_allclose(out, wanted, rtol=0, atol=0 if in_dtype == "int8" else 0.1)
        assert "tvm_mma_sync" in sch.mod["main"].script()
        checked += 1
    assert checked >= 3


def test_annotations():
    """The postproc finds what to tensorise by the annotations; padding makes odd shapes whole."""
    [sketch], _ = sketches(product(60, 30, 20, "float16", "float32"), [wmma_rule()])
    text = sketch.mod["main"].script()
    for name in (
        "wmma_sync_16x16x16_f16f16f32",
        "wmma_load_16x16x16_f16_a_shared_dyn",
        "wmma_store_16x16x16_f32_shared_dyn",
    ):
        assert f'"meta_schedule.auto_tensorize": "{name}"' in text
    assert '"meta_schedule.auto_tensorize_init": "wmma_fill_16x16x16_f32"' in text
    assert "if_then_else" in text


def test_trace_keeps_tile_sizes_as_variables():
    """The layout of the result follows the tile sizes when these are changed."""
    func = product(64, 64, 32, "float16", "float32")
    [sketch], _ = sketches(func, [wmma_rule()])
    assert "index_map=lambda i0, i1: (i0 // 16 // (v" in str(sketch.trace)
    copy = tir.Schedule(func)
    Trace.apply_json_to_schedule(sketch.trace.as_json(), copy)
    assert str(copy.trace) == str(sketch.trace)


def test_registers_and_pipeline():
    group = mma_m16n8k8.get_mma_intrin_group("global", "float32")
    rule = MultiLevelTilingTensorCore(
        [group], "SSSRRSRS", BINDS, 4, [1, 2, 4], ReuseType("must", (4,), "shared.dyn"), ReuseType("no", (), ""), True
    )
    [sketch], _ = sketches(product(128, 128, 64, "float16", "float32"), [rule])
    text = sketch.mod["main"].script()
    for part in ('"permuted_layout": "g2s_A"', '"permuted_layout": "s2l_B"', '"auto_copy": 1', '"vector_bytes": 16',
                 '"software_pipeline_async_stages": [0]', "mma_sync_m16n8k8_f16f16f32"):  # fmt: skip
        assert part in text


def lowered(func, asynchronous):
    """The default pipeline up to where host and device part."""
    with PassContext(config={"tir.use_async_copy": asynchronous}) as context:
        mod = tir.transform.BindTarget(TARGET.with_host("llvm"))(IRModule({"main": func}))
        for step in default_passes(context):
            if step.info.name == "tir.AnnotateDeviceRegions":
                break
            mod = step(mod)
    return mod["main"]


@pytest.mark.parametrize(
    "out_dtype, asynchronous", [pytest.param("float32", False, marks=pytest.mark.slow), ("float16", True)]
)
def test_register_candidates_compute_the_product(out_dtype, asynchronous):
    """Whatever the decisions: the kernel that the pipeline makes of them gives the product."""
    m, n, k = 64, 64, 64
    func = product(m, n, k, "float16", out_dtype)
    group = mma_m16n8k8.get_mma_intrin_group("global", out_dtype)
    rule = MultiLevelTilingTensorCore(
        [group], "SSSRRSRS", BINDS, 4, [1, 2, 4], ReuseType("must", (4,), "shared.dyn"), ReuseType("no", (), ""), True
    )
    [sketch], postprocs = sketches(func, [rule, *ms.ScheduleRule.create("cuda")[2:]])
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((m, k), (k, n)))
    wanted = np.maximum(a.astype("float64") @ b.astype("float64"), 0)
    checked = 0
    for seed in range(1, 12):
        sch = candidate(func, sketch, postprocs, seed)
        if sch is None:
            continue
        try:
            kernel = lowered(sch.mod["main"], asynchronous)
        except LoweringError as error:  # rows of 16 elements cannot be permuted; a build of such a candidate fails
            assert "Permuted Layout" in str(error)
            continue
        out = np.full((m, n), np.nan, out_dtype)
        interp.run_prim_func(kernel, [a, b, out])
        np.testing.assert_allclose(out, wanted, rtol=0, atol=0.1 if out_dtype == "float16" else 1e-4)
        assert "ptx_mma" in kernel.script() and ("ptx_cp_async" in kernel.script()) == asynchronous
        checked += 1
    assert checked >= 3


def test_other_blocks_are_left():
    func = product(64, 64, 64, "float32", "float32")
    [same], _ = sketches(func, [wmma_rule()])
    assert "tiling_structure" not in same.mod["main"].script()
    with pytest.raises(ValueError, match="store is not set"):
        MultiLevelTilingTensorCore([{"init": "wmma_fill_16x16x16_f32", "load_a": "wmma_load_16x16x16_f16_a_shared",
                                     "load_b": "wmma_load_16x16x16_f16_b_shared", "compute": "wmma_sync_16x16x16_f16f16f32"}], "SSSRRSRS")  # fmt: skip


def test_defaults_of_recent_gpus():
    rules = ms.ScheduleRule.create("cuda-tensorcore")
    assert [len(r.intrin_groups) for r in rules if isinstance(r, MultiLevelTilingTensorCore)] == [6, 2]
    assert len(rules) == len(ms.ScheduleRule.create("cuda")) + 2


def test_convolutions_written_for_groups_use_tensor_cores():
    """With one group the channel ``f // 32 * 32 + c`` is just ``c``."""
    func = te.create_prim_func(te_workload.conv2d_nhwc(1, 16, 16, 32, 32, 3, 1, 1, in_dtype="float16"))
    [sketch], _ = sketches(func, [wmma_rule()])
    assert "wmma_sync_16x16x16_f16f16f32" in sketch.mod["main"].script()
