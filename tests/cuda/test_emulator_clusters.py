"""Blocks of a cluster: who may use whose shared memory and until when, what is published, who knows of a barrier."""

from __future__ import annotations

import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish.backend.emulator import (
    AsyncHazardError, BarrierDivergenceError, BarrierMisuseError, BlockExitError, DataRaceError, EmulationError,
    MisalignedAccessError,
)  # fmt: skip
from relaxish.backend.emulator.launch import TensorMap
from relaxish.script import tir as T

rng = np.random.default_rng(31)
WIDTH = 32
PAIR = {"grid": (2, 1, 1), "block": (WIDTH, 1, 1), "cluster": (2, 1, 1)}


@T.macro
def meet(kind):
    """Both blocks meet at the cluster's barrier: publishing, relaxed, or not at all."""
    if kind == "publish":
        T.ptx_cluster_arrive()
        T.ptx_cluster_wait()
    elif kind == "relaxed":
        T.ptx_cluster_arrive_relaxed()
        T.ptx_cluster_wait()


def fails(error, words, statement, run):
    """The fault is found; the error says so, and names kernel, block, thread and statement."""
    with pytest.raises(error, match=words) as caught:
        run(True)
    found = caught.value
    assert found.kernel == "kernel" and found.block is not None and found.thread is not None
    assert statement in found.statement + found.other_statement
    return found


# -- how long a block must stay ----------------------------------------------------------------------------------------


def arriving(*, wait, last, begin="publish"):
    """Each block arrives at the other's barrier; ``wait``: for the other's arrival; ``last``: how the blocks part."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((2 * WIDTH,), "int32", data=A)
        memory = T.allocate([16], "uint64", "shared")
        bars = T.decl_buffer((16,), "uint64", data=memory, scope="shared")
        bx = T.launch_thread("blockIdx.x", 2)
        rank = T.launch_thread("clusterIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", WIDTH)
        if tx == 0:
            T.ptx_mbarrier_init(T.address_of(bars[0]), 1)
            T.ptx_fence_mbarrier_init()
        meet(begin)
        if tx == 0:
            T.ptx_mbarrier_arrive(T.address_of(bars[0]), 1 - rank)
            if wait:
                T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
        a[bx * WIDTH + tx] = bx + 1
        meet(last)

    def run(check):
        a = np.zeros(2 * WIDTH, "int32")
        launch(kernel, a, check=check, **PAIR)
        np.testing.assert_array_equal(a, np.repeat([1, 2], WIDTH))

    return run


@pytest.mark.parametrize(
    "wait, last, begin", [(True, "", "publish"), (False, "publish", "publish"), (True, "relaxed", "relaxed")]
)
def test_arrivals_have_come_before_a_block_ends(wait, last, begin):
    for check in (True, False):
        arriving(wait=wait, last=last, begin=begin)(check)


@pytest.mark.parametrize("last", ["", "relaxed"])
def test_a_block_ends_before_an_arrival_has_come(last):
    found = fails(BlockExitError, "the block of rank", "ptx_mbarrier_arrive", arriving(wait=False, last=last))
    assert "not a relaxed one" in str(found)
    arriving(wait=False, last=last)(False)


def reading(*, first, last, writes="before", through=False):
    """Each block reads the other's shared memory; ``through``: told of the data by an arrival at its barrier."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global"), B: T.handle("float32", "global")):
        a = T.decl_buffer((8 * WIDTH,), data=A)
        b = T.decl_buffer((8 * WIDTH,), data=B)
        room = T.allocate([16], "uint64", "shared")
        bars = T.decl_buffer((16,), "uint64", data=room, scope="shared")
        memory = T.allocate([4 * WIDTH], "float32", "shared")
        s = T.decl_buffer((4 * WIDTH,), data=memory, scope="shared")
        held = T.allocate([4], "float32", "local")
        h = T.decl_buffer((4,), data=held, scope="local")
        bx = T.launch_thread("blockIdx.x", 2)
        rank = T.launch_thread("clusterIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", WIDTH)
        if through:
            if tx == 0:
                T.ptx_mbarrier_init(T.address_of(bars[0]), 1)
                T.ptx_fence_mbarrier_init()
            meet("publish")
        if writes == "before":
            for i in range(4):
                s[tx * 4 + i] = a[bx * 4 * WIDTH + tx * 4 + i]
        if writes == "between":
            T.ptx_cluster_arrive()
            for i in range(4):
                s[tx * 4 + i] = a[bx * 4 * WIDTH + tx * 4 + i]
            T.ptx_cluster_wait()
        meet(first)
        if through:
            T.tvm_storage_sync("shared")
            if tx == 0:
                T.ptx_mbarrier_arrive(T.address_of(bars[0]), 1 - rank)
            T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
        T.ptx_cluster_read(T.address_of(h[0]), T.address_of(s[tx * 4]), 1 - rank)
        for i in range(4):
            b[(1 - bx) * 4 * WIDTH + tx * 4 + i] = h[i]
        meet(last)

    def run(check):
        a, b = rng.standard_normal(8 * WIDTH).astype("float32"), np.zeros(8 * WIDTH, "float32")
        launch(kernel, a, b, check=check, **PAIR)
        if check:
            np.testing.assert_array_equal(b, a)

    return run


