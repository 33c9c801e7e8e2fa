"""Softmax over rows that fit the registers of a block."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def softmax(M, N, block_M=4, threads=128, dtype="float32"):
    """``B = softmax(A, axis=1)``."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(A[bx * block_M, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, B[bx * block_M, 0])

    return main


def reference(a):
    """In NumPy."""
    a = a.astype("float32")
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def main():
    """Build it for this machine and compare."""
    a = np.random.default_rng(0).standard_normal((30, 200)).astype("float32")
    b = relaxish.nd.array(np.zeros((30, 200), "float32"))
    built = relaxish.tir.build(softmax(30, 200), target="llvm")
    built["main"](relaxish.nd.array(a), b)
    np.testing.assert_allclose(b.numpy(), reference(a), rtol=1e-4, atol=1e-5)
    print("softmax: right")


if __name__ == "__main__":
    main()
