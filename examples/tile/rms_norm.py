"""RMSNorm: rows divided by the root of their mean square, times a weight."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def rms_norm(M, N, block_M=2, threads=128, dtype="float16", eps=1e-6):
    """``B = A / sqrt(mean(A * A, axis=1) + eps) * weight``."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            A_shared = T.alloc_shared((block_M, N), dtype)
            x = T.alloc_fragment((block_M, N), "float32")
            squares = T.alloc_fragment((block_M, N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.copy(A[bx * block_M : (bx + 1) * block_M, :], A_shared)
            T.copy(A_shared, x)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * T.cast(weight[j], "float32")
            T.copy(x, B[bx * block_M : (bx + 1) * block_M, :])

    return main


def reference(a, weight, eps=1e-6):
    """In NumPy."""
    a = a.astype("float32")
    return a / np.sqrt((a * a).mean(1, keepdims=True) + eps) * weight.astype("float32")


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    a, weight = (rng.standard_normal(s).astype("float32") for s in ((10, 256), (256,)))
    b = relaxish.nd.array(np.zeros((10, 256), "float32"))
    built = relaxish.tir.build(rms_norm(10, 256, dtype="float32"), target="llvm")
    built["main"](relaxish.nd.array(a), relaxish.nd.array(weight), b)
    np.testing.assert_allclose(b.numpy(), reference(a, weight), rtol=1e-4, atol=1e-4)
    print("rms_norm: right")


if __name__ == "__main__":
    main()
