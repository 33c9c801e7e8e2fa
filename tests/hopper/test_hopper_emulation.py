"""Lowered kernels in the emulator, which looks for races, accesses out of bounds and deadlocks: clusters and sketches, too."""

from __future__ import annotations

import numpy as np
import pytest
from test_hopper_tiles import SMALL, convolution, matrices, product, scheduled, values

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax, te, tir
from relaxish.dlight.gpu import MatmulHopper
from relaxish.dlight.gpu.matmul_hopper import HopperConfig
from relaxish.ir import IRModule
from relaxish.meta_schedule.mutator import MutateTileSize
from relaxish.meta_schedule.search_strategy.sketch import VectorSketch
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target
from relaxish.testing import emulate_cuda, use_cuda_provider
from relaxish.tir.schedule import Trace
from relaxish.tir.schedule.testing import verify_trace_roundtrip
from relaxish.tir.transform.hopper.tiles import CLUSTER, CLUSTER_COLUMNS
from relaxish.tir.transform.hopper.lower import has_tiles, lower_tiles, tile_programs

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
        ((64, 40, 131), {"in_dtype": "float8_e4m3fn", "tail": "cast"}, SMALL),
        (
            (256, 64, 192),
            {"tail": "cast"},
            HopperConfig(rows=64, columns=64, stages=2, warpgroups=1, persistent=4, cluster=2),
        ),
        (
            (256, 64, 192),
            {"trans_b": False},
            HopperConfig(rows=64, columns=64, stages=2, warpgroups=1, persistent=2, cluster=2),
        ),
        ((256, 512, 256), {"tail": "bias"}, HopperConfig(cluster=2)),
    ],
)
def test_no_races(shape, options, config):
    func = product(*shape, **options)
    check(func, scheduled(func, config), matrices(**options))


def test_consumers_outside_of_the_product():
    """What cannot be inlined becomes kernels of its own; the product goes through memory, by bulk stores."""
    a, b = (te.placeholder((64, 64), "float16", name=name) for name in "AB")
    r = te.reduce_axis((0, 64), name="r")
    c = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), axis=r), name="C"
    )
    func = te.create_prim_func(
        [
            a,
            b,
            te.compute(c.shape, lambda *at: c[at] * 2.0, name="D"),
            te.compute(c.shape, lambda *at: c[at] + 1.0, name="E"),
        ]
    )
    sch = MatmulHopper().apply(func, TARGET, False)
    found = values(func)
    emulate_cuda(sch.mod["main"], *found, target=TARGET, check=True)
    wanted = found[0].astype("float32") @ found[1].astype("float32").T
    np.testing.assert_array_equal(found[2], wanted * 2)
    np.testing.assert_array_equal(found[3], wanted + 1)


@I.ir_module
class Layer:
    """One dense layer, any number of rows."""

    @R.function
    def main(
        x: R.Tensor(("n", 128), "float16"), w: R.Tensor((256, 128), "float16"), b: R.Tensor((256,), "float16")
    ) -> R.Tensor(("n", 256), "float16"):
        with R.dataflow():
            y = R.astype(R.matmul(x, R.permute_dims(w), out_dtype="float32"), "float16")
            out = R.nn.relu(R.add(y, b))
            R.output(out)
        return out


def test_layer_on_the_emulated_device():
    """Default schedules, host code with tensor maps, the virtual machine: a dynamic number of rows."""
    rng = np.random.default_rng(2)
    with use_cuda_provider("emulator"):
        executable = relaxish.build(Layer, target=TARGET)
        [device_part] = executable.mod.imported_modules[0].imported_modules
        assert "wgmma_ss_" in device_part.get_source("cu")
        machine = relax.VirtualMachine(executable, relaxish.cuda(0))
        for rows in (40, 130, 0):
            x, w, b = (
                (rng.integers(-4, 5, shape) / 4).astype("float16") for shape in ((rows, 128), (256, 128), (256,))
            )
            made = machine["main"](*[relaxish.nd.array(a, relaxish.cuda(0)) for a in (x, w, b)]).numpy()
            wanted = (x.astype("float32") @ w.astype("float32").T).astype("float16") + b
            np.testing.assert_array_equal(made, np.maximum(wanted, 0))


