"""The rule of blocks annotated ``schedule_rule="layout_transform"`` on CUDA targets."""

import numpy as np
import pytest

from relaxish import interp, te, tir, topi
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.schedule.cuda.layout_transform import cuda_layout_transform_schedule_rule
from relaxish.target import Target

rng = np.random.default_rng(5)


def transposed(shape, source, destination, scaled=False):
    a = te.placeholder(shape, "float32", name="A")
    out = topi.layout_transform(a, source, destination, schedule_rule="layout_transform")
    if scaled:
        plain = out
        out = te.compute(plain.shape, lambda *i: plain(*i) * 2.0, name="scaled")
    return te.create_prim_func([a, out])


def test_the_rule_is_found_by_the_annotation():
    func = transposed((64, 64), "AB", "BA")
    space = ms.space_generator.PostOrderApply(sch_rules="cuda", postprocs=[], mutator_probs={})
    found = ms.TuneContext(
        func, target=Target("nvidia/nvidia-a100"), space_generator=space, task_name="t"
    ).generate_design_space()
    tiled = sum('scope="shared"' in sketch.mod.script() for sketch in found)
    assert tiled == len(found) - 1 == 31


@pytest.mark.parametrize(
    "shape, source, destination, scaled, reference",
    [
        ((2, 8, 5, 6), "NCHW", "NHWC", False, lambda a: a.transpose(0, 2, 3, 1)),
        ((2, 8, 5, 6), "NCHW", "NHWC", True, lambda a: a.transpose(0, 2, 3, 1) * 2),
        ((1, 16, 3, 4), "NCHW", "NCHW4c", False, lambda a: a.reshape(1, 4, 4, 3, 4).transpose(0, 1, 3, 4, 2)),
        ((33, 20), "AB", "BA", False, lambda a: a.T),
    ],
)
def test_tiled_schedules_compute_the_same(shape, source, destination, scaled, reference):
    func = transposed(shape, source, destination, scaled)
    sch = tir.Schedule(func)
    found = cuda_layout_transform_schedule_rule(sch, sch.get_block("T_layout_trans"))
    assert len(found) > 8
    a = rng.standard_normal(shape).astype("float32")
    wanted = reference(a)
    for variant in (found[1], found[4], found[-1]):
        binds = [i.attrs[0] for i in variant.trace.insts if i.kind.name == "Bind"]
        assert binds == ["blockIdx.x", "threadIdx.x", "threadIdx.x"]
        out = np.full(wanted.shape, np.nan, "float32")
        interp.run_prim_func(variant.mod["main"], [a, out])
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(
    "shape, source, destination",
    [
        ((2, 8, 5, 6), "NCHW", "NHWC"),
        ((1, 3, 7, 7), "NCHW", "NHWC"),
        ((2, 3, 5, 7), "NCHW", "CHWN"),
        ((17, 31), "AB", "BA"),
    ],
)
def test_any_tile_size_has_a_schedule(shape, source, destination):
    """Axes padded to several multiples at once: each bound takes some digits of a loop."""
    sch = tir.Schedule(transposed(shape, source, destination))
    found = cuda_layout_transform_schedule_rule(sch, sch.get_block("T_layout_trans"), [3, 14, 16, 27])
    assert len(found) == 4


def test_tiles_that_are_padded_twice_compute_the_same():
    func = transposed((2, 8, 5, 6), "NCHW", "NHWC")
    sch = tir.Schedule(func)
    found = cuda_layout_transform_schedule_rule(sch, sch.get_block("T_layout_trans"), [14, 24])
    assert len(found) == 2
    a = rng.standard_normal((2, 8, 5, 6)).astype("float32")
    for variant in found:
        out = np.full((2, 5, 6, 8), np.nan, "float32")
        interp.run_prim_func(variant.mod["main"], [a, out])
        np.testing.assert_array_equal(out, a.transpose(0, 2, 3, 1))


def test_unknown_rules_leave_the_block_to_the_others():
    a = te.placeholder((64, 32), "float32", name="A")
    func = te.create_prim_func([a, topi.layout_transform(a, "AB", "BA", schedule_rule="nobodys")])
    space = ms.space_generator.PostOrderApply(sch_rules="cuda", postprocs=[], mutator_probs={})
    [sketch] = ms.TuneContext(
        func, target=Target("nvidia/nvidia-a100"), space_generator=space, task_name="t"
    ).generate_design_space()
    assert "threadIdx.x" in sketch.mod.script() and '"schedule_rule"' not in sketch.mod.script()
