"""Asynchronous work in small kernels: products from registers, bulk stores, groups, fences, registers given back."""

from __future__ import annotations

import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish.backend.emulator import (
    AsyncHazardError, DataRaceError, DeadlockError, MisalignedAccessError, RegisterCountError, UninitializedReadError,
)  # fmt: skip
from relaxish.backend.emulator.launch import TensorMap
from relaxish.script import tir as T

rng = np.random.default_rng(6)
GROUP = (128, 1, 1)


def from_registers(*, fence=True, between=False, columns=8, wait=True, fill_after=False):
    """C = A * B for one warpgroup: A (64 x 16, halves) from registers, B (16 columns) through shared memory."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float16", "global"), B: T.handle("float16", "global"), C: T.handle("float32", "global")):
        a = T.decl_buffer((1024,), "float16", data=A)
        b = T.decl_buffer((256,), "float16", data=B)
        c = T.decl_buffer((1024,), "float32", data=C)
        memory = T.allocate([256], "float16", "shared")
        s = T.decl_buffer((256,), "float16", data=memory, scope="shared")
        held = T.allocate([8], "float16", "local")
        h = T.decl_buffer((8,), "float16", data=held, scope="local")
        result = T.allocate([8], "float32", "local")
        r = T.decl_buffer((8,), "float32", data=result, scope="local")
        tx = T.launch_thread("threadIdx.x", 128)
        # Two groups of 8 columns; each has two pieces of 8 rows by 16 bytes.
        for i in range(2):
            s[tx * 2 + i] = b[tx * 2 + i]
        for i in range(8):
            h[i] = a[(tx // 32 * 16 + tx % 32 // 4 + i // 2 % 2 * 8) * 16 + i // 4 * 8 + tx % 4 * 2 + i % 2]
        T.ptx_fence_proxy_async()
        T.tvm_storage_sync("shared")
        if fence:
            T.ptx_wgmma_fence()
        if between:
            h[0] = h[0] + T.float16(1)
        T.ptx_wgmma_rs(
            8, "float16", "float16", "float32", result, 0, held, 0, T.address_of(s[0]), 128, 256, 0, False, False
        )  # fmt: skip
        if columns == 16:
            T.ptx_wgmma_rs(
                16, "float16", "float16", "float32", result, 0, held, 0, T.address_of(s[0]), 128, 256, 0, False, True
            )  # fmt: skip
        T.ptx_wgmma_commit()
        if fill_after:
            h[0] = T.float16(0)
        if wait:
            T.ptx_wgmma_wait(0)
        for i in range(4):
            c[(tx // 32 * 16 + tx % 32 // 4 + i // 2 * 8) * 8 + tx % 4 * 2 + i % 2] = r[i]

    return kernel


def operands():
    a = (rng.integers(-4, 5, (64, 16)) / 4).astype("float16")
    b = (rng.integers(-4, 5, (16, 16)) / 4).astype("float16")
    # Rows of B by pieces of 8 along the depth: 128 bytes apart; groups of 8 columns 256 bytes apart.
    placed = b.reshape(16, 2, 8).reshape(2, 8, 2, 8).transpose(0, 2, 1, 3).copy()
    return a, b, placed, np.zeros((64, 16), "float32")


def test_product_from_registers():
    a, b, placed, c = operands()
    launch(from_registers(), a, placed, c, block=GROUP)
    np.testing.assert_array_equal(c.reshape(-1)[:512].reshape(64, 8), a.astype("float32") @ b[:8].T.astype("float32"))


@pytest.mark.parametrize(
    "options, words, buffer",
    [
        ({"fence": False}, "there has been none", "r"),
        ({"between": True}, "for h: the register has been used otherwise", "h"),
        ({"columns": 16}, "for r: the register has been used otherwise", "r"),
        ({"wait": False}, "has not been waited for", "r"),
        ({"fill_after": True}, "has not been waited for", "h"),
    ],
)
def test_registers_of_products(options, words, buffer):
    a, _, placed, c = operands()
    with pytest.raises(AsyncHazardError, match=words) as caught:
        launch(from_registers(**options), a, placed, c, block=GROUP)
    assert caught.value.buffer == buffer
    assert "ptx_wgmma_rs" in caught.value.statement + caught.value.other_statement
    # Without checks nothing is looked at.
    launch(from_registers(**options), a, placed, c, block=GROUP, check=False)


def store(*, fence=True, commit=True, wait="all", refill=False, look=False, at=0, fence_after=False):
    """A bulk store of 64 bytes by one thread; then others write shared memory again, or read what was stored."""

    @T.prim_func(check_well_formed=False)
    def kernel(M: T.handle("uint8", "tensor_map"), D: T.handle("int32", "global"), E: T.handle("int32", "global")):
        d = T.decl_buffer((16,), "int32", data=D)
        e = T.decl_buffer((16,), "int32", data=E)
        memory = T.allocate([64], "int32", "shared")
        s = T.decl_buffer((64,), "int32", data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 32)
        s[tx] = tx
        s[tx + 32] = tx
        if fence:
            T.ptx_fence_proxy_async()
        T.tvm_storage_sync("shared")
        if tx == 0:
            if fence_after:
                T.ptx_fence_proxy_async()
            T.ptx_tma_store(M, T.address_of(s[at]), 0)
            if commit:
                T.ptx_tma_store_commit()
            if wait == "all":
                T.ptx_tma_store_wait(0, False)
            if wait == "read":
                T.ptx_tma_store_wait(0, True)
            if wait == "one":
                T.ptx_tma_store_wait(1, True)
        T.tvm_storage_sync("shared")
        if refill:
            s[tx] = 7
        if look:
            e[tx % 16] = d[tx % 16]
        if tx == 0:
            T.ptx_tma_store_wait(0, True)

    return kernel


def stored(**options):
    d, e = np.full(16, -1, "int32"), np.zeros(16, "int32")
    tensor = TensorMap(d.ctypes.data, 4, (16,), (4,), (16,), 0)
    launch(store(**options), tensor, d, e, block=(32, 1, 1))
    return d, e


def test_bulk_store():
    for options in (
        {"refill": True},
        {"look": True},
        {"wait": "read", "refill": True},
        {"fence": False, "fence_after": True},
    ):
        d, e = stored(**options)
        np.testing.assert_array_equal(d, np.arange(16))
        if "look" in options:
            np.testing.assert_array_equal(e, d)


@pytest.mark.parametrize(
    "options, error, words, buffer",
    [
        ({"refill": True, "wait": ""}, AsyncHazardError, "no wait for its group", "s"),
        ({"refill": True, "wait": "one"}, AsyncHazardError, "no wait for its group", "s"),
        ({"refill": True, "commit": False}, AsyncHazardError, "not been closed", "s"),
        ({"fence": False}, AsyncHazardError, "before a fence.proxy.async", "s"),
        ({"look": True, "wait": "read"}, DataRaceError, "asynchronous copy may be writing it", "d"),
        ({"commit": False}, AsyncHazardError, "ends while a bulk store", "s"),
        ({"at": 4}, MisalignedAccessError, "128 bytes", "s"),
    ],
)
def test_faults_of_bulk_stores(options, error, words, buffer):
    with pytest.raises(error, match=words) as caught:
        stored(**options)
    assert caught.value.kernel == "kernel" and caught.value.buffer == buffer
    assert "ptx_tma_store" in caught.value.statement + caught.value.other_statement


def adjusting(producer, consumer, *, skip=0, blocks=1):
    """Two warpgroups: one gives registers back, the other takes more; ``skip`` warps of the first do nothing."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((256,), "int32", data=A)
        with T.attr(T.int32(0), "min_blocks_per_sm", blocks):
            tx = T.launch_thread("threadIdx.x", 256)
            if tx < 128:
                if tx >= skip * 32:
                    T.ptx_setmaxnreg(producer, False)
            else:
                T.ptx_setmaxnreg(consumer, True)
            a[tx] = tx

    return kernel


