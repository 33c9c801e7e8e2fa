"""A depth shared by the blocks of a cluster, and copies by threads that do not wait for them."""

from __future__ import annotations

import numpy as np
import pytest
from test_hopper_emulation import TARGET, check, sketch
from test_hopper_tiles import SMALL, convolution, im2col, matrices, product, scheduled, values

from relaxish import relax, tir
from relaxish.backend.cuda.build import lower_for_device
from relaxish.backend.cuda.codegen.printer import cuda_source
from relaxish.backend.emulator import DataRaceError
from relaxish.dlight.gpu import MatmulHopper
from relaxish.carver.warpgroups import HopperConfig, configs
from relaxish.ir import IRModule
from relaxish.meta_schedule.search_strategy.sketch import VectorSketch
from relaxish.script import relax as R
from relaxish.testing import emulate_cuda
from relaxish.tir.stmt import Evaluate
from relaxish.tir.transform.base import StmtExprMutator
from relaxish.tir.transform.hopper.statements import do
from relaxish.tir.transform.hopper.tiles import SPLIT, HopperError
from relaxish.tir.transform.hopper.lower import lower_tiles


def tiles(rows, columns, warpgroups=1, **options):
    return HopperConfig(rows=rows, columns=columns, warpgroups=warpgroups, **{"stages": 4, **options})


@pytest.mark.parametrize(
    "shape, options, config",
    [
        ((128, 64, 512), {"tail": "bias"}, tiles(64, 64, split=4)),
        ((100, 77, 520), {"tail": "cast"}, tiles(64, 64, stages=3, split=2)),  # odd sizes: 9 steps, copied by threads
        ((128, 64, 64 * 7), {"tail": "bias"}, tiles(128, 64, 2, split=3)),  # 2, 2, 3 steps; 24 quads
        ((64, 48, 64 * 5), {"trans_b": False}, tiles(64, 48, stages=3, split=5)),  # 6 quads for 5 blocks
        ((64, 32, 64 * 9), {"in_dtype": "int8", "out_dtype": "int32"}, tiles(64, 32, split=2)),
        ((64, 32, 64 * 8), {"batch": 3, "tail": "cast"}, tiles(64, 32, split=8)),
    ],
)
def test_shared_depth(shape, options, config):
    func = product(*shape, **options)
    check(func, scheduled(func, config), matrices(**options))


@pytest.mark.parametrize(
    "case, config",
    [
        ((1, 8, 32, 64, 3, 1, 1), SMALL),  # two stages: nothing can be under way
        ((2, 7, 16, 40, 3, 1, 1), tiles(64, 32, stages=5, persistent=2)),  # arrivals lag from one tile into the next
        ((1, 9, 20, 32, 3, 2, 1), SMALL),  # 20 channels: element by element
        ((1, 7, 64, 64, 3, 1, 1), tiles(64, 64, split=4)),
        ((1, 14, 64, 64, 3, 2, 1), tiles(128, 32, 2, persistent=0)),
        ((1, 12, 32, 64, 1, 2, 0), tiles(64, 32, stages=8)),  # fewer steps than copies that may be under way
    ],
)
def test_convolutions(case, config):
    func = convolution(*case)
    made = scheduled(func, config)
    assert ("T.ptx_cp_async" in lower_tiles(made).script()) is (case[2] % 8 == 0)
    check(func, made, im2col(case[1], *case[4:]))


class _Without(StmtExprMutator):
    """A program without some of its statements."""

    def __init__(self, name, keep=lambda count: False):
        self.name, self.keep, self.count = name, keep, 0

    def visit_Evaluate(self, stmt):
        if getattr(getattr(stmt.value, "op", None), "name", "") == f"tir.{self.name}":
            self.count += 1
            if not self.keep(self.count):
                return Evaluate(tir.IntImm("int32", 0))
        return self.default_visit(stmt)


@pytest.mark.parametrize(
    "name, kept",
    [
        ("ptx_cluster_wait", lambda count: count != 2),  # consumers read what nobody may have written
        ("ptx_named_barrier_sync", lambda count: False),  # sums over tiles that other warps still read
    ],
)
def test_what_orders_shared_sums_is_needed(name, kept):
    func = product(128, 77, 520, tail="cast")
    lowered = lower_tiles(scheduled(func, tiles(128, 64, 2, stages=3, split=2)))
    broken = lowered.with_body(_Without(name, kept).visit(lowered.body))
    with pytest.raises(DataRaceError):
        emulate_cuda(broken, *values(func), target=TARGET, check=True)


