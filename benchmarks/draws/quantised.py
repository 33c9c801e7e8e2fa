"""Products of whole numbers."""

from __future__ import annotations

import torch

from .base import Draw, Rng, floats, lengths, of

__all__ = ["QUANTISED"]


def int8_product(rng: Rng) -> Draw:
    """int8 by int8, summed in int32."""
    m, n, k = lengths(rng, [(17, 1024), (8, 2048), (8, 2048)], 2e9)
    n, k = -(-n // 8) * 8, -(-k // 8) * 8  # torch's own kernel asks for it
    a = torch.from_numpy(rng.integers(-128, 128, (m, k)).astype("int8"))
    b = torch.from_numpy(rng.integers(-128, 128, (k, n)).astype("int8"))
    return Draw(f"int8 {m}x{k}x{n}", of(torch._int_mm, b), (a,), exact=True)


def weight_only_linear(rng: Rng) -> Draw:
    """A linear layer whose weight is stored as int8 with a scale for each output channel."""
    m, n, k = lengths(rng, [(1, 128), (8, 4096), (8, 4096)], 5e8)
    weight = torch.from_numpy(rng.integers(-127, 128, (n, k)).astype("int8"))
    scale = floats(rng, (n,)).abs() / 127

    def run(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, w.to(x.dtype)) * s

    return Draw(f"int8 weight linear {m}x{k}->{n}", of(run, weight, scale), (floats(rng, (m, k)),), terms=k, rounded=2)


QUANTISED = (int8_product, weight_only_linear)
