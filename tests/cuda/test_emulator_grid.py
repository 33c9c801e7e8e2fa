"""Blocks that wait for each other: barriers of the whole grid, counters made of atomic updates; all atomic functions."""

from __future__ import annotations

import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish.backend.emulator import DataRaceError, DeadlockError, EmulationError, StepLimitError
from relaxish.script import tir as T

rng = np.random.default_rng(9)
BLOCKS, WIDTH = 5, 64
COUNT = BLOCKS * WIDTH


def extern(name, *args, dtype="int32"):
    return T.call_extern(dtype, name, *args)


def reversal(scope, skipping=False):
    """Each block writes its part, then reads another block's."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), B: T.handle("int32", "global"), C: T.handle("int32", "global")):
        a = T.decl_buffer((COUNT,), "int32", data=A)
        b = T.decl_buffer((COUNT,), "int32", data=B)
        c = T.decl_buffer((COUNT,), "int32", data=C)
        bx = T.launch_thread("blockIdx.x", BLOCKS)
        tx = T.launch_thread("threadIdx.x", WIDTH)
        at = bx * WIDTH + tx
        b[at] = a[at] * 2
        if skipping:
            if bx > 0:
                T.tvm_storage_sync(scope)
                a[at] = c[at]
        else:
            T.tvm_storage_sync(scope)
            c[at] = b[COUNT - 1 - at]
        if scope == "global" and not skipping:
            T.tvm_storage_sync(scope)
            b[at] = c[COUNT - 1 - at] + 1

    return kernel


def arrays():
    return rng.integers(0, 99, COUNT).astype("int32"), np.zeros(COUNT, "int32"), np.zeros(COUNT, "int32")


def test_barrier_of_the_grid():
    for check in (True, False):
        a, b, c = arrays()
        launch(reversal("global"), a, b, c, grid=(BLOCKS, 1, 1), check=check)
        np.testing.assert_array_equal(c, 2 * a[::-1])
        np.testing.assert_array_equal(b, 2 * a + 1)
    with pytest.raises(DataRaceError) as caught:
        launch(reversal("shared"), *arrays(), grid=(BLOCKS, 1, 1))
    assert caught.value.buffer == "b" and caught.value.kernel == "kernel"
    with pytest.raises(DeadlockError) as stuck:
        launch(reversal("global", skipping=True), *arrays(), grid=(BLOCKS, 1, 1))
    assert 'tvm_storage_sync("global")' in stuck.value.statement


def test_all_blocks_must_run_together():
    """A processor has room for 32 blocks of 64 threads."""
    with pytest.raises(DeadlockError, match="it has 5 blocks, and 4 can run together"):

        @T.prim_func(check_well_formed=False)
        def kernel(A: T.handle("int32", "global")):
            a = T.decl_buffer((5,), "int32", data=A)
            bx = T.launch_thread("blockIdx.x", 5)
            tx = T.launch_thread("threadIdx.x", 512)
            T.tvm_storage_sync("global")
            if tx == 0:
                a[bx] = 1

        launch(kernel, np.zeros(5, "int32"), grid=(5, 1, 1), block=(512, 1, 1), processors=1)


def test_a_block_barrier_orders_one_block_alone():
    """The second block's own barriers do not order it after the first, whose blocks run before it."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), B: T.handle("int32", "global")):
        a = T.decl_buffer((2,), "int32", data=A)
        b = T.decl_buffer((2,), "int32", data=B)
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 32)
        T.tvm_storage_sync("global")
        if bx == 0 and tx == 0:
            a[0] = 1
        for _ in range(3):
            T.tvm_storage_sync("shared")
        if bx == 1 and tx == 0:
            b[0] = a[0]

    with pytest.raises(DataRaceError) as caught:
        launch(kernel, np.zeros(2, "int32"), np.zeros(2, "int32"), grid=(2, 1, 1), block=(32, 1, 1))
    assert caught.value.buffer in "ab"


