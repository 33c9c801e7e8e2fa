"""Recurrent cells over a sequence."""

from __future__ import annotations

import torch

from .base import Draw, Rng, floats, lengths, size

__all__ = ["RECURRENT"]


class _First(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


def recurrent(rng: Rng) -> Draw:
    """LSTM or GRU, one or two layers, one or both directions."""
    batch, steps, inside, hidden = lengths(rng, [(1, 16), (2, 48), (4, 512), (4, 512)], 4e7)
    which, layers, both = str(rng.choice(["LSTM", "GRU"])), size(rng, 1, 2), bool(rng.integers(2))
    torch.manual_seed(int(rng.integers(2**31)))
    inner = getattr(torch.nn, which)(inside, hidden, layers, batch_first=True, bidirectional=both)
    text = f"{which} {inside}->{hidden} layers {layers} both={both} batch {batch} steps {steps}"
    return Draw(
        text, _First(inner).eval(), (floats(rng, (batch, steps, inside)),), terms=(inside + hidden) * steps, rounded=4
    )


RECURRENT = (recurrent,)