def test_reading_each_others_memory():
    for check in (True, False):
        reading(first="publish", last="publish")(check)
    reading(first="publish", last="publish", writes="between")(True)
    reading(first="publish", last="publish", through=True)(True)


@pytest.mark.parametrize("last", ["", "relaxed"])
def test_a_block_ends_while_another_reads_its_memory(last):
    fails(BlockExitError, "shared memory by the block of rank", "ptx_cluster_read", reading(first="publish", last=last))


# -- what is published -------------------------------------------------------------------------------------------------


def test_a_relaxed_barrier_publishes_nothing():
    found = fails(DataRaceError, "with nothing between", "ptx_cluster_read", reading(first="relaxed", last="publish"))
    assert found.buffer == "s" and "s[tx * 4" in found.other_statement


def test_writes_between_arrival_and_wait_are_not_published():
    found = fails(
        DataRaceError, "with nothing between", "ptx_cluster_read", reading(first="", last="publish", writes="between")
    )
    assert found.buffer == "s"


def test_an_arrival_in_another_block_publishes_nothing():
    """It is emitted without a release for the cluster: it says that something has been read."""
    found = fails(DataRaceError, "do not", "ptx_cluster_read", reading(first="", last="publish", through=True))
    assert found.buffer == "s" and "publishes" in str(found)


def test_an_arrival_in_another_block_orders_reads():
    """Block 1 overwrites what block 0 has read; the arrival of block 0 says that it has."""

    def made(tell):
        @T.prim_func(check_well_formed=False)
        def kernel(A: T.handle("int32", "global"), B: T.handle("int32", "global")):
            a = T.decl_buffer((WIDTH,), "int32", data=A)
            b = T.decl_buffer((WIDTH,), "int32", data=B)
            room = T.allocate([16], "uint64", "shared")
            bars = T.decl_buffer((16,), "uint64", data=room, scope="shared")
            bx = T.launch_thread("blockIdx.x", 2)
            rank = T.launch_thread("clusterIdx.x", 2)
            tx = T.launch_thread("threadIdx.x", WIDTH)
            if tx == 0:
                T.ptx_mbarrier_init(T.address_of(bars[0]), WIDTH)
                T.ptx_fence_mbarrier_init()
            meet("relaxed")
            if rank == 0:
                b[tx] = a[tx]
                T.ptx_mbarrier_arrive(T.address_of(bars[0]), 1)
            if rank == 1:
                if tell:
                    T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
                a[tx] = tx
            meet("publish")

        def run(check):
            a, b = rng.integers(50, 99, WIDTH).astype("int32"), np.zeros(WIDTH, "int32")
            before = a.copy()
            launch(kernel, a, b, check=check, **PAIR)
            np.testing.assert_array_equal(b, before)
            np.testing.assert_array_equal(a, np.arange(WIDTH))

        return run

    made(True)(True)
    fails(DataRaceError, "which another thread", "a[", made(False))


# -- who knows of a barrier --------------------------------------------------------------------------------------------


