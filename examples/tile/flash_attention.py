"""Attention without its matrix of scores: softmax is kept up to date while the keys go by.

``attention`` takes one tile of queries to a block, causal or not. ``decoding`` splits the keys among blocks, for few queries,
and joins their results in a second kernel.
"""

import numpy as np

import relaxish
import relaxish.tile.language as T

LOG2_E = 1.44269504


def attention(
    batch, heads, queries, keys, dim, causal=False, block_M=64, block_N=64, num_stages=2, threads=128, dtype="float16"
):
    """Q, K, V and the result are [batch, heads, sequence, dim]."""
    scale = float(1.0 / np.sqrt(dim) * LOG2_E)
    shape_q, shape_k = (batch, heads, queries, dim), (batch, heads, keys, dim)
    past = keys - queries

    @T.prim_func
    def main(
        Q: T.Tensor(shape_q, dtype),
        K: T.Tensor(shape_k, dtype),
        V: T.Tensor(shape_k, dtype),
        out: T.Tensor(shape_q, dtype),
    ):
        with T.Kernel(T.ceildiv(queries, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            sums = T.alloc_fragment((block_M, dim), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            top_before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.clear(sums)
            T.clear(total)
            T.fill(top, -1e30)
            turns = (
                T.ceildiv(keys, block_N)
                if not causal
                else T.min(T.ceildiv(keys, block_N), T.ceildiv((bx + 1) * block_M + past, block_N))
            )
            for k in T.Pipelined(turns, num_stages=num_stages):
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
                for i, j in T.Parallel(block_M, block_N):
                    if causal:
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i + past >= k * block_N + j, T.float32(0), T.float32(-1e30)
                        )
                    else:
                        scores[i, j] = T.if_then_else(k * block_N + j < keys, T.float32(0), T.float32(-1e30))
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, top_before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2((top_before[i] - top[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - top[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * rescale[i] + part[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    sums[i, j] = sums[i, j] * rescale[i]
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
                T.gemm(weights, V_shared, sums, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                sums[i, j] = sums[i, j] / total[i]
            T.copy(sums, out[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


def decoding(batch, heads, keys, dim, split=4, block_H=16, block_N=32, threads=32, dtype="float16"):
    """One query for each head; ``heads`` share the keys of the batch. ``split`` blocks take a part of the keys each."""
    scale = float(1.0 / np.sqrt(dim) * LOG2_E)
    share = -(-keys // split)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((batch, keys, dim), dtype),
        V: T.Tensor((batch, keys, dim), dtype),
        out: T.Tensor((batch, heads, dim), dtype),
    ):
        part_sums = T.alloc_global((batch, split, heads, dim), "float32")
        part_logs = T.alloc_global((batch, split, heads), "float32")
        with T.Kernel(split, T.ceildiv(heads, block_H), batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_H, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_H, block_N), "float32")
            weights = T.alloc_fragment((block_H, block_N), dtype)
            sums = T.alloc_fragment((block_H, dim), "float32")
            top = T.alloc_fragment((block_H,), "float32")
            top_before = T.alloc_fragment((block_H,), "float32")
            rescale = T.alloc_fragment((block_H,), "float32")
            part = T.alloc_fragment((block_H,), "float32")
            total = T.alloc_fragment((block_H,), "float32")
            T.copy(Q[bz, by * block_H, 0], Q_shared)
            T.clear(sums)
            T.clear(total)
            T.fill(top, -1e30)
            for k in T.Pipelined(T.ceildiv(share, block_N), num_stages=2):
                T.copy(K[bz, bx * share + k * block_N, 0], K_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(block_H, block_N):
                    inside = k * block_N + j < share and bx * share + k * block_N + j < keys
                    scores[i, j] = T.if_then_else(inside, scores[i, j] * scale, T.float32(-1e30))
                T.copy(top, top_before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    rescale[i] = T.exp2(top_before[i] - top[i])
                for i, j in T.Parallel(block_H, block_N):
                    scores[i, j] = T.exp2(scores[i, j] - top[i])
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_H):
                    total[i] = total[i] * rescale[i] + part[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_H, dim):
                    sums[i, j] = sums[i, j] * rescale[i]
                T.copy(V[bz, bx * share + k * block_N, 0], V_shared)
                T.gemm(weights, V_shared, sums, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_H, dim):
                sums[i, j] = sums[i, j] / total[i]
            for i in T.Parallel(block_H):
                top[i] = top[i] + T.log2(total[i])
            T.copy(sums, part_sums[bz, bx, by * block_H, 0])
            T.copy(top, part_logs[bz, bx, by * block_H])
        with T.Kernel(heads, batch, threads=threads) as (by, bz):
            result = T.alloc_fragment((dim,), "float32")
            one = T.alloc_fragment((dim,), "float32")
            best = T.alloc_var("float32")
            weight = T.alloc_var("float32")
            T.clear(result)
            best = T.float32(-1e30)
            weight = T.float32(0)
            for s in T.serial(split):
                best = T.max(best, part_logs[bz, s, by])
            for s in T.serial(split):
                weight = weight + T.exp2(part_logs[bz, s, by] - best)
            for s in T.serial(split):
                T.copy(part_sums[bz, s, by, 0:dim], one)
                for j in T.Parallel(dim):
                    result[j] = result[j] + one[j] * T.exp2(part_logs[bz, s, by] - best) / weight
            T.copy(result, out[bz, by, 0:dim])

    return main


def reference(q, k, v, causal=False):
    """In NumPy; all [..., sequence, dim]."""
    q, k, v = (x.astype("float32") for x in (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows, columns = s.shape[-2:]
        s = np.where(np.arange(columns) <= np.arange(rows)[:, None] + columns - rows, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def main():
    """Build it for this machine and compare."""
    rng = np.random.default_rng(0)
    for causal in (False, True):
        q, k, v = (rng.standard_normal((1, 2, 128, 32)).astype("float32") for _ in range(3))
        out = relaxish.nd.array(np.zeros(q.shape, "float32"))
        built = relaxish.tir.build(attention(1, 2, 128, 128, 32, causal, dtype="float32"), target="llvm")
        built["main"](*(relaxish.nd.array(x) for x in (q, k, v)), out)
        np.testing.assert_allclose(out.numpy(), reference(q, k, v, causal), rtol=1e-3, atol=1e-4)
    q, k, v = (rng.standard_normal(s).astype("float32") for s in ((2, 8, 32), (2, 200, 32), (2, 200, 32)))
    out = relaxish.nd.array(np.zeros(q.shape, "float32"))
    built = relaxish.tir.build(decoding(2, 8, 200, 32, dtype="float32"), target="llvm")
    built["main"](*(relaxish.nd.array(x) for x in (q, k, v)), out)
    np.testing.assert_allclose(out.numpy(), reference(q, k, v), rtol=1e-3, atol=1e-4)
    print("flash_attention: right")


if __name__ == "__main__":
    main()
