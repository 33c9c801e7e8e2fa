"""The schedule rules of Winograd's convolutions: what they do to the transforms, and that the results stay right."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.schedule_rule import ApplyCustomRule
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.space_generation import generate_design_space
from relaxish.target import Target
from relaxish.testing import emulate_cuda
from relaxish.tir import ForKind, Schedule
from relaxish.tir.schedule import Trace
from relaxish.topi.nn import winograd

CPU, GPU = Target("llvm -num-cores 4"), Target("nvidia/geforce-rtx-3090", host="llvm")
RULES = [f"meta_schedule.{key}.conv2d_{layout}_winograd_{stage}"
         for key in ("cpu", "cuda") for layout in ("nchw", "nhwc") for stage in ("data_pack", "inverse")]  # fmt: skip


def convolution(layout, batch=1, size=(9, 9), channels=(3, 4), tile=4, level=None):
    """A small convolution with a transformed weight and a border of one."""
    (ci, co), span = channels, tile + 2
    data = (batch, *size, ci) if layout == "nhwc" else (batch, ci, *size)
    weight = (span, span, co, ci) if layout == "nhwc" else (span, span, ci, co)
    x, w = te.placeholder(data, "float32", name="x"), te.placeholder(weight, "float32", name="w")
    make = getattr(winograd, f"_conv2d_winograd_{layout}_impl")
    return te.create_prim_func([x, w, make(x, w, 1, 1, 1, "float32", tile, True, level)])


def arguments(func):
    rng = np.random.default_rng(0)
    shapes = [tuple(int(n) for n in func.buffer_map[p].shape) for p in func.params]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes[:2]] + [np.zeros(shapes[2], "float32")]


def run(func, arrays):
    """The function's result on the CPU, unscheduled."""
    held = [relaxish.nd.array(x) for x in arrays]
    relaxish.build(func, target="llvm")["main"](*held)
    return held[2].numpy()


def sketches(func, target, kind):
    rules = [
        rule for rule in ms.ScheduleRule.create(kind) if not isinstance(rule, ms.schedule_rule.RandomComputeLocation)
    ]
    return generate_design_space(kind, func, target, (), sch_rules=rules)


@pytest.mark.parametrize("name", RULES)
def test_registered(name):
    assert relaxish.get_global_func(name, allow_missing=True) is not None


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_gpu_rule_keeps_tiles_in_registers(layout):
    func = convolution(layout)
    (sketch,) = generate_design_space("cuda", func, GPU, (ApplyCustomRule,))
    scopes = {b.name: b.scope() for b in sketch.get(sketch.get_block("root")).alloc_buffers}
    assert scopes["input_tile_local"] == scopes["data_pack_local"] == "local"
    assert "data_pad" not in scopes and not {"A", "B"} & set(scopes)
    loops = [sketch.get(loop) for loop in sketch.get_loops("data_pack")]
    assert [loop.thread_binding.thread_tag for loop in loops[:2]] == ["blockIdx.x", "threadIdx.x"]
    assert [loop.kind for loop in loops[2:]] == [ForKind.UNROLLED] * 4


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_cpu_rule_samples_tiles_and_places(layout):
    (sketch,) = generate_design_space("llvm", convolution(layout), CPU, (ApplyCustomRule,))
    kinds = [inst.kind.name for inst in sketch.trace.insts if inst in sketch.trace.decisions]
    assert kinds == ["SamplePerfectTile"] * 4 + ["SampleComputeLocation"] * 2


def test_product_is_kept_in_registers_where_the_target_is_a_gpu():
    with GPU:
        on_gpu = te_workload.create_te_workload("C2D_WIN_NHWC", 0)
    for func, level in ((on_gpu, 3), (te_workload.create_te_workload("C2D_WIN_NHWC", 0), 2)):
        sch = Schedule(func)
        assert list(sch.get(sch.get_block("bgemm")).annotations["meta_schedule.write_cache_level"]) == [level]


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("size", [(8, 8), (9, 6)])
def test_cpu_sketches_compute_the_convolution(layout, size):
    func = convolution(layout, batch=2, size=size, tile=2)
    arrays = arguments(func)
    expected = run(func, arrays)
    sch = Schedule(func, seed=3)
    sketches(func, CPU, "llvm")[-1].trace.apply_to_schedule(sch, remove_postproc=True)
    np.testing.assert_allclose(run(sch.mod["main"], arrays), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "tile"),
    [("nchw", 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in [("nhwc", 2), ("nhwc", 4), ("nchw", 4)])],
)
def test_gpu_sketches_compute_the_convolution(layout, tile):
    """A random legal decision through the postprocs, with the emulator's checks on."""
    func = convolution(layout, size=(9, 6), channels=(4, 16), tile=tile, level=3)
    arrays = arguments(func)
    expected = run(func, arrays)
    space = ms.space_generator.PostOrderApply(sch_rules="cuda", postprocs="cuda", mutator_probs={})
    context = ms.TuneContext(func, target=GPU, space_generator=space, task_name="winograd")
    found = context.generate_design_space()
    for postproc in space.postprocs:
        postproc._initialize_with_tune_context(context)
    for sketch in found:
        for seed in range(1, 200):
            sch = Schedule(context.mod, seed=seed)
            Trace(sketch.trace.insts, {}).apply_to_schedule(sch, remove_postproc=True)
            sch.enter_postproc()
            if all(postproc.apply(sch) for postproc in space.postprocs):
                break
        else:
            pytest.fail("no legal decision in 200")
        arrays[2][...] = 0
        emulate_cuda(sch.mod["main"], *arrays, target=GPU)
        np.testing.assert_allclose(arrays[2], expected, rtol=1e-4, atol=1e-4)
