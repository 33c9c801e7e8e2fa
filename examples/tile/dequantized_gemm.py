"""A product with a right side of 4-bit integers, two to a byte, a scale for each group of 32; widened on the way to the product."""

import numpy as np

import relaxish
import relaxish.tile.language as T

GROUP = 32


def dequantized_gemm(M, N, K, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128, dtype="float16"):
    """``C = A @ dequantise(B)^T``: B is [N, K / 2] bytes, the lower half first; scales are [N, K / 32]."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // GROUP), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            B_wide = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * (block_K // 2)], B_shared)
                for i, j in T.Parallel(block_N, block_K):
                    B_wide[i, j] = (
                        T.cast(
                            T.bitwise_and(
                                T.shift_right(T.cast(B_shared[i, j // 2], "int32"), T.cast(j % 2 * 4, "int32")),
                                T.int32(15),
                            )
                            - 8,
                            dtype,
                        )
                        * scales[bx * block_N + i, (k * block_K + j) // GROUP]
                    )
                T.gemm(A_shared, B_wide, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def reference(a, b, scales):
    """In NumPy."""
    wide = np.stack([b & 15, b >> 4], -1).reshape(b.shape[0], -1).astype("float32") - 8
    wide = wide * np.repeat(scales.astype("float32"), GROUP, 1)
    return a.astype("float32") @ wide.T


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    a, scales = rng.standard_normal((96, 128)).astype("float32"), rng.random((80, 4)).astype("float32")
    b = rng.integers(0, 256, (80, 64)).astype("uint8")
    c = relaxish.nd.array(np.zeros((96, 80), "float32"))
    built = relaxish.tir.build(dequantized_gemm(96, 80, 128, dtype="float32"), target="llvm")
    built["main"](*(relaxish.nd.array(x) for x in (a, b, scales)), c)
    np.testing.assert_allclose(c.numpy(), reference(a, b, scales), rtol=1e-3, atol=1e-2)
    print("dequantized_gemm: right")


if __name__ == "__main__":
    main()
