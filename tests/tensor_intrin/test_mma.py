"""``mma.sync`` and ``ldmatrix`` intrinsics: tensorised products in the interpreter against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from programs.products import product
from relaxish import interp, tir
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.tir import transform
from relaxish.tir.tensor_intrin import mma_layouts as layouts
from relaxish.tir.tensor_intrin import mma, mma_m16n8k8
from relaxish.tir.tensor_intrin.cuda import get_mma_intrin_group

rng = np.random.default_rng(5)
NUMPY = {
    "float16": np.float16, "float32": np.float32, "int8": np.int8, "int32": np.int32,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip


def scheduled(func, in_dtype, out_dtype, trans_a, trans_b):
    """One warp a block, a 16 x 16 tile each; operands through shared memory."""
    side_k = {"float16": 16, "bfloat16": 16, "float32": 8}.get(in_dtype, 32)
    names = get_mma_intrin_group("shared", "global", in_dtype, out_dtype, trans_a, trans_b)
    place_c = layouts.shared_16x16_to_ldmatrix_32x8_layout
    if side_k == 16:
        places = [place_c, place_c]
    elif side_k == 8:
        places = [mma._tf32_a, mma._tf32_b]
    else:
        wide = layouts.shared_16x32_to_ldmatrix_32x16_layout
        places = [wide, wide if trans_b else layouts.shared_32x16_to_ldmatrix_32x16_layout]
    sch = tir.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i, i_in = sch.split(i, [None, 16])
    j, j_in = sch.split(j, [None, 16])
    k, k_in = sch.split(k, [None, side_k])
    sch.reorder(i, j, k, i_in, j_in, k_in)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "blockIdx.y")
    outer = sch.blockize(i_in)
    warps = []
    for index, place in enumerate(places):
        shared = sch.cache_read(outer, index, "shared")
        sch.compute_at(shared, k)
        fused = sch.fuse(*sch.get_loops(shared)[-2:])
        _, tx = sch.split(fused, [None, 32])
        sch.bind(tx, "threadIdx.x")
        warp = sch.cache_read(outer, index, "warp")
        warps.append((warp, place))
    store = sch.cache_write(outer, 0, "warp")
    sch.reverse_compute_at(store, j)

    def by_tile(place):
        def index_map(row, column):
            rows, columns = (32, 16) if place is layouts.shared_32x16_to_ldmatrix_32x16_layout else (
                (16, 32) if place is layouts.shared_16x32_to_ldmatrix_32x16_layout else (16, 16)
            )  # fmt: skip
            if place in (mma._tf32_a, mma._tf32_b):
                rows, columns = 16, 8
            return (row // rows, column // columns, *place(row % rows, column % columns))

        return index_map

    for warp, place in warps:
        sch.transform_layout(warp, ("write", 0), by_tile(place))
    sch.transform_layout(store, ("read", 0), by_tile(place_c))
    init = sch.decompose_reduction(outer, k)
    for (warp, _), name in zip(warps, ("load_a", "load_b"), strict=True):
        sch.tensorize(sch.get_loops(warp)[-2], names[name])
    sch.tensorize(sch.get_loops(store)[-2], names["store"])
    sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], names["init"])
    sch.tensorize(sch.get_loops(block)[-3], names["compute"])
    return sch.mod["main"]


LOWERING = (
    transform.LowerInitBlock(), transform.PlanAndUpdateBufferAllocationLocation(), transform.ConvertBlocksToOpaque(),
    transform.CompactBufferAllocation(), transform.UnifyThreadBinding(), transform.LowerMatchBuffer(),
    transform.Simplify(), transform.TransformMmaBufferLayout(), transform.LowerOpaqueBlock(),
    transform.FlattenBuffer(), transform.Simplify(), transform.BindTarget(Target("cuda")),
    transform.ThreadSync("shared"), transform.LowerWarpMemory(),
)  # fmt: skip


def lowered(func):
    """Fragments as each thread's own registers."""
    mod = IRModule({"main": func})
    for one in LOWERING:
        mod = one(mod)
    return mod["main"]


CASES = [
    ("float16", "float32", False, False), ("float16", "float32", False, True), ("float16", "float32", True, False),
    ("float16", "float16", True, True), ("int8", "int32", False, False), ("int8", "int32", False, True),
    ("float8_e4m3fn", "float32", False, True), ("float8_e5m2", "float32", False, False),
    ("bfloat16", "float32", False, True), ("bfloat16", "float32", True, False), ("float32", "float32", False, True),
]  # fmt: skip


