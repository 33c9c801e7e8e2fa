"""Hints by estimated time: what the device can run, and what anybody would expect of them."""

import numpy as np
import pytest
import torch

from relaxish import Target, carver, dlight, te, topi
from relaxish.carver import Access, Axis, CpuModel, Product, TilingModel, recommend
from relaxish.carver.arch import get_arch
from relaxish.carver.block_facts import facts_of
from relaxish.carver.cpu_hints import CpuTile
from relaxish.dlight.cpu.variants import apply_tile
from relaxish.driver import build_tir
from relaxish.ir.functor import all_nodes
from relaxish.runtime import nd
from relaxish.target.shared_memory import opt_in_shared_memory
from relaxish.tir import Block, For, ForKind
from relaxish.tir.schedule import Schedule

A100 = "nvidia/nvidia-a100"
ONE_CORE = Target("llvm -num-cores=1")
CPU = Target("llvm -mcpu=skylake-avx512 -num-cores=2")


@pytest.mark.parametrize(
    "target", [A100, "nvidia/geforce-rtx-4090", "nvidia/nvidia-t4", "nvidia/nvidia-h100", "rocm -mcpu=gfx942"]
)
@pytest.mark.parametrize("sides", [(1024, 1024, 1024), (128, 768, 3072), (1000, 333, 520), (16, 4096, 64)])
def test_products_fit_the_device(target, sides):
    arch = get_arch(target)
    hints = recommend(carver.MatmulTemplate(*sides, accum_dtype="float32"), target, 10)
    assert 0 < len(hints) <= 10
    assert [h.cost for h in hints] == sorted(h.cost for h in hints)
    most = max(arch.smem_cap, opt_in_shared_memory(str(arch.target.attrs.get("arch", ""))))
    for hint in hints:
        assert hint.use_tc and hint.threads <= arch.target.max_num_threads
        assert sum(hint.block) * hint.rstep[0] * 2 * hint.pipeline_stage <= most
        assert all(b % w == 0 and w % 16 == 0 for b, w in zip(hint.block, hint.warp, strict=True))


