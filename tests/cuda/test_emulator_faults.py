"""Faults put into kernels are found, and the errors say where they are."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.backend.emulator import (
    BarrierDivergenceError, BarrierMisuseError, DataRaceError, DeadlockError, EmulatedKernels, EmulationError,
    MisalignedAccessError, OutOfBoundsError, SharedMemoryLimitError, StepLimitError, UninitializedReadError,
)  # fmt: skip
from relaxish.ir import IRModule
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError

rng = np.random.default_rng(8)


def launch(func, *arrays, grid=(1, 1, 1), block=(64, 1, 1), shared=0, check=True, **options):
    """Run one device function on arrays and numbers."""
    kernels = EmulatedKernels(IRModule({"kernel": func}), checked=check)
    program = kernels.program("kernel")
    args, sizes = [], {}
    for kind, value in zip(program.kinds, arrays, strict=True):
        if kind == "pointer":
            sizes[value.ctypes.data] = value.nbytes
            value = value.ctypes.data
        args.append((kind, value))
    kernels.launch("kernel", grid, block, shared, args, extent=sizes.get, **options)


def reversal(barrier):
    """Each thread writes an element of shared memory and reads another one's."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), B: T.handle("float32", "global")):
        a = T.decl_buffer((64,), data=A)
        b = T.decl_buffer((64,), data=B)
        memory = T.allocate([64], "float32", "shared")
        s = T.decl_buffer((64,), data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        s[tx] = a[tx]
        if barrier:
            T.tvm_storage_sync("shared")
        b[tx] = s[63 - tx]

    return kernel


def test_missing_barrier():
    a, b = rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")
    launch(reversal(True), a, b)
    np.testing.assert_array_equal(b, a[::-1])
    with pytest.raises((DataRaceError, UninitializedReadError)) as caught:
        launch(reversal(False), a, b)
    assert caught.value.kernel == "kernel" and caught.value.buffer == "s"
    assert caught.value.block == (0, 0, 0) and "63 - tx" in caught.value.statement


def test_race_names_both_threads():
    """The second loop turn overwrites what others still read."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((64,), data=A)
        memory = T.allocate([64], "float32", "shared")
        s = T.decl_buffer((64,), data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        for i in range(2):
            s[tx] = a[tx] + T.float32(1) * T.cast(i, "float32")
            T.tvm_storage_sync("shared")
            a[tx] = s[63 - tx]

    with pytest.raises(DataRaceError) as caught:
        launch(kernel, rng.standard_normal(64).astype("float32"))
    error = caught.value
    assert {error.thread[0] + error.other_thread[0]} == {63}
    assert "s[63 - tx]" in error.statement and "s[tx] = " in error.other_statement
    assert "kernel kernel: s[" in str(error) and "and thread" in str(error)


def test_storing_the_same_value_twice_is_no_race():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), step: T.int32):
        a = T.decl_buffer((64,), "int32", data=A)
        tx = T.launch_thread("threadIdx.x", 64)
        a[0] = 7 + tx * step

    launch(kernel, np.zeros(64, "int32"), 0)
    with pytest.raises(DataRaceError, match=r"a\[0\]"):
        launch(kernel, np.zeros(64, "int32"), 1)


def test_blocks_race_with_each_other():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((64,), "int32", data=A)
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 32)
        a[tx + 31 * bx] = bx

    with pytest.raises(DataRaceError) as caught:
        launch(kernel, np.zeros(64, "int32"), grid=(2, 1, 1), block=(32, 1, 1))
    assert caught.value.block == (1, 0, 0) and caught.value.index == 31


@pytest.mark.parametrize("shift", [1, -1])
@pytest.mark.parametrize("scope", ["global", "shared", "local"])
def test_index_off_by_one(scope, shift):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), at: T.int32):
        a = T.decl_buffer((32,), data=A)
        memory = T.allocate([32], "float32", "shared")
        s = T.decl_buffer((32,), data=memory, scope="shared")
        own = T.allocate([32], "float32", "local")
        r = T.decl_buffer((32,), data=own, scope="local")
        tx = T.launch_thread("threadIdx.x", 32)
        if scope == "global":
            a[tx + at] = T.float32(0)
        elif scope == "shared":
            s[tx + at] = T.float32(0)
        else:
            r[tx + at] = T.float32(0)

    launch(kernel, np.zeros(32, "float32"), 0, block=(32, 1, 1))
    with pytest.raises(OutOfBoundsError) as caught:
        launch(kernel, np.zeros(32, "float32"), shift, block=(32, 1, 1))
    assert caught.value.index == (32 if shift > 0 else -1)
    assert caught.value.thread == ((31 if shift > 0 else 0), 0, 0)


def test_reads_of_what_nobody_wrote():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((64,), data=A)
        memory = T.allocate([64], "float32", "shared")
        s = T.decl_buffer((64,), data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        if tx < 60:
            s[tx] = T.float32(1)
        T.tvm_storage_sync("shared")
        a[tx] = s[63 - tx]

    with pytest.raises(UninitializedReadError) as caught:
        launch(kernel, np.zeros(64, "float32"))
    assert caught.value.index >= 60 and caught.value.thread[0] == 63 - caught.value.index


def test_shared_memory_does_not_live_from_block_to_block():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((2,), data=A)
        memory = T.allocate([1], "float32", "shared")
        s = T.decl_buffer((1,), data=memory, scope="shared")
        bx = T.launch_thread("blockIdx.x", 2)
        if bx == 0:
            s[0] = T.float32(1)
        a[bx] = s[0]

    with pytest.raises(UninitializedReadError) as caught:
        launch(kernel, np.zeros(2, "float32"), grid=(2, 1, 1), block=(1, 1, 1))
    assert caught.value.block == (1, 0, 0)


def test_misaligned_vectors():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), at: T.int32):
        a = T.decl_buffer((160,), data=A)
        tx = T.launch_thread("threadIdx.x", 32)
        a[tx * 4 + at : tx * 4 + at + 4] = T.Broadcast(T.float32(2), 4)

    launch(kernel, np.zeros(160, "float32"), 4, block=(32, 1, 1))
    with pytest.raises(MisalignedAccessError, match="16 bytes at a time"):
        launch(kernel, np.zeros(160, "float32"), 2, block=(32, 1, 1))


def test_barrier_in_divergent_branch():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((64,), data=A)
        tx = T.launch_thread("threadIdx.x", 64)
        if tx < 32:
            T.tvm_storage_sync("shared")
        a[tx] = T.float32(1)

    with pytest.raises(EmulationError) as caught:
        launch(kernel, np.zeros(64, "float32"))
    assert isinstance(caught.value, (BarrierDivergenceError, DeadlockError))
    assert "tvm_storage_sync" in caught.value.statement


def test_different_barriers():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((64,), data=A)
        tx = T.launch_thread("threadIdx.x", 64)
        if tx < 32:
            T.tvm_storage_sync("shared")
            a[tx] = T.float32(1)
        else:
            T.tvm_storage_sync("shared")
            a[tx] = T.float32(2)

    with pytest.raises(BarrierDivergenceError):
        launch(kernel, np.zeros(64, "float32"))


def copies(waits, barrier=True):
    """A tile copied by ``cp.async`` and read in another order."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), B: T.handle("float32", "global")):
        a = T.decl_buffer((256,), data=A)
        b = T.decl_buffer((256,), data=B)
        memory = T.allocate([256], "float32", "shared")
        s = T.decl_buffer((256,), data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        T.ptx_cp_async("float32", memory, tx * 4, A, tx * 4, 16)
        T.ptx_commit_group()
        if waits:
            T.ptx_wait_group(0)
        if barrier:
            T.tvm_storage_sync("shared")
        for i in range(4):
            b[tx * 4 + i] = s[255 - (tx * 4 + i)]

    return kernel


def test_missing_wait_for_copies():
    a, b = rng.standard_normal(256).astype("float32"), np.zeros(256, "float32")
    launch(copies(True), a, b)
    np.testing.assert_array_equal(b, a[::-1])
    with pytest.raises(DataRaceError, match="asynchronous copy"):
        launch(copies(False), a, b)
    with pytest.raises(EmulationError):
        launch(copies(True, False), a, b)
    # Without checks the copy comes as late as it may: old data is read.
    launch(copies(False), a, b, check=False)
    assert np.isnan(b).all()


def test_copies_must_be_aligned():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), at: T.int32):
        a = T.decl_buffer((64,), data=A)
        memory = T.allocate([64], "float32", "shared")
        tx = T.launch_thread("threadIdx.x", 1)
        T.ptx_cp_async("float32", memory, 0, A, at, 16)
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        a[0] = T.float32(1)

    launch(kernel, np.zeros(64, "float32"), 4, block=(1, 1, 1))
    with pytest.raises(MisalignedAccessError):
        launch(kernel, np.zeros(64, "float32"), 3, block=(1, 1, 1))
    with pytest.raises(OutOfBoundsError):
        launch(kernel, np.zeros(64, "float32"), 64, block=(1, 1, 1))


