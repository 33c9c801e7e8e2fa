"""Grouped products: rows of one matrix belong to groups of any size, each with a right side of its own (as in a mixture of experts)."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def grouped_gemm(total, groups, tiles, N, K, block_M=32, block_N=64, block_K=32, threads=128, dtype="float16"):
    """``C[rows of group g] = A[rows of group g] @ B[g]``.

    ``tiles``: tiles of rows in all; ``group_of`` says whose each is, ``begins`` its first row, ``ends`` where its group ends.
    """

    @T.prim_func
    def main(
        A: T.Tensor((total, K), dtype),
        B: T.Tensor((groups, K, N), dtype),
        group_of: T.Tensor((tiles,), "int32"),
        begins: T.Tensor((tiles,), "int32"),
        ends: T.Tensor((tiles,), "int32"),
        C: T.Tensor((total, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), tiles, threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            group = T.alloc_var("int32")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            group = group_of[by]
            first = begins[by]
            last = ends[by]
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[first, k * block_K], A_shared)
                T.copy(B[group, k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                if first + i < last:
                    C[first + i, bx * block_N + j] = C_local[i, j]

    return main


def tiles_of(sizes, block_M=32):
    """(group, first row, end of the group) of every tile of rows."""
    found, begin = [], 0
    for group, size in enumerate(sizes):
        found += [(group, begin + at, begin + size) for at in range(0, size, block_M)]
        begin += size
    return [np.array(column, "int32") for column in zip(*found, strict=True)]


def reference(a, b, sizes):
    """In NumPy."""
    parts, begin = [], 0
    for group, size in enumerate(sizes):
        parts.append(a[begin : begin + size].astype("float32") @ b[group].astype("float32"))
        begin += size
    return np.concatenate(parts)


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    sizes = [40, 7, 64]
    a, b = (rng.standard_normal(s).astype("float32") for s in ((sum(sizes), 48), (3, 48, 80)))
    places = tiles_of(sizes)
    c = relaxish.nd.array(np.zeros((sum(sizes), 80), "float32"))
    built = relaxish.tir.build(grouped_gemm(sum(sizes), 3, len(places[0]), 80, 48, dtype="float32"), target="llvm")
    built["main"](*(relaxish.nd.array(x) for x in (a, b, *places)), c)
    np.testing.assert_allclose(c.numpy(), reference(a, b, sizes), rtol=1e-3, atol=1e-3)
    print("grouped_gemm: right")


if __name__ == "__main__":
    main()