def test_large_products_have_large_tiles_and_small_ones_many():
    def best(*sides, target=A100):
        return recommend(Product(1, *sides), target, 1)[0]

    def blocks(hint, *sides):
        return int(np.prod([-(-n // b) for n, b in zip(sides, hint.block, strict=True)]))

    assert np.prod(best(4096, 4096, 4096).block) >= 128 * 128
    assert blocks(best(128, 768, 768), 128, 768) >= 54  # at least half of 108 processors have work
    assert blocks(best(256, 256, 4096), 256, 256) >= 32
    # Operands are fetched ahead where the device can do it.
    assert best(2048, 2048, 2048).pipeline_stage >= 2 and best(2048, 2048, 2048).use_async
    assert not best(2048, 2048, 2048, target="nvidia/nvidia-t4").use_async
    assert recommend(Product(1, 8192, 8192, 8192), A100, 1)[0].rasterization_plan.panel_width == 10


def test_more_work_never_takes_less_time():
    rng = np.random.default_rng(11)
    for target in (A100, "nvidia/nvidia-h100", "nvidia/nvidia-t4"):
        for _ in range(20):
            small = [int(n) for n in rng.integers(1, 60, 3) * 32]
            large = [2 * n for n in small]
            costs = [recommend(Product(1, *sides), target, 1)[0].cost for sides in (small, large)]
            assert costs[0] <= costs[1]


def test_hopper_hints_are_the_default_schedules():
    from relaxish.carver.warpgroups import configs

    for sides in ((1, 4096, 4096, 4096), (1, 128, 768, 3072), (None, None, 1024, 512), (12, 300, 260, 64)):
        hint, config = recommend(Product(*sides), "nvidia/nvidia-h100", 1)[0], configs(sides)[0]
        assert hint.block == [config.rows, config.columns] and hint.pipeline_stage == config.stages
        assert (hint.warpgroups, hint.cluster, hint.cluster_columns, hint.split_k_factor) == (
            config.warpgroups, config.cluster, config.cluster_columns, config.split,
        )  # fmt: skip
    first = recommend(Product(1, 128, 768, 3072), "nvidia/nvidia-h100", 1)[0]
    assert first.split_k_factor > 1 and first.warpgroups * 128 == first.threads


@pytest.mark.parametrize("target", [A100, "metal", "rocm -mcpu=gfx1030", "vulkan"])
def test_functions_of_threads(target):
    for template in (
        carver.ElementwiseTemplate([512, 768], "float32"), carver.GeneralReductionTemplate("SRS", [32, 256, 64], "float32"),
        carver.GEMVTemplate(1024, 2048), carver.MatmulTemplate(256, 512, 384, in_dtype="float32", out_dtype="float32", accum_dtype="float32"),
    ):  # fmt: skip
        hints = recommend(template, target, 5)
        assert hints and [h.cost for h in hints] == sorted(h.cost for h in hints)
        for hint in hints:
            assert 1 <= hint.threads <= get_arch(target).target.max_num_threads


# ---- CPUs


def matmul(n, m, k, trans_b=False):
    a = te.placeholder((n, k), "float32", name="A")
    b = te.placeholder((m, k) if trans_b else (k, m), "float32", name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * (b[j, r] if trans_b else b[r, j]), axis=r), name="C")
    return te.create_prim_func([a, b, c])


def run(func, target, *arrays):
    mod = build_tir(func.with_attr("tir.is_scheduled", True), target=target)
    out = nd.array(np.full((arrays[0].shape[0], arrays[1].shape[1]), np.nan, "float32"))
    mod["main"](*(nd.array(a) for a in arrays), out)
    return out.numpy()


@pytest.mark.parametrize("sides", [(64, 96, 80), (128, 256, 512), (53, 64, 100), (96, 1024, 1024)])
@pytest.mark.parametrize("cores", [1, 4])
def test_every_cpu_hint_is_right(sides, cores):
    n, m, k = sides
    target = Target("llvm").with_attrs(num_cores=cores)
    rng = np.random.default_rng(n + cores)
    a, b = rng.standard_normal((n, k), "float32"), rng.standard_normal((k, m), "float32")
    func, wanted = matmul(n, m, k), a @ b
    hints = recommend(func, target, 200)
    assert len(hints) > 10
    kinds = {}
    for hint in hints:  # one of each kind
        kinds.setdefault((bool(hint.packed), hint.rstep[0] == k, hint.block[0] == n, hint.order), hint)
    for hint in kinds.values():
        sch = dlight.cpu.schedule_with_hint(func, hint, target)
        np.testing.assert_allclose(run(sch.mod["main"], target, a, b), wanted, rtol=1e-3, atol=1e-3)
        again = Schedule(func)
        sch.trace.apply_to_schedule(again, remove_postproc=False)
        assert again.mod["main"].script() == sch.mod["main"].script()


def test_numbers_of_a_cpu_hint():
    hint = recommend(matmul(512, 512, 512), CPU, 1)[0]
    rows, columns = hint.thread
    assert hint.vectorize == {"C": 16} and columns % 16 == 0 and rows * columns // 16 >= 8
    assert hint.packed == ["B"] and 1 in hint.parallel and hint.cost > 512**3 / 16 / 2
    assert carver.Hint.from_dict(hint.to_dict()) == hint
    # Many cores and few strips: tasks take part of the rows, too.
    wide = recommend(matmul(2048, 64, 256), CPU.with_attrs(num_cores=32), 10)
    assert any(h.block[0] < 2048 for h in wide)


def test_operands_are_packed_where_it_pays():
    def packed(func, **options):
        return recommend(func, CPU, 1, **options)[0].packed

    assert packed(matmul(1024, 1024, 1024)) == ["B"]
    assert packed(matmul(8, 1024, 1024)) == []  # eight rows do not pay for a copy
    assert packed(matmul(1024, 1024, 1024), may_pack=False) == []
    assert packed(matmul(1024, 1024, 1024), prepacked=["B"]) == []
    assert packed(matmul(1024, 1024, 1024).with_attr("layout_free_buffers", [1])) == []


def test_constant_weights_are_packed_once_and_not_in_the_kernel():
    from relaxish import relax

    rng = np.random.default_rng(2)
    weight = rng.standard_normal((1024, 1024), "float32")

    def program(constant):
        bb = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo((256, 1024), "float32"))
        w = relax.Var("w", relax.TensorStructInfo((1024, 1024), "float32"))
        with bb.function("main", [x] if constant else [x, w]):
            gvar = bb.add_func(matmul(256, 1024, 1024), "matmul")
            second = relax.const(weight) if constant else w
            out = bb.emit(relax.call_tir(gvar, [x, second], relax.TensorStructInfo((256, 1024), "float32")))
            bb.emit_func_output(out)
        return bb.get()

    def kernel(mod):
        with CPU:
            made = dlight.ApplyDefaultCPUSchedule()(mod)
        (func,) = (f for g, f in made.functions.items() if g.name_hint == "matmul")
        assert not any("constant_params" in key for key in func.attrs)
        return func

    ahead, inside = kernel(program(True)), kernel(program(False))
    assert len(ahead.buffer_map[ahead.params[1]].shape) == 3  # strips, made when the model is compiled
    assert len(inside.buffer_map[inside.params[1]].shape) == 2 and "B_global" in inside.script()
    assert "B_global" not in ahead.script()


def test_products_by_the_transposed():
    func = matmul(128, 256, 512, trans_b=True)
    hint = recommend(func, CPU, 1)[0]
    assert hint.thread[1] % 16 == 0
    target = Target("llvm")
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((128, 512), "float32"), rng.standard_normal((256, 512), "float32")
    sch = dlight.cpu.Contraction().apply(func, target, False)
    mod = build_tir(sch.mod["main"].with_attr("tir.is_scheduled", True), target=target)
    out = nd.array(np.zeros((128, 256), "float32"))
    mod["main"](nd.array(a), nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b.T, rtol=1e-3, atol=1e-3)


def test_a_hint_for_another_function_says_so():
    func = te.create_prim_func(_sum_of_rows())  # its only axis does not run along the operand
    with pytest.raises(ValueError, match="by rows"):
        recommend(func, CPU, 1)
    hint = carver.Hint.from_dict({"block": [8], "thread": [8], "rstep": [4]})
    from relaxish.carver.block_facts import facts_of

    block = matmul(16, 16, 16).body.block.body.body.body.body.block
    with pytest.raises(ValueError, match="ask carver.recommend"):
        CpuTile.of(hint, facts_of(block))


def _sum_of_rows():
    a = te.placeholder((64, 64), "float32", name="A")
    k = te.reduce_axis((0, 64), name="k")
    return [a, te.compute((64,), lambda i: te.sum(a[i, k], axis=k), name="B")]


def test_model_knows_pages_and_reuse():
    """Rows a page apart cost lookups; a nest that fits a cache is not fetched again by the loop around it."""
    from relaxish.carver import Access, Axis, TilingModel

    axes = [Axis(512), Axis(512), Axis(512, reduction=True)]

    def cycles(row_bytes, rows, passes):
        a, b, c = ({0: 1}, 1), ({1: 1}, 1), ({2: 1}, 1)
        accesses = [Access((a, c), 4), Access((c, b), 4, row_bytes=row_bytes), Access((a, b), 4, written=True)]
        model = TilingModel(axes, accesses, "SRSRS", CpuModel())
        factors = [[[1, 512 // rows, rows]], [[16, 1, 32]], [[passes, 512 // passes]]]
        return float(model.cycles([np.array(f) for f in factors])[0])

    assert cycles(1 << 14, 8, 1) > 1.05 * cycles(256, 8, 1)
    assert cycles(256, 2, 1) > cycles(256, 8, 1)


def test_few_shots_begin_with_what_carver_recommends():
    from relaxish.meta_schedule.application.few_shot import few_shot_tune

    target = Target("llvm")
    func = matmul(96, 160, 224)
    made = few_shot_tune(func, target, 1, False)
    first = dlight.cpu.contraction_variants(func, target, 1, may_pack=True)[0]
    assert made.script() == first.mod["main"].script()
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((96, 224), "float32"), rng.standard_normal((224, 160), "float32")
    np.testing.assert_allclose(run(made, target, a, b), a @ b, rtol=1e-3, atol=1e-3)


def convolution(groups, stride):
    """The program of a convolution, operands, and what comes out."""
    x_shape, w_shape = (2, 16, 9 * stride, 16 * stride), (32, 16 // groups, 3, 3)
    x, w = te.placeholder(x_shape, "float32", name="x"), te.placeholder(w_shape, "float32", name="w")
    y = topi.nn.conv(x, w, stride, 1, 1, groups, "NCHW", "OIHW")
    rng = np.random.default_rng(groups)
    a, b = rng.standard_normal(x_shape, "float32"), rng.standard_normal(w_shape, "float32")
    wanted = torch.nn.functional.conv2d(
        torch.from_numpy(a), torch.from_numpy(b), stride=stride, padding=1, groups=groups
    )
    return te.create_prim_func([x, w, y]), a, b, wanted.numpy()


def convolve(func, a, b, wanted):
    mod = build_tir(func.with_attr("tir.is_scheduled", True), target=ONE_CORE)
    out = nd.array(np.full(wanted.shape, np.nan, "float32"))
    mod["main"](nd.array(a), nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("groups, stride", [(1, 1), (1, 2), (4, 1), (4, 2), (16, 2), (16, 1)])
def test_tiles_of_convolutions(groups, stride):
    """The default, and hints for the function as it is written, among them tiles side by side."""
    func, a, b, wanted = convolution(groups, stride)
    default = dlight.cpu.Contraction().apply(func, ONE_CORE, False)
    convolve(default.mod["main"], a, b, wanted)
    for hint in recommend(func, ONE_CORE, 3)[::2]:
        sch = dlight.cpu.schedule_with_hint(func, hint, ONE_CORE)
        convolve(sch.mod["main"], a, b, wanted)
        block = next(x for x in all_nodes(func.body) if isinstance(x, Block) and facts_of(x).is_reduction)
        tile = CpuTile.of(hint, facts_of(block))
        assert tile.lines == 1
        inner = [int(loop.extent) for loop in loops_of_kind(sch.mod["main"], ForKind.UNROLLED)]
        assert {tile.rows, tile.vectors} <= set(inner)
    beside = Schedule(func)
    apply_tile(
        beside,
        {"rows": 3, "vectors": 1, "lines": 2} if groups == 1 else {"rows": 2, "lines": 2, "vectors": 1},
        ONE_CORE,
    )
    convolve(beside.mod["main"], a, b, wanted)


def loops_of_kind(func, kind):
    return [x for x in all_nodes(func.body) if isinstance(x, For) and x.kind == kind]


def test_vectors_of_every_second_element_are_vectors():
    """A tile of one vector and eight rows has eight accumulators, whatever the stride of the operand."""
    x, y, k = Axis(64), Axis(16), Axis(32, reduction=True)
    tiles = [np.array([[8, 1, 8], [64, 1, 1]]), np.array([[1, 1, 16]] * 2), np.array([[32]] * 2)]
    cycles = {}
    for step in (1, 2, 8):
        operands = [
            Access((({2: 1}, 1), ({1: step}, 1)), 4), Access((({0: 1}, 1), ({2: 1}, 1)), 4),
            Access((({0: 1}, 1), ({1: 1}, 1)), 4, written=True),
        ]  # fmt: skip
        cycles[step] = TilingModel([x, y, k], operands, "SSRS", CpuModel()).cycles(tiles)
    assert cycles[1][0] < cycles[2][0] < 2 * cycles[1][0] and cycles[8][0] > 4 * cycles[2][0]
    assert cycles[2][0] < cycles[2][1] / 1.5  # more rows share what is picked out
