"""Hints that change how, never what: the second-level cache, eviction, widths of accesses, bulk copies, clusters."""

from __future__ import annotations

import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, check

import relaxish.tile.language as T
from relaxish.backend.cuda.compile import nvrtc
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source
from relaxish.support.errors import RelaxishError
from relaxish.tir.transform.tiles import TileLoweringError


def product(ratio=None, stages=2, **options):
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            if ratio is not None:
                T.annotate_l2_hit_ratio({A: ratio})
            T.clear(c)
            for turn in T.Pipelined(2, num_stages=stages):
                T.copy(A[0, turn * 64], a, **options)
                T.copy(B[0, turn * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    return main


def kernel(func, arch="sm_80"):
    text = source(func, arch)
    return text[text.rindex("__global__") :]


def results(func, *where):
    a, b = (arrays(s, (64, 128), dtype="float16")[0] for s in (1, 2))
    check(func, [a, b], a.astype("float32") @ b.astype("float32").T, where=where, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("stages", [0, 2])
def test_share_of_the_cache(stages):
    """Every load of the argument carries the policy, those of others do not."""
    func = product(0.75, stages)
    text = kernel(func)
    assert "createpolicy.fractional.L2::evict_last.b64 %0, 0f3F400000" in text  # 0.75
    hinted = "copy_async_kept<16>(" if stages else "load_kept<"
    assert hinted in text
    plain = "copy_async<16>(" if stages else " load<"
    assert all("A_policy" in line for line in text.splitlines() if "_kept<" in line) and plain in text
    assert "_kept<" not in kernel(product(None, stages)) and "_kept<" not in kernel(product(0.0, stages))
    assert "wgmma" not in source(func, "sm_90a") and "wgmma" in source(product(None, 2), "sm_90a")
    results(func, "sm_80", "sm_90a", "llvm", "interp")
    assert_structural_equal(from_source(func.script()), func)
    if nvrtc.available():
        assert len(nvrtc.compile_cubin(source(func, "sm_80"), "sm_80")) > 0


def test_single_elements():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            T.annotate_l2_hit_ratio({A: 1.0})
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[63 - (bx * 32 + i)]

    assert "load_kept<float>" in kernel(main)
    (a,) = arrays(3, (64,))
    check(main, [a], a[::-1], where=("sm_80",), rtol=0, atol=0)


def test_eviction_of_copies():
    text = kernel(product(eviction_policy="evict_first"))
    assert "L2::evict_first.b64" in text and "copy_async_kept<16>" in text and "copy_async<16>" in text
    results(product(eviction_policy="evict_first"), "sm_80", "sm_90a", "llvm")
    with pytest.raises(RelaxishError, match="policies are evict_first, evict_last, evict_normal"):
        product(eviction_policy="never")


def test_bulk_copies_can_be_refused():
    assert "wgmma" in source(product(), "sm_90a") and "wgmma" not in source(product(disable_tma=True), "sm_90a")
    results(product(disable_tma=True), "sm_90a")


def test_width_of_accesses():
    assert "copy_async<8>" in kernel(product(coalesced_width=4)) and "copy_async<4>" in kernel(
        product(coalesced_width=2)
    )
    results(product(coalesced_width=4), "sm_70", "sm_80")

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=16) as _bx:
            for i in T.Parallel(64, coalesced_width=2):
                B[i] = A[i] * 2

    assert "Vec<float, 2>" in kernel(main) and "Vec<float, 4>" not in kernel(main)
    with pytest.raises(RelaxishError, match="coalesced_width=3"):
        product(coalesced_width=3)


def test_what_devices_cannot_keep():
    for func in (product(0.5), product(eviction_policy="evict_last")):
        with pytest.raises(TileLoweringError, match="sm_70 say nothing to the second-level cache"):
            source(func, "sm_70")
    with pytest.raises(RelaxishError, match="no share between 0 and 1"):
        product(1.5)


def test_clusters():
    """Blocks of a cluster are those of a grid: with the axes' order, and a grid that clusters divide."""

    def program(grid, dims):
        @T.prim_func
        def main(A: T.Tensor((8, 4, 32), "float32"), B: T.Tensor((8, 4, 32), "float32")):
            with T.ClusterKernel(*grid, cluster_dims=dims, threads=32) as (bx, by):
                tile = T.alloc_shared((32,), "float32")
                T.copy(A[bx, by, 0], tile)
                for i in T.Parallel(32):
                    B[bx, by, i] = tile[31 - i] + bx * 10 + by

        return main

    (a,) = arrays(4, (8, 4, 32))
    x, y = np.arange(8, dtype="float32")[:, None, None], np.arange(4, dtype="float32")[None, :, None]
    wanted = a[:, :, ::-1] + x * 10 + y
    check(program((8, 4), (2, 1)), [a], wanted, where=("interp", "llvm", "sm_80", "sm_90a"))
    with pytest.raises(RelaxishError, match="a grid of 4 blocks is no multiple of the cluster's 3"):
        program((8, 4), (2, 3))
