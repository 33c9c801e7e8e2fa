"""Matrix products and attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .base import Draw, Rng, dtype, floats, lengths, of, size

__all__ = ["PRODUCTS"]

_MOST = 1.5e9  # multiply-adds of one call: tens of milliseconds on one core


def dense(rng: Rng) -> Draw:
    """A linear layer with a constant weight, sometimes a bias and an activation."""
    m, n, k = lengths(rng, [(1, 1024), (8, 60000), (8, 4096)], _MOST)
    n = min(n, max(8, int(2e7 / k)))
    kind = dtype(rng)
    weight, bias = floats(rng, (n, k), kind) / k**0.5, floats(rng, (n,), kind)
    after = str(rng.choice(["", "relu", "gelu", "silu"]))
    with_bias = bool(rng.integers(2))

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, w, b if with_bias else None)
        return getattr(F, after)(y) if after else y

    text = f"linear {m}x{k}->{n} {kind} bias={with_bias} {after}"
    return Draw(text, of(run, weight, bias), (floats(rng, (m, k), kind),), terms=k, rounded=2)


def matmul(rng: Rng) -> Draw:
    """A product of two inputs, either transposed or not."""
    m, n, k = lengths(rng, [(1, 2048), (1, 2048), (1, 2048)], _MOST)
    kind = dtype(rng)
    left, right = bool(rng.integers(2)), bool(rng.integers(2))
    a = floats(rng, (k, m) if left else (m, k), kind)
    b = floats(rng, (n, k) if right else (k, n), kind)
    module = of(lambda x, y: (x.T if left else x) @ (y.T if right else y))
    return Draw(f"matmul {m}x{k}x{n} {kind} transposed={left, right}", module, (a, b), terms=k)


def batched_matmul(rng: Rng) -> Draw:
    """Many products at once."""
    b, m, n, k = lengths(rng, [(2, 256), (1, 512), (1, 512), (4, 512)], _MOST / 2)
    kind = dtype(rng)
    inputs = (floats(rng, (b, m, k), kind), floats(rng, (b, k, n), kind))
    return Draw(f"bmm {b}x {m}x{k}x{n} {kind}", of(torch.bmm), inputs, terms=k)


def attention(rng: Rng) -> Draw:
    """Scaled dot-product attention: any lengths, heads, widths, masks."""
    batch, heads = size(rng, 1, 4), size(rng, 1, 16)
    queries = 1 if rng.integers(4) == 0 else size(rng, 2, 512)
    keys = queries if rng.integers(2) and queries > 1 else size(rng, 2, 1500)
    width = int(rng.choice([16, 32, 40, 64, 80, 96, 128]))
    kind = dtype(rng, (torch.float32, 0.7), (torch.bfloat16, 0.15), (torch.float16, 0.15))
    mask = str(rng.choice(["none", "causal", "given"])) if queries == keys else str(rng.choice(["none", "given"]))
    q = floats(rng, (batch, heads, queries, width), kind)
    k, v = (floats(rng, (batch, heads, keys, width), kind) for _ in range(2))
    shared = heads % 2 == 0 and heads > 2 and rng.integers(4) == 0
    k, v = (x[:, : heads // 2].contiguous() if shared else x for x in (k, v))
    inputs: tuple[torch.Tensor, ...] = (q, k, v)
    if mask == "given":
        inputs = (*inputs, floats(rng, (batch, 1, queries, keys), kind))

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: torch.Tensor | None = None) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=mask == "causal", enable_gqa=bool(shared))

    text = f"attention {batch}x{heads} heads{' by two' * bool(shared)}, {queries} queries, {keys} keys, width {width}, mask {mask} {kind}"
    return Draw(text, of(run), inputs, terms=keys, rounded=4)


PRODUCTS = (dense, matmul, batched_matmul, attention)
