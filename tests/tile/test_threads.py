"""Kernels written for one thread: what threads of a warp do together, and barriers, in emulation with race checks."""

from __future__ import annotations

import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, check, run

import relaxish
import relaxish.tile.language as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.tir.transform.tiles import TileLoweringError


def test_shuffles():
    @T.prim_func
    def main(A: T.Tensor((2, 64), "float32"), B: T.Tensor((4, 2, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            tx = T.get_thread_binding()
            x = T.alloc_local((1,), "float32")
            x[0] = A[bx, tx]
            B[0, bx, tx] = T.shfl_xor(x[0], 5)
            B[1, bx, tx] = T.shfl_up(x[0], 3)
            B[2, bx, tx] = T.shfl_down(x[0], 2, width=8)
            B[3, bx, tx] = T.shfl_sync(x[0], tx * 7 % 32)

    (a,) = arrays(0, (2, 64))
    warps = a.reshape(2, 2, 32)
    lane = np.arange(32)
    down = np.where(lane % 8 + 2 < 8, lane + 2, lane)
    places = [lane ^ 5, np.maximum(lane - 3, 0) * (lane >= 3) + lane * (lane < 3), down, lane * 7 % 32]
    wanted = np.stack([warps[..., p].reshape(2, 64) for p in places])
    check(main, [a], wanted, where=("sm_70", "sm_90a"), rtol=0, atol=0)


def test_votes_and_reductions():
    @T.prim_func
    def main(A: T.Tensor((96,), "int32"), B: T.Tensor((96, 5), "int32"), C: T.Tensor((96, 3), "int32")):
        with T.Kernel(1, threads=96) as _bx:
            tx = T.get_thread_binding()
            B[tx, 0] = T.warp_reduce_sum(A[tx])
            B[tx, 1] = T.warp_reduce_max(A[tx])
            B[tx, 2] = T.warp_reduce_min(A[tx] * 3)
            B[tx, 3] = T.warp_reduce_bitand(A[tx])
            B[tx, 4] = T.warp_reduce_bitor(A[tx])
            C[tx, 0] = T.cast(T.ballot(A[tx] > 2), "int32")
            C[tx, 1] = T.if_then_else(T.any_sync(A[tx] == 8), 1, 0)
            C[tx, 2] = T.if_then_else(T.all_sync(A[tx] > -9), 1, 0)

    a = np.random.default_rng(1).integers(-9, 9, 96).astype("int32")
    warps = a.reshape(3, 32)
    columns = [
        warps.sum(1), warps.max(1), warps.min(1) * 3, np.bitwise_and.reduce(warps, 1), np.bitwise_or.reduce(warps, 1),
    ]  # fmt: skip
    bits = ((warps > 2).astype("uint32") << np.arange(32, dtype="uint32")).sum(1).astype("uint32").view("int32")
    votes = [bits, (warps == 8).any(1), (warps > -9).all(1)]
    wanted = [np.repeat(np.stack(c, 1).astype("int32"), 32, 0) for c in (columns, votes)]
    check(main, [a], wanted, where=("sm_70", "sm_80"), rtol=0, atol=0)


def pipeline(arrivals):
    """A warp fills shared memory for another, which hands it back: two barriers of alternating phases."""

    @T.prim_func
    def main(A: T.Tensor((6, 32), "float32"), B: T.Tensor((6, 32), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            tx = T.get_thread_binding()
            room = T.alloc_shared((32,), "float32", scope="shared")
            bars = T.alloc_barrier([arrivals, 32])
            for k in T.serial(6):
                if tx < 32:
                    if k > 0:
                        T.mbarrier_wait_parity(bars[1], (k - 1) % 2)
                    room[tx] = A[k, tx] * 2
                    T.mbarrier_arrive(bars[0])
                else:
                    T.mbarrier_wait_parity(bars[0], k % 2)
                    B[k, tx - 32] = room[63 - tx]
                    T.mbarrier_arrive(bars[1])

    return main


def test_barriers_hand_memory_from_warp_to_warp():
    (a,) = arrays(2, (6, 32))
    check(pipeline(32), [a], a[:, ::-1] * 2, where=("sm_80", "sm_90a"))
    assert "mbarrier.init" in source(pipeline(32), "sm_80")


def test_a_barrier_for_too_many_threads_is_a_deadlock():
    (a,) = arrays(2, (6, 32))
    with pytest.raises(RelaxishError):
        run(pipeline(33), "sm_80", [a], [a])


def test_barriers_of_whole_blocks_are_nothing():
    """Statements of a block run in order: arriving and waiting change nothing, anywhere."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            bar = T.alloc_barrier(32)
            tile = T.alloc_shared((32,), "float32")
            T.copy(A[bx * 32], tile)
            T.barrier_arrive(bar)
            T.barrier_wait(bar, 0)
            T.copy(tile, B[bx * 32])

    (a,) = arrays(3, (64,))
    check(main, [a], a, where=("interp", "llvm", "sm_70"))


def test_what_architectures_lack_is_said():
    @T.prim_func
    def shuffle(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            A[tx] = T.shfl_down(A[tx], 1)

    @T.prim_func
    def vote(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32) as _bx:
            tx = T.get_thread_binding()
            A[tx] = T.cast(T.ballot(A[tx] > 1), "int32")

    with pytest.raises(TileLoweringError, match="T.alloc_barrier .mbarrier.: sm_70 has no such instruction, sm_80"):
        source(pipeline(32), "sm_70")
    relaxish.tir.build(shuffle, target=Target("opencl"))  # has shuffles of its own
    with pytest.raises(TileLoweringError, match="T.ballot.*: opencl has no such instruction"):
        relaxish.tir.build(vote, target=Target("opencl"))
    with pytest.raises(TileLoweringError, match="T.get_thread_binding.*T.Parallel"):
        relaxish.tir.build(shuffle, target="llvm")


def test_blocks_have_no_lanes():
    with pytest.raises(RelaxishError, match="T.shfl_xor is about single threads.*T.get_thread_binding"):

        @T.prim_func
        def main(A: T.Tensor((32,), "float32")):
            with T.Kernel(1, threads=32) as _bx:
                for i in T.Parallel(32):
                    A[i] = T.shfl_xor(A[i], 1)


# -- all blocks


@pytest.mark.parametrize("where", ["interp", "llvm", "sm_70", "sm_80"])
def test_blocks_wait_for_each_other(where):
    """Each block reads what others stored; shared memory, fragments and variables that begin anew go on both sides."""

    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), P: T.Tensor((8,), "float32"), B: T.Tensor((8, 32), "float32")):
        with T.Kernel(8, threads=32) as bx:
            tile = T.alloc_shared((32,), "float32")
            x = T.alloc_fragment((32,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A[bx, 0], tile)
            T.copy(tile, x)
            T.reduce_sum(x, total)
            T.copy(total, P[bx])
            T.sync_grid()
            T.copy(A[7 - bx, 0], tile)
            T.copy(tile, x)
            for i in T.Parallel(32):
                B[bx, i] = x[i] * P[(bx + 3) % 8] + P[7 - bx]

    (a,) = arrays(12, (8, 32))
    sums = a.sum(1)
    order = np.arange(8)
    wanted = a[::-1] * sums[(order + 3) % 8, None] + sums[::-1, None]
    check(main, [a], [sums, wanted], where=(where,), rtol=1e-4, atol=1e-4)


def test_blocks_of_threads_wait_for_each_other():
    """Twice, with steps in which the blocks' results move on."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), P: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            P[bx, tx] = A[bx, tx] + 1
            T.sync_grid()
            B[(bx + 1) % 4, tx] = P[3 - bx, 63 - tx] * 2
            T.sync_grid()
            P[bx, tx] = B[bx, tx] + A[bx, tx]

    (a,) = arrays(13, (4, 64))
    b = np.empty_like(a)
    b[(np.arange(4) + 1) % 4] = (a + 1)[::-1, ::-1] * 2
    check(main, [a], [b + a, b], where=("sm_80",), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind, words", [
    ("shared", "T.sync_grid: x holds what a block computed before it"), ("loop", "T.sync_grid stands inside of a loop"),
    ("update", "T.sync_grid: x holds what a block computed before it"), ("part", "T.sync_grid: x holds what"),
])  # fmt: skip
def test_what_does_not_go_past_all_blocks(kind, words):
    def program():
        @T.prim_func
        def main(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "float32")):
            with T.Kernel(8, threads=32) as bx:
                x = T.alloc_shared((32,), "float32")
                T.copy(A[bx, 0], x)
                if kind == "loop":
                    for _ in T.serial(3):
                        T.sync_grid()
                else:
                    T.sync_grid()
                if kind == "update":
                    for i in T.Parallel(32):
                        x[i] = x[i] + 1
                if kind == "part":
                    T.fill(x[0:16], 1.0)
                T.copy(x, B[bx, 0])

        return main

    with pytest.raises(Exception, match=words):
        program()