@pytest.mark.parametrize("in_dtype, out_dtype, trans_a, trans_b", CASES)
def test_product(in_dtype, out_dtype, trans_a, trans_b):
    m, n, k = 32, 16, 64
    func = product(m, n, k, in_dtype, out_dtype, trans_a, trans_b)
    made = scheduled(func, in_dtype, out_dtype, trans_a, trans_b)
    text = made.script()
    assert "T.ptx_mma(" in text and "T.ptx_ldmatrix(" in text and "T.mma_fill(" in text and "T.mma_store(" in text
    if in_dtype == "int8":
        a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(s).astype(NUMPY[in_dtype]) for s in ((m, k), (k, n)))
    out = np.empty((m, n), NUMPY[out_dtype])
    operands = [np.ascontiguousarray(a.T) if trans_a else a, np.ascontiguousarray(b.T) if trans_b else b]
    interp.run_prim_func(lowered(made), [*operands, out])
    wanted = a.astype("float64") @ b.astype("float64")
    np.testing.assert_allclose(out.astype("float64"), wanted, rtol=0, atol=0 if in_dtype == "int8" else 0.1)


@pytest.mark.parametrize(
    "rows, columns, place",
    [
        (16, 16, layouts.shared_16x16_to_ldmatrix_32x8_layout), (16, 32, layouts.shared_16x32_to_ldmatrix_32x16_layout),
        (32, 16, layouts.shared_32x16_to_ldmatrix_32x16_layout),
    ],
)  # fmt: skip
def test_every_element_has_one_place(rows, columns, place):
    places = {place(i, j) for i in range(rows) for j in range(columns)}
    assert places == {(lane, e) for lane in range(32) for e in range(rows * columns // 32)}


def test_names_are_registered():
    for out in ("float16", "float32"):
        for name in get_mma_intrin_group("shared.dyn", "shared.dyn", "float16", out, True, True).values():
            assert tir.TensorIntrin.get(name) is not None
    with pytest.raises(ValueError, match="in_dtype"):
        get_mma_intrin_group("shared", "global", "float64", "float32", False, False)


@pytest.mark.parametrize("out_dtype", ["float16", "float32"])
def test_product_of_m16n8k8(out_dtype):
    """One warp has 32 x 32 results in the registers of eight instructions."""
    names = mma_m16n8k8.get_mma_intrin_group("global", out_dtype)
    sch = tir.Schedule(product(64, 32, 32, "float16", out_dtype, False, False))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, [None, 2, 16])
    j0, j1, j2 = sch.split(j, [None, 4, 8])
    k0, k1 = sch.split(k, [None, 8])
    sch.reorder(i0, j0, k0, i1, j1, i2, j2, k1)
    sch.bind(i0, "blockIdx.x")
    sch.bind(j0, "blockIdx.y")
    outer = sch.blockize(i2)
    loads = []
    for index, matrix in enumerate("AB"):
        shared = sch.cache_read(outer, index, "shared.dyn")
        sch.compute_at(shared, k0)
        _, tx = sch.split(sch.fuse(*sch.get_loops(shared)[-2:]), [None, 32])
        sch.bind(tx, "threadIdx.x")
        loads.append(sch.cache_read(outer, index, f"m16n8k8.matrix{matrix}"))
    store = sch.cache_write(outer, 0, "m16n8k8.matrixC")
    sch.reverse_compute_at(store, j0)
    init = sch.decompose_reduction(outer, k0)
    for load, name in zip(loads, ("load_a", "load_b"), strict=True):
        sch.tensorize(sch.get_loops(load)[-2], names[name])
    row, column = sch.get_loops(store)[-2:]
    row, row_in = sch.split(row, [None, 8])
    column, column_in = sch.split(column, [None, 8])
    sch.reorder(row, column, row_in, column_in)
    sch.tensorize(row_in, names["store"])
    sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], names["init"])
    sch.tensorize(sch.get_loops(block)[-3], names["compute"])
    made = lowered(sch.mod["main"])
    assert "m16n8k8.matrix" not in made.script() and '"m16n8k8"' in made.script()
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 32), (32, 32)))
    out = np.empty((64, 32), NUMPY[out_dtype])
    interp.run_prim_func(made, [a, b, out])
    np.testing.assert_allclose(out.astype("float64"), a.astype("float64") @ b.astype("float64"), rtol=0, atol=0.1)
