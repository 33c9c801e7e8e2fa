"""A Triton matrix product to compare with: C = A B^T, tiles autotuned, accumulated in float32 (or int32)."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


def _configs() -> list[Any]:
    tiles = [(128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (256, 128, 64, 8, 3), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4)]
    return [
        triton.Config({"tile_m": m, "tile_n": n, "tile_k": k, "group": 8}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in tiles
    ]


@triton.autotune(configs=_configs(), key=["m", "n", "k"])
@triton.jit
def _kernel(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, group: tl.constexpr,
            acc_type: tl.constexpr):  # fmt: skip
    # Blocks that share rows of A run next to each other, so that they find them in the L2 cache.
    index = tl.program_id(0)
    rows, columns = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    first = index // (group * columns) * group
    height = min(rows - first, group)
    row = first + index % (group * columns) % height
    column = index % (group * columns) // height
    at_m = row * tile_m + tl.arange(0, tile_m)
    at_n = column * tile_n + tl.arange(0, tile_n)
    at_k = tl.arange(0, tile_k)
    total = tl.zeros((tile_m, tile_n), dtype=acc_type)
    for step in range(tl.cdiv(k, tile_k)):
        here = step * tile_k + at_k
        x = tl.load(a + at_m[:, None] * k + here[None, :], mask=(at_m[:, None] < m) & (here[None, :] < k), other=0.0)
        y = tl.load(b + at_n[None, :] * k + here[:, None], mask=(at_n[None, :] < n) & (here[:, None] < k), other=0.0)
        total = tl.dot(x, y, total, out_dtype=acc_type)
    mask = (at_m[:, None] < m) & (at_n[None, :] < n)
    tl.store(c + at_m[:, None] * n + at_n[None, :], total.to(c.dtype.element_ty), mask=mask)


def gemm(a: Any, b: Any, out: Any) -> Any:
    """``out = a @ b.T`` for contiguous ``a`` (m, k) and ``b`` (n, k)."""
    m, k = a.shape
    n = b.shape[0]
    acc = tl.int32 if out.dtype == torch.int32 else tl.float32
    _kernel[lambda meta: (triton.cdiv(m, meta["tile_m"]) * triton.cdiv(n, meta["tile_n"]),)](
        a, b, out, m, n, k, acc_type=acc
    )
    return out