def made_barrier(*, sync="", fence=True, remote=False, init=True):
    """One thread makes a barrier, others use it: in the same block, or in the other one."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((2 * WIDTH,), "int32", data=A)
        room = T.allocate([16], "uint64", "shared")
        bars = T.decl_buffer((16,), "uint64", data=room, scope="shared")
        bx = T.launch_thread("blockIdx.x", 2)
        rank = T.launch_thread("clusterIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", WIDTH)
        if tx == 0:
            if init:
                T.ptx_mbarrier_init(T.address_of(bars[0]), WIDTH)
            if fence:
                T.ptx_fence_mbarrier_init()
        if sync == "block":
            T.tvm_storage_sync("shared")
        else:
            meet(sync)
        if remote:
            T.ptx_mbarrier_arrive(T.address_of(bars[0]), 1 - rank)
        else:
            T.ptx_mbarrier_arrive(T.address_of(bars[0]))
        T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
        a[bx * WIDTH + tx] = tx
        meet("publish")

    def run(check):
        a = np.zeros(2 * WIDTH, "int32")
        launch(kernel, a, check=check, **PAIR)
        np.testing.assert_array_equal(a, np.tile(np.arange(WIDTH), 2))

    return run


@pytest.mark.parametrize(
    "options",
    [
        {"sync": "block", "fence": False},
        {"sync": "publish", "fence": False, "remote": True},
        {"sync": "relaxed", "remote": True},
        {"sync": "relaxed"},
    ],
)
def test_barriers_that_others_know(options):
    for check in (True, False):
        made_barrier(**options)(check)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"sync": ""}, "does not know yet"),
        ({"sync": "relaxed", "fence": False}, "does not know yet"),
        ({"sync": "relaxed", "fence": False, "remote": True}, "does not know yet"),
        ({"sync": "block", "remote": True}, "does not know yet|not initialised"),
        ({"sync": "publish", "init": False}, "not initialised"),
        ({"sync": "publish", "init": False, "remote": True}, "not initialised"),
    ],
)
def test_barriers_that_others_do_not_know(options, words):
    fails(BarrierMisuseError, words, "ptx_mbarrier_arrive", made_barrier(**options))


def turning(*, first, second):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((2 * WIDTH,), "int32", data=A)
        bx = T.launch_thread("blockIdx.x", 2)
        rank = T.launch_thread("clusterIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", WIDTH)
        if first:
            T.ptx_cluster_arrive()
        if second:
            T.ptx_cluster_arrive()
        T.ptx_cluster_wait()
        a[bx * WIDTH + tx] = tx

    return lambda check: launch(kernel, np.zeros(2 * WIDTH, "int32"), check=check, **PAIR)


def test_arrivals_and_waits_take_turns():
    turning(first=True, second=False)(True)
    fails(BarrierMisuseError, "arrives a second time", "ptx_cluster_arrive", turning(first=True, second=True))
    fails(BarrierMisuseError, "waits without having arrived", "ptx_cluster_wait", turning(first=False, second=False))


# -- what phases and barriers show -------------------------------------------------------------------------------------


def test_a_phase_shows_what_came_before_it():
    """The first thread writes again and arrives in the next phase; who waits for the first phase does not know of that."""

    def made(again):
        @T.prim_func(check_well_formed=False)
        def kernel(A: T.handle("int32", "global")):
            a = T.decl_buffer((WIDTH,), "int32", data=A)
            room = T.allocate([16], "uint64", "shared")
            bars = T.decl_buffer((16,), "uint64", data=room, scope="shared")
            memory = T.allocate([2], "int32", "shared")
            s = T.decl_buffer((2,), "int32", data=memory, scope="shared")
            tx = T.launch_thread("threadIdx.x", WIDTH)
            if tx == 0:
                T.ptx_mbarrier_init(T.address_of(bars[0]), 2)
                s[0] = 5
                s[1] = 6
            T.tvm_storage_sync("shared")
            if tx == 0:
                s[0] = 7
                T.ptx_mbarrier_arrive(T.address_of(bars[0]))
            if tx == 1:
                T.ptx_mbarrier_arrive(T.address_of(bars[0]))
            if tx == 0 and again:
                T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
                s[1] = 8
                T.ptx_mbarrier_arrive(T.address_of(bars[0]))
            if tx == 2:
                T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
                a[0] = s[0]
                a[1] = s[1]

        def run(check):
            a = np.zeros(WIDTH, "int32")
            launch(kernel, a, block=(WIDTH, 1, 1), check=check)
            np.testing.assert_array_equal(a[:2], [7, 6])

        return run

    made(False)(True)
    found = fails(DataRaceError, "which another thread", "s[1]", made(True))
    assert found.buffer == "s" and found.index == 1


def test_who_only_arrives_is_not_waited_for():
    """A barrier of the block at which one warp arrives and goes on: what it writes then is not in order."""

    def made(late):
        @T.prim_func(check_well_formed=False)
        def kernel(A: T.handle("int32", "global")):
            a = T.decl_buffer((64,), "int32", data=A)
            memory = T.allocate([32], "int32", "shared")
            s = T.decl_buffer((32,), "int32", data=memory, scope="shared")
            tx = T.launch_thread("threadIdx.x", 64)
            if tx < 32:
                if not late:
                    s[tx] = tx
                T.ptx_named_barrier_arrive(1, 64)
                if late:
                    s[tx] = tx
            else:
                T.ptx_named_barrier_sync(1, 64)
                a[tx] = s[tx - 32]

        def run(check):
            a = np.zeros(64, "int32")
            launch(kernel, a, check=check)
            np.testing.assert_array_equal(a[32:], np.arange(32))

        return run

    made(False)(True)
    assert fails(DataRaceError, "which another thread", "s[", made(True)).buffer == "s"


# -- bulk loads --------------------------------------------------------------------------------------------------------


def load(*, fence="proxy", wait=True, stores=False):
    """A bulk load of 64 bytes; ``stores``: of what the kernel itself has just written."""

    @T.prim_func(check_well_formed=False)
    def kernel(M: T.handle("int32", "tensor_map"), D: T.handle("int32", "global"), E: T.handle("int32", "global")):
        d = T.decl_buffer((16,), "int32", data=D)
        e = T.decl_buffer((16,), "int32", data=E)
        room = T.allocate([16], "uint64", "shared")
        bars = T.decl_buffer((16,), "uint64", data=room, scope="shared")
        memory = T.allocate([32], "int32", "shared")
        s = T.decl_buffer((32,), "int32", data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 32)
        if tx == 0:
            T.ptx_mbarrier_init(T.address_of(bars[0]), 1)
            if fence == "proxy":
                T.ptx_fence_proxy_async()
            if fence == "init":
                T.ptx_fence_mbarrier_init()
        if stores and tx < 16:
            d[tx] = tx
        T.tvm_storage_sync("shared")
        if tx == 0:
            T.ptx_fence_proxy_async() if stores else T.evaluate(0)
            T.ptx_mbarrier_arrive_expect_tx(T.address_of(bars[0]), 64)
            T.ptx_tma_load(T.address_of(s[0]), M, T.address_of(bars[0]), 0, 0)
        if wait:
            T.ptx_mbarrier_wait_parity(T.address_of(bars[0]), 0)
            if tx < 16:
                e[tx] = s[tx]

    def run(check):
        d, e = rng.integers(1, 99, 16).astype("int32"), np.zeros(16, "int32")
        launch(kernel, TensorMap(d.ctypes.data, 4, (16,), (4,), (16,), 0), d, e, block=(32, 1, 1), check=check)
        if wait:
            np.testing.assert_array_equal(e, d)

    return run


def test_bulk_loads():
    for fence in ("proxy", "init"):
        for check in (True, False):
            load(fence=fence)(check)


def test_bulk_loads_complete_on_a_published_barrier():
    fails(BarrierMisuseError, "not published to copies", "ptx_tma_load", load(fence=""))


def test_a_block_ends_while_a_bulk_load_is_under_way():
    fails(BlockExitError, "nobody has waited for it", "ptx_tma_load", load(wait=False))


def test_a_bulk_load_does_not_see_stores_of_the_same_launch():
    found = fails(AsyncHazardError, "fence.proxy.async.global", "ptx_tma_load", load(stores=True))
    assert found.buffer == "M" or found.buffer == "D"


# -- products ----------------------------------------------------------------------------------------------------------


def products(*, threads=128, first=0, at=0, swizzle=0, stride=256):
    """A product by the warps of a group from ``first`` on; its second operand begins ``at`` elements further on."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float32", "global")):
        a = T.decl_buffer((128,), data=A)
        memory = T.allocate([4096], "float16", "shared")
        s = T.decl_buffer((4096,), "float16", data=memory, scope="shared")
        result = T.allocate([4], "float32", "local")
        r = T.decl_buffer((4,), "float32", data=result, scope="local")
        tx = T.launch_thread("threadIdx.x", threads)
        for i in range(4096 // threads):
            s[i * threads + tx] = T.float16(1)
        T.ptx_fence_proxy_async()
        T.tvm_storage_sync("shared")
        if tx >= first * 32:
            T.ptx_wgmma_fence()
            T.ptx_wgmma_ss(
                8, "float16", "float16", "float32", result, 0, T.address_of(s[0]), 128, 256, 0, False,
                T.address_of(s[1024 + at]), 128, stride, swizzle, False, False,
            )  # fmt: skip
            T.ptx_wgmma_commit()
            T.ptx_wgmma_wait(0)
            a[tx] = r[0]

    def run(check):
        a = np.zeros(128, "float32")
        launch(kernel, a, block=(threads, 1, 1), check=check)
        if check:
            np.testing.assert_array_equal(a, np.full(128, 16, "float32"))

    return run


def test_all_warps_of_a_group_multiply():
    products(threads=128)(True)
    for options in ({"threads": 64}, {"threads": 128, "first": 1}):
        fails(BarrierDivergenceError, "all four warps", "ptx_wgmma_ss", products(**options))


@pytest.mark.parametrize("at, swizzle", [(0, 128), (16, 128), (48, 128), (512, 128), (256, 64), (128, 32), (64, 0)])
def test_operands_begin_with_their_pattern(at, swizzle):
    products(at=at, swizzle=swizzle, stride=8 * (swizzle or 32))(True)


@pytest.mark.parametrize("options", [
    {"at": 64, "swizzle": 128}, {"at": 128, "swizzle": 64}, {"at": 64, "swizzle": 32}, {"at": 4}, {"stride": 264},
    {"stride": 1 << 18},
])  # fmt: skip
def test_operands_that_descriptors_cannot_say(options):
    found = fails(MisalignedAccessError, "descriptor cannot say", "ptx_wgmma_ss", products(**options))
    assert found.buffer == "s"


@pytest.mark.parametrize("number, count", [(16, 64), (-1, 64), (1, 48)])
def test_barriers_of_a_block_that_there_are_not(number, count):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((64,), "int32", data=A)
        tx = T.launch_thread("threadIdx.x", 64)
        T.ptx_named_barrier_sync(number, count)
        a[tx] = tx

    fails(
        BarrierMisuseError, "0 to 15, for multiples of 32", "ptx_named_barrier_sync",
        lambda check: launch(kernel, np.zeros(64, "int32"), check=check),
    )  # fmt: skip


@pytest.mark.parametrize(
    "count, nbytes, right",
    [(1, 2**20 - 1, True), (2**20 - 1, 16, True), (1, 2**20, False), (0, 16, False), (2**20, 16, False)],
)
def test_counts_of_memory_barriers(count, nbytes, right):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((32,), "int32", data=A)
        room = T.allocate([16], "uint64", "shared")
        bars = T.decl_buffer((16,), "uint64", data=room, scope="shared")
        tx = T.launch_thread("threadIdx.x", 32)
        if tx == 0:
            T.ptx_mbarrier_init(T.address_of(bars[0]), count)
            T.ptx_mbarrier_arrive_expect_tx(T.address_of(bars[0]), nbytes)
        a[tx] = tx

    def run(check):
        launch(kernel, np.zeros(32, "int32"), block=(32, 1, 1), check=check)

    if right:
        run(True)
    else:
        fails(BarrierMisuseError, "beyond 2\\*\\*20 - 1", "ptx_mbarrier", run)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"grid": (3, 1, 1), "cluster": (2, 1, 1)}, "whole clusters"), ({"grid": (16, 1, 1), "cluster": (16, 1, 1)}, "1 to 8"),
        ({"block": (2048, 1, 1)}, "1 to 1024"),
    ],
)  # fmt: skip
def test_what_the_driver_refuses(options, words):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global")):
        a = T.decl_buffer((32,), "int32", data=A)
        tx = T.launch_thread("threadIdx.x", 32)
        a[0] = 1

    with pytest.raises(EmulationError, match=f"cannot be launched.*{words}"):
        launch(kernel, np.zeros(32, "int32"), **{"block": (32, 1, 1), **options})
