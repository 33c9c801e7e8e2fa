"""Stream-K: all steps of all tiles in one row, cut into equal parts, one for each block, wherever tiles end."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def gemm_streamk(M, N, K, workers=6, block_M=64, block_N=64, block_K=32, threads=128, dtype="float16"):
    """``C += A @ B`` in float32; C begins at zero. ``workers`` blocks take equally many steps."""
    columns = -(-N // block_N)
    rows = -(-M // block_M)
    steps = -(-K // block_K)
    total = rows * columns * steps
    share = -(-total // workers)

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(workers, threads=threads) as worker:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            at = T.alloc_var("int32")
            end = T.alloc_var("int32")
            count = T.alloc_var("int32")
            at = worker * share
            end = T.min((worker + 1) * share, total)
            while at < end:
                count = T.min(steps - at % steps, end - at)
                T.clear(C_local)
                for k in T.serial(count):
                    T.copy(A[at // steps // columns * block_M, (at % steps + k) * block_K], A_shared)
                    T.copy(B[(at % steps + k) * block_K, at // steps % columns * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.atomic_add(C[at // steps // columns * block_M, at // steps % columns * block_N], C_local)
                at = at + count

    return main


def reference(a, b):
    """In NumPy."""
    return a.astype("float32") @ b.astype("float32")


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((128, 160), (160, 192)))
    c = relaxish.nd.array(np.zeros((128, 192), "float32"))
    built = relaxish.tir.build(gemm_streamk(128, 192, 160, dtype="float32"), target="llvm")
    built["main"](relaxish.nd.array(a), relaxish.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), reference(a, b), rtol=1e-3, atol=1e-3)
    print("gemm_streamk: right")


if __name__ == "__main__":
    main()
