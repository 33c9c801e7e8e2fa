"""A convolution as a product: tiles of the image's columns are gathered on the way to shared memory."""

import numpy as np

import relaxish
import relaxish.tile.language as T


def convolution(N, H, W, C, F, K=3, S=1, D=1, P=1, block_M=64, block_N=32, block_K=32, threads=128, dtype="float16"):
    """NHWC images, HWCF weights (as a matrix of K * K * C rows), NHWF results."""
    OH = (H + 2 * P - D * (K - 1) - 1) // S + 1
    OW = (W + 2 * P - D * (K - 1) - 1) // S + 1

    @T.prim_func
    def main(
        data: T.Tensor((N, H, W, C), dtype),
        weight: T.Tensor((K * K * C, F), dtype),
        out: T.Tensor((N * OH * OW, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * OH * OW, block_M), threads=threads) as (bx, by):
            columns = T.alloc_shared((block_M, block_K), dtype)
            weight_shared = T.alloc_shared((block_K, block_N), dtype)
            sums = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(K * K * C, block_K), num_stages=2):
                T.im2col(data, columns, by, k, K, S, D, P)
                T.copy(weight[k * block_K, bx * block_N], weight_shared)
                T.gemm(columns, weight_shared, sums)
            T.copy(sums, out[by * block_M, bx * block_N])

    return main


def reference(data, weight, K=3, S=1, D=1, P=1):
    """In NumPy."""
    n, h, w, c = data.shape
    f = weight.shape[-1]
    padded = np.pad(data.astype("float32"), ((0, 0), (P, P), (P, P), (0, 0)))
    oh, ow = ((x + 2 * P - D * (K - 1) - 1) // S + 1 for x in (h, w))
    out = np.zeros((n, oh, ow, f), "float32")
    taps = weight.astype("float32").reshape(K, K, c, f)
    for y in range(K):
        for x in range(K):
            part = padded[:, y * D : y * D + S * (oh - 1) + 1 : S, x * D : x * D + S * (ow - 1) + 1 : S]
            out += part @ taps[y, x]
    return out.reshape(n * oh * ow, f)


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(s).astype("float32") for s in ((2, 9, 11, 16), (144, 40)))
    built = relaxish.tir.build(convolution(2, 9, 11, 16, 40, S=2, dtype="float32"), target="llvm")
    wanted = reference(data, weight, S=2)
    out = relaxish.nd.array(np.zeros(wanted.shape, "float32"))
    built["main"](relaxish.nd.array(data), relaxish.nd.array(weight), out)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-3, atol=1e-3)
    print("convolution: right")


if __name__ == "__main__":
    main()
