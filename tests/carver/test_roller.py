"""The published order of tiles, on devices described by their targets alone."""

import time

import numpy as np
import pytest

import relaxish
from relaxish import carver, te
from relaxish.carver.arch import CUDA, get_arch
from relaxish.carver.roller import DefaultPolicy, Hint, NoRasterization, OutputNode, PrimFuncNode, Rasterization2DColumn
from relaxish.carver.roller import Rasterization2DRow, TensorCorePolicy
from relaxish.carver.roller.policy.common import coalesced_elements, factorize, get_all_factors

RTX4090, A100, H100 = "nvidia/geforce-rtx-4090", "nvidia/nvidia-a100", "nvidia/nvidia-h100"


def product(n, target, **fields):
    return carver.MatmulTemplate(M=n, N=n, K=n, **fields).with_arch(CUDA(target))


# (side, target) -> what the published rules give: block and step of the reduction, best first.
PUBLISHED = {
    (1024, RTX4090): [([32, 64], 128), ([64, 32], 128), ([32, 32], 128), ([64, 64], 32), ([16, 128], 64)],
    (4096, RTX4090): [([128, 128], 32), ([64, 256], 32)],
    (1024, A100): [([64, 64], 32), ([32, 128], 32), ([128, 32], 32)],
    (4096, A100): [([64, 128], 32), ([128, 64], 32), ([128, 128], 32)],
    (1024, H100): [([32, 64], 64), ([64, 32], 64)],
    (4096, H100): [([64, 128], 32), ([128, 64], 32), ([128, 128], 32)],
}


@pytest.mark.parametrize("side, target", PUBLISHED)
def test_published_order(side, target):
    expected = PUBLISHED[side, target]
    hints = product(side, target).recommend_hints(topk=10)
    assert len(hints) == 10
    assert [(h.block, h.rstep[0]) for h in hints[: len(expected)]] == expected
    assert all(h.use_tc and h.threads in (32, 64, 128, 256) for h in hints)


def test_published_warps_and_vectors():
    first, second = product(1024, RTX4090).recommend_hints(topk=2)
    assert first.to_dict() == {
        "block": [32, 64], "warp": [16, 32], "rstep": [128], "use_tc": True,
        "vectorize": {"A_reindex": 8, "B_reindex": 8},
    }  # fmt: skip
    assert second.warp == [32, 16]


def test_ten_hints_take_little_time():
    template = product(1024, RTX4090)
    template.recommend_hints(topk=10)
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        template.recommend_hints(topk=10)
        best = min(best, time.process_time() - start)
    assert best < 0.05


def test_stages_and_order_of_blocks():
    for target, stages in ((RTX4090, 1), (A100, 2), (H100, 2), ("nvidia/geforce-rtx-3090", 1)):
        hint = product(1024, target).recommend_hints(topk=1)[0]
        assert hint.pipeline_stage == stages and hint.use_async == (stages == 2)
        assert hint.rasterization_plan.is_identity
    # Two operands of 4096 x 4096 halves are 64 MiB: more than the 40 MiB of an A100, less than the 72 MiB of a 4090.
    plan = product(4096, A100).recommend_hints(topk=1)[0].rasterization_plan
    assert plan == Rasterization2DColumn(10) and not plan.is_identity
    assert product(4096, RTX4090).recommend_hints(topk=1)[0].rasterization_plan.is_identity


def test_general_reduction_as_published():
    template = carver.GeneralReductionTemplate(structure="SSR", shape=[1024, 1024, 1024], dtype="float16")
    hints = template.with_arch(CUDA(RTX4090)).recommend_hints(topk=20)
    assert len(hints) == 20
    assert [(h.block, h.thread, h.rstep) for h in hints[:2]] == [
        ([1, 128], [1, 128], [64]), ([2, 64], [2, 64], [64]),
    ]  # fmt: skip
    assert any(h.block == [1, 16] and h.rstep == [512] and h.reduce_thread == [8] for h in hints)