@pytest.mark.parametrize("name", ["ptx_fence_proxy_async", "ptx_wait_group"])
def test_what_orders_late_copies_is_needed(name):
    func = convolution(1, 8, 32, 64, 3, 1, 1)
    lowered = lower_tiles(scheduled(func, tiles(64, 32)))
    started = 1 if name == "ptx_fence_proxy_async" else 0  # the first makes the barriers visible
    broken = lowered.with_body(_Without(name, lambda count: count <= started).visit(lowered.body))
    with pytest.raises(DataRaceError):
        emulate_cuda(broken, *values(func), target=TARGET, check=True)


@pytest.mark.parametrize(
    "shape, options, config, reason",
    [
        ((64, 64, 128), {}, tiles(64, 64, split=4), "cannot be shared by 4 blocks"),
        ((64, 64, 1024), {}, tiles(64, 64, split=16), "cannot be shared by 16 blocks"),
        ((64, 64, 512), {"out_dtype": "float16"}, tiles(64, 64, split=2), "32 bits"),
        ((128, 256, 512), {}, HopperConfig(stages=2, split=2), "do not fit the ring"),
    ],
)
def test_refused(shape, options, config, reason):
    with pytest.raises(HopperError, match=reason):
        lower_tiles(scheduled(product(*shape, **options), config))


@pytest.mark.parametrize(
    "sides, blocks",
    [
        ((128, 768, 3072), 96),  # BERT's second dense layer: without shared depths 24 tiles of 64 x 64
        ((49, 512, 4608), 64),  # the last 3 x 3 convolution of ResNet-50
        ((196, 256, 2304), 64),
    ],
)
def test_few_tiles_share_their_depth(sides, blocks):
    best = configs([1, *sides])[0]
    rows, columns, depth = sides
    assert best.split > 1
    assert blocks <= -(-rows // best.rows) * -(-columns // best.columns) * best.split <= 132
    sch = MatmulHopper().apply(product(*sides, tail="bias"), TARGET, False)
    assert f'"{SPLIT}": {best.split}' in sch.mod["main"].script()


def test_many_tiles_and_unknown_depths_do_not():
    assert all(c.split == 1 for c in configs([1, 4096, 4096, None]))
    assert configs([1, 4096, 4096, 4096])[0].split == 1
    assert configs([1, 128, 3072, 768])[0].split == 1


def test_masks_know_shared_depths():
    """The vectorised search knows without lowering who may share a depth."""
    context, [made] = sketch(product(128, 256, 512))
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    assert variant is not None, columns.refused
    rows = columns.table.sample(np.random.default_rng(5), 40)
    real, splits = [], set()
    for row in rows:
        sch = tir.Schedule(context.mod, seed=1)
        columns.table.to_trace(row, ()).apply_to_schedule(sch, remove_postproc=True)
        real.append(all(postproc.apply(sch) for postproc in context.space_generator.postprocs))
        if real[-1]:
            text = sch.mod["main"].script()
            splits.add(
                int(text.partition(f'"{SPLIT}": ')[2].partition(",")[0].partition("}")[0].removeprefix("T.int32("))
            )
    assert variant.valid(rows).tolist() == real and len(splits) > 2


def test_bounds_of_an_image_are_compared_in_32_bits():
    """Shapes of models have 64 bits; what fits 32 is divided and compared in 32."""
    x, w = relax.Var("x", R.Tensor((1, 14, 14, 64), "float16")), relax.Var("w", R.Tensor((64, 3, 3, 64), "float16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        conv = relax.op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="OHWI", out_dtype="float32")
        builder.emit_func_output(builder.emit(conv))
    func = relax.transform.LegalizeOps()(builder.get())["conv2d"]
    made = MatmulHopper().apply(func, TARGET, False).mod["main"].with_attr("global_symbol", "main")
    _, device = lower_for_device(IRModule({"main": made}), TARGET)
    [copies] = [
        line for line in cuda_source(device).splitlines() if "copy_async<16>(" in line and "RX_DEVICE" not in line
    ]
    assert "< 15" in copies and "long long" not in copies


class _Relaxed(StmtExprMutator):
    """A program whose arrivals at the cluster's barrier publish nothing."""

    def visit_Evaluate(self, stmt):
        if getattr(getattr(stmt.value, "op", None), "name", "") == "tir.ptx_cluster_arrive":
            return do("ptx_cluster_arrive_relaxed")
        return self.default_visit(stmt)


def test_shared_sums_must_be_published():
    func = product(128, 77, 520, tail="cast")
    lowered = lower_tiles(scheduled(func, tiles(128, 64, 2, stages=3, split=2)))
    emulate_cuda(lowered, *values(func), target=TARGET, check=True)
    broken = lowered.with_body(_Relaxed().visit(lowered.body))
    with pytest.raises(DataRaceError):
        emulate_cuda(broken, *values(func), target=TARGET, check=True)
