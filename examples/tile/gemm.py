"""A matrix product: tiles go through shared memory, the sums stay in registers."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def gemm(
    M, N, K, block_M=128, block_N=128, block_K=32, num_stages=3, threads=128, dtype="float16", accum_dtype="float"
):
    """``C = A @ B``."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.use_swizzle(panel_size=10)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def reference(a, b):
    """In NumPy."""
    return a.astype("float32") @ b.astype("float32")


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((256, 192), (192, 320)))
    c = relaxish.nd.array(np.zeros((256, 320), "float32"))
    built = relaxish.tir.build(gemm(256, 320, 192, dtype="float32"), target="llvm")
    built["main"](relaxish.nd.array(a), relaxish.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), reference(a, b), rtol=1e-3, atol=1e-3)
    print("gemm: right")


if __name__ == "__main__":
    main()
