"""Memory barriers, bulk copies, named barriers and Hopper's products in emulation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish import te, tir
from relaxish.backend.emulator import (
    BarrierMisuseError, DataRaceError, DeadlockError, EmulatedModule, EmulationError, UninitializedReadError,
)  # fmt: skip
from relaxish.dlight.analysis import get_root_block
from relaxish.dlight.gpu.matmul_analysis import get_single_reduction
from relaxish.dlight.gpu.matmul_hopper import HopperConfig, normalize_product, schedule_tiles

from relaxish.script import tir as T
from relaxish.target import Target

rng = np.random.default_rng(4)
HOPPER = Target("nvidia/nvidia-h100")


def pipeline(turns, full=True, empty=True):
    """One warp fills a buffer of two slots, another one empties it; without a barrier they get in each other's way."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), B: T.handle("int32", "global")):
        a = T.decl_buffer((32 * turns,), "int32", data=A)
        b = T.decl_buffer((32 * turns,), "int32", data=B)
        memory = T.allocate([64], "int32", "shared")
        s = T.decl_buffer((64,), "int32", data=memory, scope="shared")
        bars = T.allocate([4], "uint64", "shared")
        m = T.decl_buffer((4,), "uint64", data=bars, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        if tx == 0:
            for i in range(4):
                T.ptx_mbarrier_init(T.address_of(m[i]), 32)
        T.tvm_storage_sync("shared")
        if tx < 32:
            for i in range(turns):
                if empty:
                    T.ptx_mbarrier_wait_parity(T.address_of(m[2 + i % 2]), i // 2 % 2 + 1)
                s[i % 2 * 32 + tx] = a[i * 32 + tx] * 2
                T.ptx_mbarrier_arrive(T.address_of(m[i % 2]))
        else:
            for i in range(turns):
                if full:
                    T.ptx_mbarrier_wait_parity(T.address_of(m[i % 2]), i // 2 % 2)
                b[i * 32 + tx - 32] = s[i % 2 * 32 + 63 - tx]
                T.ptx_mbarrier_arrive(T.address_of(m[2 + i % 2]))

    return kernel


def test_producer_and_consumer():
    a, b = rng.integers(0, 99, 320).astype("int32"), np.zeros(320, "int32")
    launch(pipeline(10), a, b)
    np.testing.assert_array_equal(b.reshape(10, 32), 2 * a.reshape(10, 32)[:, ::-1])
    for missing in ({"full": False}, {"empty": False}):
        with pytest.raises(EmulationError) as caught:
            launch(pipeline(10, **missing), a, b)
        assert caught.value.statement


def waiting(count, start):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((32,), "int32", data=A)
        bars = T.allocate([1], "uint64", "shared")
        m = T.decl_buffer((1,), "uint64", data=bars, scope="shared")
        tx = T.launch_thread("threadIdx.x", 32)
        if start:
            if tx == 0:
                T.ptx_mbarrier_init(T.address_of(m[0]), count)
            T.tvm_storage_sync("shared")
        T.ptx_mbarrier_arrive(T.address_of(m[0]))
        T.ptx_mbarrier_wait_parity(T.address_of(m[0]), 0)
        a[tx] = 1

    return kernel


def test_barrier_that_nobody_completes():
    launch(waiting(32, True), np.zeros(32, "int32"), block=(32, 1, 1))
    for check in (True, False):
        with pytest.raises(DeadlockError) as caught:
            launch(waiting(33, True), np.zeros(32, "int32"), block=(32, 1, 1), check=check)
        assert "ptx_mbarrier_wait_parity" in caught.value.statement
    with pytest.raises(BarrierMisuseError):
        launch(waiting(32, False), np.zeros(32, "int32"), block=(32, 1, 1))


def bulk(expected, waits=True):
    """A bulk copy by one thread; barriers by number."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), B: T.handle("float32", "global")):
        b = T.decl_buffer((64,), data=B)
        memory = T.allocate([64], "float32", "shared")
        s = T.decl_buffer((64,), data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        T.create_barriers(1)
        if tx == 0:
            T.ptx_init_barrier_thread_count(0, 1)
        T.tvm_storage_sync("shared")
        if tx == 0:
            T.ptx_cp_async_bulk("float32", memory, 0, A, 0, 256, 0)
            T.ptx_arrive_barrier_expect_tx(0, expected)
        if waits:
            T.ptx_wait_barrier(0)
        b[tx] = s[63 - tx]

    return kernel


def test_bulk_copies():
    a, b = rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")
    launch(bulk(256), a, b)
    np.testing.assert_array_equal(b, a[::-1])
    with pytest.raises(DeadlockError):
        launch(bulk(512), a, b)
    with pytest.raises((DataRaceError, UninitializedReadError)):
        launch(bulk(256, waits=False), a, b)


@pytest.mark.parametrize("synchronised", [True, False])
def test_named_barriers(synchronised):
    """Two warps of four exchange; the others do not take part."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((128,), "int32", data=A)
        memory = T.allocate([64], "int32", "shared")
        s = T.decl_buffer((64,), "int32", data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 128)
        if tx < 64:
            s[tx] = tx
            if synchronised:
                T.ptx_named_barrier_sync(1, 64)
            a[tx] = s[63 - tx]

    a = np.zeros(128, "int32")
    if synchronised:
        launch(kernel, a, block=(128, 1, 1))
        np.testing.assert_array_equal(a[:64], np.arange(64)[::-1])
    else:
        with pytest.raises(EmulationError):
            launch(kernel, a, block=(128, 1, 1))


NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}


@pytest.mark.parametrize(
    "in_dtype, trans_a, trans_b, config",
    [
        ("float16", False, True, HopperConfig(rows=64, columns=32, stages=2, warpgroups=1, persistent=3, group=2)),
        ("bfloat16", True, False, HopperConfig(rows=64, columns=32, stages=3, warpgroups=1)),
        ("float8_e4m3fn", False, True, HopperConfig(rows=64, columns=64, stages=2, warpgroups=1)),
        ("float16", False, True, HopperConfig(rows=64, columns=32, stages=2, warpgroups=1, cluster=2)),
        ("float16", False, True, HopperConfig(rows=128, columns=64, stages=3, warpgroups=2)),
    ],
)
def test_products_of_warpgroups(in_dtype, trans_a, trans_b, config):
    m, n, k = 256, 64, 128
    a = te.placeholder((k, m) if trans_a else (m, k), in_dtype, name="A")
    b = te.placeholder((n, k) if trans_b else (k, n), in_dtype, name="B")
    r = te.reduce_axis((0, k), name="r")

    def element(i, j):
        left, right = (a[r, i] if trans_a else a[i, r]), (b[j, r] if trans_b else b[r, j])
        return te.sum(left.astype("float32") * right.astype("float32"), axis=r)

    sch = tir.Schedule(te.create_prim_func([a, b, te.compute((m, n), element, name="C")]))
    main = get_single_reduction(sch, get_root_block(sch))
    assert normalize_product(sch, main)
    schedule_tiles(sch, main, config)
    kind = NUMPY.get(in_dtype, in_dtype)
    data = [(rng.integers(-4, 5, [int(s) for s in x.shape]) / 4).astype(kind) for x in (a, b)]
    out = np.full((m, n), np.nan, "float32")
    EmulatedModule(sch.mod, HOPPER).run("main", *data, out)
    left, right = (x.astype("float32") for x in data)
    np.testing.assert_array_equal(out, (left.T if trans_a else left) @ (right.T if trans_b else right))
