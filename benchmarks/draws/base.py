"""What a draw is, and how sizes, types and numbers are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["Draw", "Family", "Rng", "dtype", "floats", "lengths", "of", "size"]

Rng = np.random.Generator


@dataclass
class Draw:
    """One workload: a torch module, its inputs, and what an honest implementation may lose.

    ``terms`` is the length of the longest sum behind an output, ``rounded`` how often a value is rounded to the type of
    the inputs on its way; together they bound the error, relative to the largest magnitude expected.
    """

    text: str
    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    terms: int = 1
    rounded: int = 1
    exact: bool = False
    family: str = ""

    def bound(self) -> float:
        """Largest relative error that the types allow; 0 for whole numbers."""
        kinds = [x.dtype for x in self.inputs if x.is_floating_point()]
        if self.exact or not kinds:
            return 0.0
        unit = max(torch.finfo(kind).eps for kind in kinds)
        sums = torch.finfo(torch.float64 if kinds[0] == torch.float64 else torch.float32).eps
        return float(2 * self.rounded * unit + 4 * math.sqrt(self.terms) * sums)


Family = Callable[[Rng], Draw]


def size(rng: Rng, low: int, high: int) -> int:
    """A size, log-uniform; a third of them are odd or prime, a third multiples of 8."""
    value = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    turn = rng.integers(3)
    if turn == 0:
        return min(high, value | 1)
    if turn == 1 and value > 8:
        return value // 8 * 8
    return value


def lengths(rng: Rng, bounds: Sequence[tuple[int, int]], most: float) -> list[int]:
    """Sizes of several axes whose product is at most ``most``: the largest is halved until it is."""
    found = [size(rng, low, high) for low, high in bounds]
    while math.prod(found) > most:
        at = int(np.argmax(found))
        found[at] = max(bounds[at][0], (found[at] + 1) // 2)
        if found[at] == bounds[at][0] and all(f == low for f, (low, _) in zip(found, bounds)):
            break
    return found


def dtype(rng: Rng, *weighted: tuple[torch.dtype, float]) -> torch.dtype:
    """A type; by default mostly float32, then bfloat16, float16, float64."""
    choice = weighted or (
        (torch.float32, 0.6),
        (torch.bfloat16, 0.15),
        (torch.float16, 0.15),
        (torch.float64, 0.1),
    )
    weights = np.array([w for _, w in choice])
    return choice[int(rng.choice(len(choice), p=weights / weights.sum()))][0]


def floats(rng: Rng, shape: Sequence[int], kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed numbers."""
    return torch.from_numpy(rng.standard_normal(tuple(shape), dtype=np.float32)).to(kind)


class _Of(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], weights: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.count = len(weights)
        for i, weight in enumerate(weights):
            self.register_buffer(f"w{i}", weight)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *(getattr(self, f"w{i}") for i in range(self.count)))


def of(function: Callable[..., Any], *weights: torch.Tensor) -> torch.nn.Module:
    """A module of a function of the inputs and then of the weights, which are constants of the model."""
    return _Of(function, weights).eval()
