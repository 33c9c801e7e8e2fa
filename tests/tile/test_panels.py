"""Products on CPUs: operands packed once for all blocks, or for several turns of a loop, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tile_programs import arrays, check

import relaxish
import relaxish.tile.language as T
from relaxish.tir.transform.tiles.cpu import lower_for_cpu


def packed(func):
    """(buffers packed before all blocks, buffers packed for several turns)."""
    names: set[str] = set()
    body = lower_for_cpu(func, 512).body
    relaxish.tir.stmt_functor.post_order_visit(
        body, lambda n: names.update(b.name for b in n.alloc_buffers) if isinstance(n, relaxish.tir.Block) else None
    )
    return sorted(n for n in names if n.endswith("_all")), sorted(n for n in names if n.endswith("_turns"))


def product(m, n, k, bm, bn, bk, trans_a=False, trans_b=True, dtype="float32", first=0):
    """C = A @ B over turns ``first..``."""
    shape_a, shape_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)
    tile_a, tile_b = (bk, bm) if trans_a else (bm, bk), (bn, bk) if trans_b else (bk, bn)

    @T.prim_func
    def main(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=64) as (bx, by):
            a = T.alloc_shared(tile_a, dtype)
            b = T.alloc_shared(tile_b, dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for ko in T.Pipelined(first, T.ceildiv(k, bk), num_stages=2):
                if trans_a:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if trans_b:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(c, C[by * bm, bx * bn])

    a, b = arrays(k, shape_a, shape_b, dtype=dtype)
    left, right = (x.astype("float64") for x in (a.T if trans_a else a, b.T if trans_b else b))
    return main, [a, b], (left[:, first * bk :] @ right[first * bk :]).astype("float32")


SHAPES = [
    (256, 192, 320, 64, 64, 32),  # whole tiles; ten turns, in one chunk or two
    (250, 190, 330, 64, 64, 32),  # nothing divides
    (128, 640, 704, 128, 64, 32),  # one row of blocks: the right operand is packed by its own block
    (96, 128, 1024, 32, 128, 16),  # more turns than a chunk has
    (70, 96, 336, 64, 48, 16),  # strips narrower than a register tile would like; a chunk that is left over
    (130, 33, 65, 32, 16, 8),
]


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("trans_a, trans_b", [(False, True), (False, False), (True, True)])
def test_sizes_and_transposes(sizes, trans_a, trans_b):
    main, inputs, wanted = product(*sizes, trans_a, trans_b)
    check(main, inputs, wanted, where=("llvm",), rtol=1e-3, atol=1e-3)


def test_narrow_operands():
    main, inputs, wanted = product(200, 260, 300, 64, 64, 32, dtype="float16")
    check(main, inputs, wanted, where=("llvm",), rtol=2e-2, atol=2e-2)


def test_a_loop_that_begins_later():
    main, inputs, wanted = product(256, 192, 320, 64, 64, 32, first=3)
    check(main, inputs, wanted, where=("llvm",), rtol=1e-3, atol=1e-3)


def test_what_is_packed():
    """The right side once for all rows of blocks; the left where it is; a single row's by its block, turns together."""
    assert packed(product(1024, 1024, 1024, 128, 128, 32)[0]) == (["b_all"], [])
    assert packed(product(1000, 1000, 1000, 128, 128, 32)[0]) == (["a_all", "b_all"], [])
    assert packed(product(128, 1024, 1024, 128, 128, 32)[0]) == ([], ["b_turns"])


def test_two_products_and_operands_that_stay():
    """Two sums in one loop; a right side that does not change with the turns; batches along z and an outer loop."""

    @T.prim_func
    def main(
        A: T.Tensor((2, 128, 256), "float32"),
        B: T.Tensor((2, 256, 128), "float32"),
        D: T.Tensor((128, 32), "float32"),
        C: T.Tensor((2, 128, 128), "float32"),
        E: T.Tensor((2, 128, 128), "float32"),
    ):
        with T.Kernel(2, 4, 2, threads=64) as (bx, by, bz):
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, 64), "float32")
            d = T.alloc_shared((64, 32), "float32")
            c = T.alloc_fragment((32, 64), "float32")
            e = T.alloc_fragment((32, 64), "float32")
            T.clear(c)
            T.clear(e)
            for outer in T.serial(2):
                for ko in T.Pipelined(4, num_stages=2):
                    T.copy(A[bz, by * 32, outer * 128 + ko * 32], a)
                    T.copy(B[bz, outer * 128 + ko * 32, bx * 64], b)
                    T.copy(D[bx * 64, 0], d)
                    T.gemm(a, b, c)
                    T.gemm(a, d, e, transpose_B=True)
            T.copy(c, C[bz, by * 32, bx * 64])
            T.copy(e, E[bz, by * 32, bx * 64])

    a, b, d = arrays(3, (2, 128, 256), (2, 256, 128), (128, 32))
    wanted = [a @ b, a.reshape(2, 128, 8, 32).sum(2) @ d.T]
    check(main, [a, b, d], wanted, where=("llvm",), rtol=1e-3, atol=1e-3)


def test_copies_for_the_next_turn():
    """A product before the copy in the same turn reads what the turn before left."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 256), "float32"), B: T.Tensor((256, 128), "float32"), C: T.Tensor((128, 128), "float32")
    ):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            a = T.alloc_shared((64, 32), "float32")
            b = T.alloc_shared((32, 64), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.clear(b)
            for ko in T.serial(8):
                T.copy(A[by * 64, ko * 32], a)
                T.gemm(a, b, c)
                T.copy(B[ko * 32, bx * 64], b)
            T.copy(c, C[by * 64, bx * 64])

    a, b = arrays(4, (128, 256), (256, 128))
    check(main, [a, b], a[:, 32:] @ b[:-32], where=("llvm",), rtol=1e-3, atol=1e-3)
    assert packed(main) == ([], [])


def test_sources_that_the_kernel_writes_and_conditions_stay():
    """What a block writes is packed after it is written; copies under a condition are not made before it."""

    @T.prim_func
    def main(A: T.Tensor((128, 256), "float32"), B: T.Tensor((128, 256), "float32"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, 2, threads=64) as (_bx, by):
            a = T.alloc_shared((64, 32), "float32")
            b = T.alloc_shared((64, 32), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            for i, j in T.Parallel(64, 256):
                B[by * 64 + i, j] = B[by * 64 + i, j] * 2
            T.clear(c)
            for ko in T.Pipelined(8, num_stages=2):
                if by * 8 + ko >= 4:
                    T.copy(A[by * 64, ko * 32], a)
                    T.copy(B[by * 64, ko * 32], b)
                    T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * 64, 0])

    a, b = arrays(5, (128, 256), (128, 256))
    kept = a.copy()
    kept[:64, :128] = 0
    wanted = np.concatenate([kept[s] @ (2 * b[s]).T for s in (slice(0, 64), slice(64, 128))])
    zeros = np.zeros((128, 64), "float32")
    check(main, [a], [2 * b, wanted], where=("llvm",), start=[b, zeros], rtol=1e-3, atol=1e-3)
