"""Matrix-core intrinsics of AMD GPUs: tensorised products of one wave in the interpreter against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from programs.products import product
from relaxish import interp, tir
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.tir import TensorIntrin, transform
from relaxish.tir.tensor_intrin import rocm_mfma

rng = np.random.default_rng(8)
LOWERING = (
    transform.LowerInitBlock(), transform.PlanAndUpdateBufferAllocationLocation(), transform.ConvertBlocksToOpaque(),
    transform.CompactBufferAllocation(), transform.UnifyThreadBinding(), transform.LowerMatchBuffer(),
    transform.Simplify(), transform.LowerOpaqueBlock(), transform.FlattenBuffer(), transform.Simplify(),
    transform.BindTarget(Target("rocm")), transform.ThreadSync("shared"), transform.LowerWarpMemory(),
)  # fmt: skip


def by_tile(place, rows, columns):
    def index_map(row, column):
        return (row // rows, column // columns, *place(row % rows, column % columns))

    return index_map


def scheduled(func, short, depth, places):
    """One wave a block, a 16 x 16 tile each; operands through shared memory."""
    out = "s32" if short == "s8" else "f32"
    sch = tir.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i, i_in = sch.split(i, [None, 16])
    j, j_in = sch.split(j, [None, 16])
    k, k_in = sch.split(k, [None, depth])
    sch.reorder(i, j, k, i_in, j_in, k_in)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "blockIdx.y")
    outer = sch.blockize(i_in)
    warps = []
    for index in range(2):
        shared = sch.cache_read(outer, index, "shared")
        sch.compute_at(shared, k)
        _, tx = sch.split(sch.fuse(*sch.get_loops(shared)[-2:]), [None, 64])
        sch.bind(tx, "threadIdx.x")
        warps.append(sch.cache_read(outer, index, "warp"))
    store = sch.cache_write(outer, 0, "warp")
    sch.reverse_compute_at(store, j)
    sch.transform_layout(warps[0], ("write", 0), by_tile(places[0], 16, depth))
    sch.transform_layout(warps[1], ("write", 0), by_tile(places[1], depth, 16))
    sch.transform_layout(store, ("read", 0), by_tile(rocm_mfma.place_b, 16, 16))
    init = sch.decompose_reduction(outer, k)
    names = [f"rocm_mfma_load_16x{depth}_a_shared_{short}", f"rocm_mfma_load_b_16x{depth}_shared_{short}"]
    for warp, name in zip(warps, names, strict=True):
        sch.tensorize(sch.get_loops(warp)[-2], name)
    sch.tensorize(sch.get_loops(store)[-2], f"rocm_mfma_store_16x16_{out}")
    fill = "i32" if short == "s8" else "f32"
    sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], f"ROCM_mfma_fill_16x16_{fill}")
    sch.tensorize(sch.get_loops(block)[-3], f"rocm_mfma_{short}{short}{out}")
    return sch.mod["main"]


THIN, WIDE = (rocm_mfma.place_thin_a, rocm_mfma.place_thin_b), (rocm_mfma.place_a, rocm_mfma.place_b)


@pytest.mark.parametrize(
    "short, depth, in_dtype, out_dtype, places",
    [
        ("f32", 4, "float32", "float32", THIN),
        ("f16", 16, "float16", "float32", WIDE),
        ("s8", 16, "int8", "int32", WIDE),
    ],
)
def test_product(short, depth, in_dtype, out_dtype, places):
    m, n, k = 32, 16, 2 * depth
    made = scheduled(product(m, n, k, in_dtype, out_dtype), short, depth, places)
    assert "llvm.amdgcn.mfma" in made.script()
    if in_dtype == "int8":
        a, b = (rng.integers(-128, 128, shape).astype(in_dtype) for shape in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(shape).astype(in_dtype) for shape in ((m, k), (k, n)))
    mod = IRModule({"main": made})
    for one in LOWERING:
        mod = one(mod)
    out = np.full((m, n), 7, out_dtype)
    interp.run_prim_func(mod["main"], [a, b, out])
    np.testing.assert_allclose(out, a.astype("float64") @ b.astype("float64"), rtol=0, atol=1e-4)


def test_names():
    for name in (
        "sdot4", "ROCM_mfma_fill_16x16_f32", "ROCM_mfma_fill_16x16_i32", "rocm_mfma_load_16x16_a_shared_s8",
        "rocm_mfma_load_b_16x16_shared_s8", "rocm_mfma_load_16x16_a_shared_f16", "rocm_mfma_load_b_16x16_shared_f16",
        "rocm_mfma_load_16x4_a_shared_f32", "rocm_mfma_load_b_16x4_shared_f32", "rocm_mfma_f32f32f32",
        "rocm_mfma_f16f16f32", "rocm_mfma_s8s8s32", "rocm_mfma_store_16x16_s32", "rocm_mfma_store_16x16_f32",
    ):  # fmt: skip
        assert TensorIntrin.get(name) is not None
