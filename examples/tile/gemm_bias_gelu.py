"""A matrix product whose bias and activation are computed on the sums, before they leave the registers."""

import math

import numpy as np

import relaxish
import relaxish.tile.language as T


def gemm_bias_gelu(M, N, K, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128, dtype="float16"):
    """``C = gelu(A @ B^T + bias)`` with the tanh form of GELU."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), bias: T.Tensor((N,), dtype), C: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            bias_local = T.alloc_fragment((block_N,), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(bias[bx * block_N], bias_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = C_local[i, j] + bias_local[j]
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = (
                    0.5
                    * C_local[i, j]
                    * (
                        1.0
                        + T.tanh(
                            0.7978845608 * (C_local[i, j] + 0.044715 * C_local[i, j] * C_local[i, j] * C_local[i, j])
                        )
                    )
                )
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def reference(a, b, bias):
    """In NumPy."""
    x = a.astype("float32") @ b.astype("float32").T + bias.astype("float32")
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(s).astype("float32") for s in ((100, 72), (80, 72), (80,)))
    c = relaxish.nd.array(np.zeros((100, 80), "float32"))
    built = relaxish.tir.build(gemm_bias_gelu(100, 80, 72, dtype="float32"), target="llvm")
    built["main"](*(relaxish.nd.array(x) for x in (a, b, bias)), c)
    np.testing.assert_allclose(c.numpy(), reference(a, b, bias), rtol=1e-3, atol=1e-3)
    print("gemm_bias_gelu: right")


if __name__ == "__main__":
    main()