def counter(*, release=True, acquire=True, plain=False, wanted=BLOCKS):
    """A barrier of the grid by hand: one thread of each block counts up and waits for the others."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), B: T.handle("int32", "global"), N: T.handle("uint32", "global")):
        a = T.decl_buffer((COUNT,), "int32", data=A)
        b = T.decl_buffer((COUNT,), "int32", data=B)
        n = T.decl_buffer((1,), "uint32", data=N)
        bx = T.launch_thread("blockIdx.x", BLOCKS)
        tx = T.launch_thread("threadIdx.x", WIDTH)
        a[bx * WIDTH + tx] = bx * WIDTH + tx
        T.tvm_storage_sync("shared")
        if tx == 0:
            if release:
                T.evaluate(extern("__threadfence"))
            T.evaluate(extern("atomicAdd", T.address_of(n[0]), T.uint32(1), dtype="uint32"))
            if plain:
                while n[0] < T.uint32(wanted):
                    T.evaluate(0)
            else:
                while extern("atomicCAS", T.address_of(n[0]), T.uint32(0), T.uint32(0), dtype="uint32") < T.uint32(
                    wanted
                ):
                    T.evaluate(0)
            if acquire:
                T.evaluate(extern("__threadfence"))
        T.tvm_storage_sync("shared")
        b[bx * WIDTH + tx] = a[COUNT - 1 - bx * WIDTH - tx]

    return kernel


def counted(check=True, **options):
    a, b, n = np.zeros(COUNT, "int32"), np.zeros(COUNT, "int32"), np.zeros(1, "uint32")
    launch(counter(**options), a, b, n, grid=(BLOCKS, 1, 1), check=check, max_steps=1_000_000)
    return b


def test_barrier_by_a_counter():
    for check in (True, False):
        np.testing.assert_array_equal(counted(check), np.arange(COUNT)[::-1])


@pytest.mark.parametrize("options", [{"release": False}, {"acquire": False}])
def test_counter_without_memory_fence(options):
    with pytest.raises(DataRaceError) as caught:
        counted(**options)
    assert caught.value.buffer == "a" and "a[" in caught.value.statement + caught.value.other_statement


def test_counter_that_is_read_without_care():
    with pytest.raises(DataRaceError) as caught:
        counted(plain=True)
    assert caught.value.buffer == "n"


def test_counter_that_never_gets_there():
    with pytest.raises(StepLimitError):
        counted(wanted=BLOCKS + 1)


@pytest.mark.parametrize(
    "name, dtype, old, values, wanted",
    [
        ("atomicAdd", "int32", 5, [7], 12), ("atomicAdd", "float64", 0.5, [0.25], 0.75), ("atomicAdd", "float16", 1.5, [2], 3.5),
        ("atomicAdd", "bfloat16", 1.5, [2], 3.5), ("atomicAdd", "uint64", 2**63, [2**63 - 1], 2**64 - 1),
        ("atomicSub", "uint32", 3, [5], 2**32 - 2), ("atomicExch", "float32", 1, [2], 2), ("atomicMax", "uint64", 2**63, [1], 2**63),
        ("atomicMin", "int64", -3, [4], -3), ("atomicMax", "uint32", 2**31, [1], 2**31), ("atomicInc", "uint32", 4, [5], 5),
        ("atomicInc", "uint32", 5, [5], 0), ("atomicDec", "uint32", 0, [5], 5), ("atomicDec", "uint32", 9, [5], 5),
        ("atomicDec", "uint32", 3, [5], 2), ("atomicAnd", "int32", 12, [10], 8), ("atomicOr", "uint32", 12, [10], 14),
        ("atomicXor_block", "uint64", 12, [10], 6), ("atomicCAS", "int32", 3, [3, 9], 9), ("atomicCAS_system", "uint64", 4, [3, 9], 4),
    ],
)  # fmt: skip
def test_atomic_functions(name, dtype, old, values, wanted):
    import ml_dtypes

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(dtype, "global"), B: T.handle(dtype, "global")):
        a = T.decl_buffer((2,), dtype, data=A)
        b = T.decl_buffer((1,), dtype, data=B)
        tx = T.launch_thread("threadIdx.x", 1)
        b[0] = T.call_extern(dtype, name, T.address_of(a[1]), *[T.cast(v, dtype) for v in values])

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a, b = np.array([77, old], kind), np.zeros(1, kind)
    launch(kernel, a, b, block=(1, 1, 1))
    assert a.tolist() == [77, wanted] and b.tolist() == [old]


def test_compare_and_swap_counts_all_threads():
    """An update by hand, tried until nobody came between."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((1,), "int32", data=A)
        seen = T.decl_buffer((2,), "int32", scope="local")
        bx = T.launch_thread("blockIdx.x", 3)
        tx = T.launch_thread("threadIdx.x", 32)
        seen[0] = -1
        seen[1] = 0
        while seen[0] != seen[1]:
            seen[1] = seen[0] + T.if_then_else(seen[0] < 0, 1, 0)
            seen[0] = extern("atomicCAS", T.address_of(a[0]), seen[1], seen[1] + bx + 1)

    a = np.zeros(1, "int32")
    launch(kernel, a, grid=(3, 1, 1), block=(32, 1, 1))
    assert a[0] == 32 * (1 + 2 + 3)
    assert issubclass(DeadlockError, EmulationError)