def test_registers_move():
    a = np.zeros(256, "int32")
    # 256 threads: 256 registers each at launch; two blocks on a processor: 128.
    launch(adjusting(32, 224, blocks=2), a, block=(256, 1, 1))
    np.testing.assert_array_equal(a, np.arange(256))
    with pytest.raises(DeadlockError, match="warpgroup 1 waits for registers: it has 128 a thread") as caught:
        launch(adjusting(32, 232, blocks=2), a, block=(256, 1, 1))
    assert "ptx_setmaxnreg(232" in caught.value.statement and caught.value.thread[0] >= 128
    with pytest.raises(RegisterCountError, match="not all warps of warpgroup 0"):
        launch(adjusting(120, 128, blocks=2, skip=1), a, block=(256, 1, 1))


def test_branches_of_a_warpgroup_differ():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((128,), "int32", data=A)
        with T.attr(T.int32(0), "min_blocks_per_sm", 4):
            tx = T.launch_thread("threadIdx.x", 128)
            if tx < 64:
                T.ptx_setmaxnreg(64, False)
            else:
                T.ptx_setmaxnreg(72, False)
            a[tx] = tx

    with pytest.raises(RegisterCountError, match="not all warps of warpgroup 0"):
        launch(kernel, np.zeros(128, "int32"), block=GROUP)


def test_operand_that_nobody_wrote():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((128,), data=A)
        memory = T.allocate([2048], "float16", "shared")
        s = T.decl_buffer((2048,), "float16", data=memory, scope="shared")
        result = T.allocate([4], "float32", "local")
        r = T.decl_buffer((4,), "float32", data=result, scope="local")
        tx = T.launch_thread("threadIdx.x", 128)
        T.ptx_wgmma_fence()
        T.ptx_wgmma_ss(
            8, "float16", "float16", "float32", result, 0, T.address_of(s[0]), 128, 256, 0, False,
            T.address_of(s[1024]), 128, 256, 0, False, False,
        )  # fmt: skip
        T.ptx_wgmma_commit()
        T.ptx_wgmma_wait(0)
        a[tx] = r[0]

    with pytest.raises(UninitializedReadError) as caught:
        launch(kernel, np.zeros(128, "float32"), block=GROUP)
    assert caught.value.buffer == "s"