def test_threads_where_tensor_cores_do_not_compute_it():
    for fields in (
        {"in_dtype": "float32", "accum_dtype": "float", "out_dtype": "float32"},
        {"in_dtype": "float64", "accum_dtype": "float64", "out_dtype": "float64"},
    ):
        hints = product(512, A100, **fields).recommend_hints(topk=5)
        assert hints and not any(h.use_tc for h in hints)
        for hint in hints:
            assert all(b % t == 0 for b, t in zip(hint.block, hint.thread, strict=True)) and hint.threads <= 1024
    odd = product(1000, A100).recommend_hints(topk=3)  # no multiple of 16 divides it
    assert odd and not any(h.use_tc for h in odd)


@pytest.mark.parametrize(
    "target", [RTX4090, A100, "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "metal", "vulkan", "opencl"]
)
@pytest.mark.parametrize("sides", [(1024, 768, 512), (64, 4096, 96)])
def test_tiles_fit_the_device(target, sides):
    arch = get_arch(target)
    m, n, k = sides
    for trans in ((False, True), (True, False)):
        template = carver.MatmulTemplate(M=m, N=n, K=k, trans_A=trans[0], trans_B=trans[1], accum_dtype="float32")
        hints = template.with_arch(arch).recommend_hints(topk=10)
        assert hints
        for hint in hints:
            rows, columns = hint.block
            used = (rows + columns) * hint.rstep[0] * 2 * hint.pipeline_stage
            assert used <= arch.smem_cap and m % rows == 0 and n % columns == 0 and k % hint.rstep[0] == 0
            assert hint.threads <= arch.target.max_num_threads
            if hint.use_tc:
                assert rows % hint.warp[0] == 0 and columns % hint.warp[1] == 0
            else:
                assert hint.threads * max(hint.step) <= rows * columns * np.prod(hint.reduce_thread)


def test_attention_computes_scores_step_by_step():
    for length in (512, 4096):
        template = carver.FlashAttentionTemplate(
            batch_size=1, num_heads=32, head_dim=128, seq_length=length, seq_kv_length=length
        )
        hints = template.with_arch(CUDA(A100)).recommend_hints(topk=5)
        assert hints
        for hint in hints:
            assert {node.name for node in hint} == {"MMA0", "MMA1"}
            scores, result = (next(h for node, h in hint.items() if node.name == name) for name in ("MMA0", "MMA1"))
            assert scores.use_tc and result.use_tc
            # The rows are the same, and the first product's columns are what the second reduces at a time.
            assert scores.block[0] == result.block[0] and scores.block[1] in (result.rstep[0], length)


def test_convolutions_are_products_of_patches():
    template = carver.ConvTemplate(N=16, C=64, H=56, W=56, F=128, K=3, S=1, D=1, P=1, accum_dtype="float32")
    hint = template.with_arch(CUDA(A100)).recommend_hints(topk=1)[0]
    assert hint.use_tc and 16 * 56 * 56 % hint.block[0] == 0 and 128 % hint.block[1] == 0 and 576 % hint.rstep[0] == 0
    strided = carver.ConvTemplate(
        N=1, C=3, H=224, W=224, F=64, K=7, S=2, D=1, P=3, in_dtype="float32", accum_dtype="float32", out_dtype="float32"
    )
    assert strided.with_arch(CUDA(A100)).recommend_hints(topk=3)


def test_a_large_space_of_tiles_is_searched_one_by_one():
    shape = [64, 60, 48, 36]
    hints = carver.ElementwiseTemplate(shape, "float32").with_arch(CUDA(A100)).recommend_hints(topk=3)
    assert len(hints) == 3
    wide = carver.ElementwiseTemplate([48, 60, 48, 60, 48], "float32").with_arch(CUDA(A100)).recommend_hints(topk=2)
    assert len(wide) == 2 and all(h.threads <= 1024 for h in wide)


def test_symbolic_extents_need_expected_values():
    n = te.var("n")
    a, b = te.placeholder((n, 512), "float16", name="A"), te.placeholder((512, 512), "float16", name="B")
    k = te.reduce_axis((0, 512), name="k")
    func = te.create_prim_func([a, b, te.compute((n, 512), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])
    with pytest.raises(ValueError, match="opt_shapes"):
        carver.recommend(func, A100, 3, policy="roller")
    policy = DefaultPolicy.from_prim_func(func, CUDA(A100), {"opt_shapes": {"n": 1024}})
    hints = policy.emit_config(3)
    assert hints and hints[0].opt_shapes == {"n": 1024} and policy.ordered_nodes[0].get_space_dim() == [1024, 512]


def test_policies_from_functions_and_from_nodes_agree():
    func = product(512, A100).equivalent_function()
    arch = CUDA(A100)
    normal, tags = carver.matmul_analysis.get_tensorized_func_and_tags(func, arch.target)
    assert tags["tensorcore_config"] == [0, 1] and tags["intrin_info"]["trans_b"] is True
    first = TensorCorePolicy.from_prim_func(normal, arch, tags).emit_config(4)
    node = PrimFuncNode(normal, tags)
    assert TensorCorePolicy.from_output_nodes([OutputNode(node)], arch).emit_config(4) == first
    assert carver.utils.get_roller_hints_from_func(func, arch, 4) == first
    assert carver.recommend(relaxish.IRModule({"main": func}), A100, 4, policy="roller") == first
    assert carver.recommend(product(512, A100), A100, 4, policy="roller") == first


def test_tags_overrule_the_architecture():
    func = product(1024, RTX4090).equivalent_function()
    arch = CUDA(RTX4090)
    normal, tags = carver.matmul_analysis.get_tensorized_func_and_tags(func, arch)
    hint = TensorCorePolicy.from_prim_func(normal, arch, {**tags, "pipeline_stage": 3}).emit_config(1)[0]
    assert hint.pipeline_stage == 3
    assert sum(hint.block) * hint.rstep[0] * 2 * 3 <= arch.smem_cap


def test_hints_as_dictionaries():
    for hint in product(1024, A100).recommend_hints(topk=10):
        again = Hint.from_dict(hint.to_dict())
        assert again == hint and again.to_dict() == hint.to_dict() == eval(repr(hint))
    plain = Hint()
    assert plain.pipeline_stage == 1 and plain.split_k_factor == 1 and plain.rasterization_plan.is_identity
    plain.block = [8, 8]
    assert plain.step == [1, 1]
    with pytest.raises(ValueError, match="no field 'blok'"):
        Hint.from_dict({"blok": [1, 2]})


def test_orders_of_blocks_visit_each_block_once():
    rng = np.random.default_rng(3)
    for make in (Rasterization2DRow, Rasterization2DColumn):
        for _ in range(20):
            columns, rows, width = (int(n) for n in rng.integers(1, 9, 3))
            order = make(width).visit(columns, rows)
            assert sorted(order) == sorted((x, y) for x in range(columns) for y in range(rows))
            # Neighbours in time are in one panel, next to each other.
            assert (
                max(
                    abs(a - c) + abs(b - d)
                    for (a, b), (c, d) in zip(order, order[1:], strict=False) or [((0, 0), (0, 0))]
                )
                <= 2 * width
                if len(order) > 1
                else True
            )
    assert NoRasterization().visit(2, 2) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert NoRasterization().get_code() == []
    with pytest.raises(ValueError, match="no panels"):
        _ = NoRasterization().panel_width
    with pytest.raises(ValueError, match="at least 1"):
        Rasterization2DRow(0)


def _visited_by_code(plan, columns, rows):
    """What the CUDA C++ of a plan computes, by translating its arithmetic to Python."""
    code = plan.get_code()[0]
    lines = [line.strip() for line in code.split("{", 1)[1].rsplit("}", 1)[0].splitlines() if line.strip()]
    seen = []
    for by in range(rows):
        for bx in range(columns):
            values = {"bx": bx, "by": by, "gx": columns, "gy": rows, "panel": plan.panel_width}
            for line in lines:
                text = line.rstrip(";").replace("blockIdx.x", "bx").replace("blockIdx.y", "by")
                text = text.replace("gridDim.x", "gx").replace("gridDim.y", "gy").replace("/", "//")
                if text.startswith("const int "):
                    for part in text.removeprefix("const int ").split(", "):
                        name, _, value = part.partition(" = ")
                        if "?" in value:
                            test, _, rest = value.partition(" ? ")
                            yes, _, no = rest.partition(" : ")
                            value = f"({yes}) if ({test}) else ({no})"
                        values[name] = eval(value, {}, values)
                else:
                    x, y, _ = text.partition("dim3(")[2].rstrip(")").split(", ")
                    seen.append((values[x], values[y]))
    return seen


def test_code_of_an_order_is_that_order():
    rng = np.random.default_rng(5)
    for make in (Rasterization2DRow, Rasterization2DColumn):
        for _ in range(10):
            columns, rows, width = (int(n) for n in rng.integers(1, 8, 3))
            assert _visited_by_code(make(width), columns, rows) == make(width).visit(columns, rows)


def test_arithmetic():
    rng = np.random.default_rng(7)
    for n in rng.integers(1, 5000, 50):
        assert get_all_factors(n) == [d for d in range(1, n + 1) if n % d == 0]
        assert int(np.prod(factorize(n))) == n and factorize(n) == sorted(factorize(n))
    # 16 rows of 32 halves, 64 bytes each, of which a transaction of 128 bytes uses one half.
    assert float(coalesced_elements([16, 32], [1024, 1024], 64)) == 2 * 16 * 32
    assert float(coalesced_elements([16, 1024], [1024, 1024], 64)) == 16 * 1024
    columns = [np.array([16, 16]), np.array([32, 1024])]
    assert coalesced_elements(columns, [1024, 1024], 64).tolist() == [1024.0, 16384.0]


def test_mistakes_say_what_to_do():
    arch = CUDA(A100)
    func = product(512, A100).equivalent_function()
    with pytest.raises(ValueError, match="carver.recommend"):
        DefaultPolicy(get_arch("llvm"))
    with pytest.raises(ValueError, match="get_tensorized_func_and_tags"):
        TensorCorePolicy.from_prim_func(func, arch)
    with pytest.raises(ValueError, match="no matrix instructions"):
        TensorCorePolicy(get_arch("metal"))
    with pytest.raises(ValueError, match=r'"model".*"roller"'):
        carver.recommend(func, A100, 3, policy="best")
    with pytest.raises(ValueError, match="at least 1"):
        carver.recommend(func, A100, 0)
    with pytest.raises(ValueError, match="recommend takes a PrimFunc"):
        carver.recommend("matmul", A100)
    with pytest.raises(ValueError, match="for GPUs"):
        carver.recommend(func, "llvm", policy="roller")
    with pytest.raises(ValueError, match="pass mod"):
        carver.recommend(relaxish.IRModule({"a": func, "b": func}), A100)
    with pytest.raises(ValueError, match="a list"):
        carver.get_roller_hints_from_output_nodes(OutputNode(PrimFuncNode(func)), arch)
    with pytest.raises(ValueError, match="positive integer"):
        carver.MatmulTemplate(M=0, N=8, K=8)
    with pytest.raises(ValueError, match="no dtype"):
        carver.MatmulTemplate(M=8, N=8, K=8, in_dtype="float17")
    with pytest.raises(ValueError, match="such as"):
        carver.GeneralReductionTemplate("SR", [4, 4, 4])
    with pytest.raises(ValueError, match="larger than the padded image"):
        carver.ConvTemplate(N=1, C=1, H=4, W=4, F=1, K=9, S=1, D=1, P=0)
    assert (
        carver.get_roller_hints_from_func(
            carver.ElementwiseTemplate([64]).equivalent_function(), arch, 3, tensorcore_only=True
        )
        is None
    )
    scheduled = relaxish.tir.Schedule(func)
    scheduled.blockize(scheduled.get_loops(scheduled.get_block("C"))[1])
    with pytest.raises(ValueError, match="before they are scheduled"):
        carver.recommend(scheduled.mod, A100, policy="roller")