def test_endless_loop_ends():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((1,), "int32", data=A)
        tx = T.launch_thread("threadIdx.x", 2)
        while a[0] == 0:
            T.evaluate(0)

    for check in (True, False):
        with pytest.raises(StepLimitError):
            launch(kernel, np.zeros(1, "int32"), block=(2, 1, 1), check=check, max_steps=100_000)


def test_long_loop_ends():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int64", "global"), n: T.int64):
        a = T.decl_buffer((1,), "int64", data=A)
        tx = T.launch_thread("threadIdx.x", 1)
        for i in range(n):
            a[0] = a[0] + i

    launch(kernel, np.zeros(1, "int64"), 1000, block=(1, 1, 1))
    with pytest.raises(StepLimitError):
        launch(kernel, np.zeros(1, "int64"), 1 << 50, block=(1, 1, 1))


def test_threads_that_wait_in_a_loop_let_others_run():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((2,), "int32", data=A)
        tx = T.launch_thread("threadIdx.x", 2)
        if tx == 0:
            while a[0] == 0:
                T.evaluate(0)
        else:
            a[0] = 1

    launch(kernel, np.zeros(2, "int32"), block=(2, 1, 1), check=False)


def test_too_much_shared_memory():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((1,), data=A)
        memory = T.allocate([100000], "float32", "shared")
        s = T.decl_buffer((100000,), data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 1)
        s[0] = T.float32(1)
        a[0] = s[0]

    with pytest.raises(SharedMemoryLimitError, match="400000 bytes"):
        launch(kernel, np.zeros(1, "float32"), block=(1, 1, 1))


def test_lanes_must_meet():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((32,), data=A)
        tx = T.launch_thread("threadIdx.x", 32)
        if tx < 16:
            a[tx] = T.tvm_warp_shuffle(T.uint32(0xFFFFFFFF), a[tx], 0, 32, 32)

    with pytest.raises(DeadlockError):
        launch(kernel, np.zeros(32, "float32"), block=(32, 1, 1))


def test_what_is_not_known_is_refused():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((32,), data=A)
        tx = T.launch_thread("threadIdx.x", 32)
        T.tvm_storage_sync("texture")
        a[tx] = T.float32(1)

    with pytest.raises(RelaxishError, match="scope texture"):
        launch(kernel, np.zeros(32, "float32"), block=(32, 1, 1))


def test_faults_leave_the_process_usable():
    a, b = rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")
    for _ in range(3):
        with pytest.raises(EmulationError):
            launch(reversal(False), a, b)
        launch(reversal(True), a, b)
        np.testing.assert_array_equal(b, a[::-1])
    assert issubclass(BarrierMisuseError, EmulationError)
