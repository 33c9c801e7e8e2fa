"""Split-K: blocks that share a tile of the result each take a part of the depth and add their sums by atomic updates."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def gemm_splitk(M, N, K, split=4, block_M=64, block_N=64, block_K=32, threads=128, dtype="float16"):
    """``C += A @ B`` in float32; C begins at zero."""
    depth = -(-K // split)
    depth = -(-depth // block_K) * block_K

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split, threads=threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(depth // block_K, num_stages=2):
                T.copy(A[by * block_M, bz * depth + k * block_K], A_shared)
                T.copy(B[bz * depth + k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.atomic_add(C[by * block_M, bx * block_N], C_local)

    return main


def reference(a, b):
    """In NumPy."""
    return a.astype("float32") @ b.astype("float32")


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((96, 512), (512, 64)))
    c = relaxish.nd.array(np.zeros((96, 64), "float32"))
    built = relaxish.tir.build(gemm_splitk(96, 64, 512, dtype="float32"), target="llvm")
    built["main"](relaxish.nd.array(a), relaxish.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), reference(a, b), rtol=1e-3, atol=1e-3)
    print("gemm_splitk: right")


if __name__ == "__main__":
    main()