def sketch(func, target=TARGET):
    """The tuning context of a function, and its sketch of whole tiles."""
    context = ms.TuneContext(
        mod=func, target=target, space_generator=ms.space_generator.PostOrderApply(), task_name="t", rand_state=1
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


def test_estimate_prefers_tiles_that_keep_the_products_busy():
    """128 x 256 results, 128 bytes of the depth, two warpgroups, pairs of blocks: what feeding the tensor cores takes."""
    context, [made] = sketch(product(4096, 4096, 4096, tail="cast"))
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    rows = variant.sample(np.random.default_rng(0), 3000)
    best = rows[int(np.argmin(variant.compiled.estimate(rows)))]
    sch = tir.Schedule(context.mod, seed=1)
    columns.table.to_trace(best, ()).apply_to_schedule(sch, remove_postproc=True)
    [program] = tile_programs(sch.mod["main"])
    assert program.shape == (128, 256, 64) or program.shape == (256, 128, 64)
    text = lower_tiles(sch.mod["main"]).script()
    assert 'T.launch_thread("threadIdx.x", 384)' in text
    assert program.options[CLUSTER] * program.options[CLUSTER_COLUMNS] in (2, 4)
    assert "T.shift_left" in text or ", 3, " in text  # multicast to those that share rows or columns


def every(context, columns, rows):
    """The schedules of rows, None where a postproc refuses one."""
    for row in rows:
        sch = tir.Schedule(context.mod, seed=1)
        columns.table.to_trace(row, ()).apply_to_schedule(sch, remove_postproc=True)
        yield sch if all(postproc.apply(sch) for postproc in context.space_generator.postprocs) else None


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1024, 1024, 512), (49, 512, 4608), (100, 4096, 192), (128, 77, 520), (64, 32, 128)])
@pytest.mark.parametrize("options", [{"tail": "cast"}, {"in_dtype": "int8", "out_dtype": "int32"}])
def test_masks_of_hundreds_of_rows(shape, options):
    context, [made] = sketch(product(*shape, **options))
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    assert variant is not None, columns.refused
    rows = columns.table.sample(np.random.default_rng(11), 150)
    real = [sch is not None for sch in every(context, columns, rows)]
    assert variant.valid(rows).tolist() == real and 10 < sum(real) < 140


def test_all_columns_are_drawn_for_powers_of_two():
    """Tiles that run over the right edge, three warpgroups, and every option; mutation reaches them all, too."""
    context, [made] = sketch(product(1024, 1024, 512, tail="cast"))
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    rng = np.random.default_rng(0)
    rows = variant.sample(rng, 2000)
    children, mutated = rows[:1].repeat(200, axis=0), []
    for _ in range(40):
        MutateTileSize().on_columns(columns.table, rng, children)
        mutated.append(children[variant.valid(children)])
    for taken in (rows, np.concatenate(mutated)):
        for _, at, choices, _ in columns.table.categories[:-1]:
            assert set(taken[:, at]) == set(range(len(choices))), choices
    drawn = columns.table.categories[1]
    assert {drawn[2][row[drawn[1]]] * 32 for row in rows} >= {96, 160, 192}


def test_processors_come_from_the_target():
    limits = {"max_shared_memory_per_block": 49152, "max_threads_per_block": 1024}
    small = Target({"kind": "cuda", "arch": "sm_90a", "multi_processor_count": 78, **limits}, host="llvm")
    context, [made] = sketch(product(512, 512, 256), small)
    columns = VectorSketch(context, made.trace)
    assert [78, 72, 64, 0] in [choices for _, _, choices, _ in columns.table.categories]
    assert columns.variant(()) is not None, columns.refused


@pytest.mark.parametrize(
    "shape, options",
    [((256, 256, 256), {"tail": "bias"}), ((192, 136, 200), {"tail": "cast", "trans_b": False})],
)
def test_random_rows_in_the_emulator(shape, options):
    """Whatever the masks admit computes the product, without a race; what it stands for survives a round trip."""
    func = product(*shape, **options)
    context, [made] = sketch(func)
    columns = VectorSketch(context, made.trace)
    variant = columns.variant(())
    assert variant is not None, columns.refused
    rows = variant.sample(np.random.default_rng(8), 6)
    for row, sch in zip(rows, every(context, columns, rows), strict=True):
        assert sch is not None
        again, _ = columns.table.from_trace(columns.table.to_trace(row, ()))
        assert (again == row).all()
        check(func, sch.mod["main"], matrices(**options))
        verify_trace_roundtrip(sch, context.mod)
