"""Lowered kernels in the emulator, which looks for races, accesses out of bounds and deadlocks: clusters and sketches, too."""

from __future__ import annotations

import numpy as np
import pytest
from test_hopper_tiles import SMALL, convolution, matrices, product, scheduled, values

from relaxish import meta_schedule as ms
from relaxish import tir
from relaxish.dlight.gpu.matmul_hopper import HopperConfig
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.testing import emulate_cuda
from relaxish.tir.schedule import Trace
from relaxish.tir.schedule.testing import verify_trace_roundtrip
from relaxish.tir.transform.lower_hopper import has_tiles

TARGET = Target("nvidia/nvidia-h100", host="llvm")


def check(func, tiles, reference):
    found = values(func)
    emulate_cuda(tiles, *found, target=TARGET, check=True)
    *inputs, output = found
    wanted = reference(*[x.astype("float64") for x in inputs]).astype(output.dtype)
    np.testing.assert_array_equal(wanted, output)


@pytest.mark.parametrize(
    "shape, options, config",
    [
        ((128, 64, 192), {"tail": "cast"}, HopperConfig(rows=128, columns=64, stages=3, persistent=0)),
        ((128, 64, 192), {"trans_b": False, "tail": "bias"}, SMALL),
        ((100, 77, 131), {"tail": "bias"}, SMALL),
        ((64, 32, 256), {"in_dtype": "float8_e4m3fn"}, SMALL),
        ((256, 64, 192), {"tail": "cast"}, HopperConfig(rows=64, columns=64, stages=2, warpgroups=1, persistent=4, cluster=2)),
        ((256, 64, 192), {"trans_b": False}, HopperConfig(rows=64, columns=64, stages=2, warpgroups=1, persistent=2, cluster=2)),
        ((256, 512, 256), {"tail": "bias"}, HopperConfig(cluster=2)),
    ],
)
def test_no_races(shape, options, config):
    func = product(*shape, **options)
    check(func, scheduled(func, config), matrices(**options))


def sketch(func):
    """The tuning context of a function, and its sketch of whole tiles."""
    context = ms.TuneContext(
        mod=func, target=TARGET, space_generator=ms.space_generator.PostOrderApply(), task_name="t", rand_state=1
    )
    found = [s for s in context.generate_design_space() if has_tiles(s.mod["main"].body)]
    return context, found


def test_random_decisions():
    """Every decision that passes the postprocs gives the product."""
    func = product(256, 192, 256, tail="bias")
    context, [made] = sketch(func)
    accepted = 0
    for seed in range(1, 13):
        sch = tir.Schedule(context.mod, seed=seed)
        Trace(made.trace.insts, {}).apply_to_schedule(sch, remove_postproc=True)
        if all(postproc.apply(sch) for postproc in context.space_generator.postprocs):
            accepted += 1
            check(func, sch.mod["main"], matrices())
    assert accepted >= 4


def test_convolution_has_a_sketch():
    func = convolution(1, 8, 32, 64, 3, 1, 1)
    _, [made] = sketch(func)
    verify_trace_roundtrip(made, func)


def test_other_targets_have_none():
    func = product(256, 192, 256)
    context = ms.TuneContext(
        mod=IRModule({"main": func}), target=Target("nvidia/nvidia-a100"), task_name="t",
        space_generator=ms.space_generator.PostOrderApply(), rand_state=1,
    )  # fmt: skip
    assert not any(has_tiles(s.mod["main"].body) for s in context.generate_design_space())
    assert not sketch(product(64, 64, 64, in_dtype="float32"))[1]


def test_masks_agree_with_lowering():
    """The vectorised search knows without lowering which decisions fit."""
    from relaxish.meta_schedule.search_strategy.sketch import VectorSketch

    context, [made] = sketch(product(1024, 1024, 512))
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    assert variant is not None, columns.refused
    rows = columns.table.sample(np.random.default_rng(3), 40)
    real = []
    for row in rows:
        sch = tir.Schedule(context.mod, seed=1)
        columns.table.to_trace(row, ()).apply_to_schedule(sch, remove_postproc=True)
        real.append(all(postproc.apply(sch) for postproc in context.space_generator.postprocs))
    assert variant.valid(rows).tolist() == real and 5 < sum(real) < 40
    seconds = variant.compiled.estimate(rows)
    assert seconds.shape == (40,) and (seconds > 0).all()
