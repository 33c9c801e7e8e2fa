"""Each operator of the tile language against NumPy: in the interpreter, as machine code, and in emulation with race checks."""

from __future__ import annotations

import numpy as np
import pytest
from tile_programs import arrays, check

import relaxish.tile.language as T


def test_copy_beyond_the_ends():
    """Loads outside give 0 (or the safe value), stores do nothing."""

    @T.prim_func
    def main(A: T.Tensor((50, 70), "float32"), B: T.Tensor((50, 70), "float32"), C: T.Tensor((64, 96), "float32")):
        with T.Kernel(3, 2, threads=64) as (bx, by):
            tile = T.alloc_shared((32, 32), "float32")
            T.annotate_safe_value({A: 5.0})
            T.copy(A[by * 32, bx * 32], tile)
            T.copy(tile, B[by * 32, bx * 32])
            T.copy(tile, C[by * 32, bx * 32])

    (a,) = arrays(0, (50, 70))
    padded = np.full((64, 96), 5.0, "float32")
    padded[:50, :70] = a
    check(main, [a], [a, padded])


def test_copies_of_regions():
    """Slices, dimensions of size 1, whole buffers, changes of type, transposes."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 8, 4, 16), "float32"), B: T.Tensor((3, 4, 8, 16), "float16"), C: T.Tensor((3, 16, 8), "float32")
    ):
        with T.Kernel(4, 3, threads=32) as (bx, by):
            tile = T.alloc_shared((8, 16), "float32")
            other = T.alloc_fragment((8, 16), "float16")
            turned = T.alloc_shared((16, 8), "float32")
            T.copy(A[by, 0:8, bx, :], tile)
            T.copy(tile, other)
            T.copy(other, B[by, bx, 0, 0])
            if bx == 2:
                T.transpose(tile, turned)
                T.copy(turned, C[by, :, :])

    (a,) = arrays(1, (3, 8, 4, 16))
    check(main, [a], [a.transpose(0, 2, 1, 3).astype("float16"), a[:, :, 2].transpose(0, 2, 1)])


def test_fill_and_clear():
    @T.prim_func
    def main(A: T.Tensor((4, 24), "float32"), B: T.Tensor((4, 24), "int32")):
        with T.Kernel(4, threads=64) as bx:
            x = T.alloc_fragment((24,), "float32")
            y = T.alloc_shared((24,), "int32")
            T.fill(x, 2.5)
            T.clear(y)
            T.fill(y[8:16], bx)
            T.copy(x, A[bx, 0])
            T.copy(y, B[bx, 0:24])

    b = np.zeros((4, 24), "int32")
    b[:, 8:16] = np.arange(4)[:, None]
    check(main, [], [np.full((4, 24), 2.5, "float32"), b])


REDUCTIONS = {
    "sum": lambda x, d: x.sum(d), "max": lambda x, d: x.max(d), "min": lambda x, d: x.min(d),
    "absmax": lambda x, d: np.abs(x).max(d), "abssum": lambda x, d: np.abs(x).sum(d),
    "bitand": lambda x, d: np.bitwise_and.reduce(x, d), "bitor": lambda x, d: np.bitwise_or.reduce(x, d),
    "bitxor": lambda x, d: np.bitwise_xor.reduce(x, d),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(REDUCTIONS))
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions(kind, dim):
    dtype = "int32" if kind.startswith("bit") else "float32"
    rows = 24 if dim == 1 else 40
    run = getattr(T, f"reduce_{kind}")

    @T.prim_func
    def main(A: T.Tensor((24, 40), dtype), B: T.Tensor((rows,), dtype)):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((24, 40), dtype)
            r = T.alloc_fragment((rows,), dtype)
            T.copy(A, x)
            run(x, r, dim=dim)
            T.copy(r, B)

    (a,) = arrays(2, (24, 40), dtype=dtype)
    check(main, [a], REDUCTIONS[kind](a, dim), rtol=1e-5, atol=1e-4)


def test_reductions_that_go_on():
    """clear=False takes in what is there; a kept dimension of size 1; rows that are no power of two; threads to spare."""

    @T.prim_func
    def main(
        A: T.Tensor((6, 36), "float32"),
        B: T.Tensor((6,), "float32"),
        C: T.Tensor((6,), "float32"),
        D: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(1, threads=96) as _bx:
            x = T.alloc_shared((6, 36), "float32")
            top = T.alloc_fragment((6,), "float32")
            total = T.alloc_fragment((6, 1), "float32")
            one = T.alloc_fragment((1,), "float32")
            T.copy(A, x)
            T.fill(top, 1.0)
            T.reduce_max(x, top, dim=1, clear=False)
            T.fill(total, 3.0)
            T.reduce_sum(x, total, dim=-1, clear=False)
            T.reduce_sum(total[0:6, 0], one, dim=0)
            T.copy(top, B)
            for i in T.Parallel(6):
                C[i] = total[i, 0]
            T.copy(one, D)

    (a,) = arrays(3, (6, 36))
    total = a.sum(1) + 3
    check(main, [a], [np.maximum(a.max(1), 1), total, total.sum(keepdims=True)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("where", ["fragment", "shared"])
@pytest.mark.parametrize("dim, reverse", [(0, False), (1, False), (1, True)])
def test_running_sums(where, dim, reverse):
    allocate = T.alloc_fragment if where == "fragment" else T.alloc_shared

    @T.prim_func
    def main(A: T.Tensor((12, 20), "float32"), B: T.Tensor((12, 20), "float32"), C: T.Tensor((12, 20), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            x = allocate((12, 20), "float32")
            y = allocate((12, 20), "float32")
            T.copy(A, x)
            T.cumsum(x, y, dim=dim, reverse=reverse)
            T.cummax(x, dim=dim, reverse=reverse)
            T.copy(y, B)
            T.copy(x, C)

    (a,) = arrays(4, (12, 20))
    turn = (lambda x: np.flip(x, dim)) if reverse else (lambda x: x)
    check(main, [a], [turn(np.cumsum(turn(a), dim)), turn(np.maximum.accumulate(turn(a), dim))], atol=1e-4)


PRODUCTS = [
    (48, 32, 32, False, False, 128), (32, 64, 48, True, False, 128), (64, 32, 16, False, True, 64), (32, 32, 32, True, True, 32),
    (20, 12, 24, False, False, 64),
]  # fmt: skip


def product(m, n, k, trans_a, trans_b, threads, dtype, accum):
    """(program, inputs, result, tolerance) of ``C = 1 + 2 A @ B``."""
    shape_a, shape_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), accum)):
        with T.Kernel(1, threads=threads) as _bx:
            a = T.alloc_shared(shape_a, dtype)
            b = T.alloc_shared(shape_b, dtype)
            c = T.alloc_fragment((m, n), accum)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(c, C)

    a, b = arrays(5, shape_a, shape_b, dtype=dtype)
    left, right = (x.astype("float64") for x in (a.T if trans_a else a, b.T if trans_b else b))
    return main, [a, b], (left @ right * 2 + 1).astype(accum), 0.06 if accum == "float16" else 1e-3


TYPES = [("float16", "float32"), ("float16", "float16"), ("float32", "float32"), ("int8", "int32")]


@pytest.mark.parametrize("m, n, k, trans_a, trans_b, threads", PRODUCTS)
def test_products(m, n, k, trans_a, trans_b, threads):
    main, inputs, wanted, tolerance = product(m, n, k, trans_a, trans_b, threads, "float16", "float32")
    check(main, inputs, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("m, n, k, trans_a, trans_b, threads", PRODUCTS)
@pytest.mark.parametrize("dtype, accum", TYPES)
def test_products_of_all_types(m, n, k, trans_a, trans_b, threads, dtype, accum):
    main, inputs, wanted, tolerance = product(m, n, k, trans_a, trans_b, threads, dtype, accum)
    check(main, inputs, wanted, where=("interp", "llvm", "sm_80", "sm_70"), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(T.GemmWarpPolicy))
def test_policies_and_clear(policy):
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 7.0)
            T.gemm(a, b, c, policy=policy, clear_accum=True)
            T.copy(c, C)

    a, b = arrays(6, (64, 32), (32, 64), dtype="float16")
    check(
        main, [a, b], a.astype("float32") @ b.astype("float32"), where=("interp", "llvm", "sm_80", "sm_70"), atol=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_left_operand_in_registers(dtype):
    """The result of one product is the left operand of the next."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), dtype),
        B: T.Tensor((48, 32), dtype),
        C: T.Tensor((48, 16), dtype),
        D: T.Tensor((64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((48, 32), dtype)
            c = T.alloc_shared((48, 16), dtype)
            first = T.alloc_fragment((64, 48), "float32")
            narrow = T.alloc_fragment((64, 48), dtype)
            second = T.alloc_fragment((64, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.clear(first)
            T.gemm(a, b, first, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(first, narrow)
            T.clear(second)
            T.gemm(narrow, c, second, policy=T.GemmWarpPolicy.FullRow)
            T.copy(second, D)

    a, b, c = arrays(7, (64, 32), (48, 32), (48, 16), dtype=dtype)
    middle = (a.astype("float32") @ b.astype("float32").T).astype(dtype)
    wanted = middle.astype("float32") @ c.astype("float32")
    tolerance = 0.05 if dtype == "float16" else 1e-3
    check(main, [a, b, c], wanted, where=("interp", "llvm", "sm_80", "sm_70", "sm_90a"), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_columns_of_an_image():
    @T.prim_func
    def main(A: T.Tensor((2, 5, 6, 8), "float32"), B: T.Tensor((64, 80), "float32")):
        with T.Kernel(5, 2, threads=64) as (bx, by):
            tile = T.alloc_shared((32, 16), "float32")
            T.im2col(A, tile, by, bx, 3, 1, 1, 1)
            T.copy(tile, B[by * 32, bx * 16])

    (a,) = arrays(8, (2, 5, 6, 8))
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
    columns = [padded[:, y : y + 5, x : x + 6].reshape(60, 8) for y in range(3) for x in range(3)]
    wanted = np.zeros((64, 80), "float32")
    wanted[:60, :72] = np.concatenate(columns, 1)
    check(main, [a], wanted)


@pytest.mark.parametrize("how", ["update", "store", "reduce"])
def test_copies_of_fragments_are_the_same_in_all_threads(how):
    """A loop that stores to a fragment and does what others see: the latter once, the former in every thread that holds it."""

    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16, 64), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            few = T.alloc_fragment((16,), "float32")
            many = T.alloc_fragment((16, 64), "float32")
            total = T.alloc_reducer((16,), "float32")
            T.copy(A, few)
            T.clear(total)
            for i in T.Parallel(16):
                few[i] = few[i] * 2
                if how == "update":
                    T.atomic_add(C[i], few[i])
                elif how == "store":
                    C[i] = few[i] + 1
                else:
                    total[i] += few[i]
            for i, j in T.Parallel(16, 64):
                many[i, j] = few[i] + 1
            T.copy(many, B)
            if how == "reduce":
                T.finalize_reducer(total)
                T.copy(total, C)

    (a,) = arrays(21, (16,))
    start = [np.zeros((16, 64), "float32"), np.ones(16, "float32")]
    other = {"update": a * 2 + 1, "store": a * 2 + 1, "reduce": a * 2}[how]
    check(
        main,
        [a],
        [np.repeat(a[:, None] * 2 + 1, 64, 1), other],
        where=("interp", "llvm", "sm_70", "sm_80"),
        start=start,
    )
