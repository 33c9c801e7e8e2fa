"""Which elements of a matrix a lane holds in ``mma.sync``, by shape and kind of element (PTX ISA, "mma").

Positions take a lane and the number of an element, as numbers or expressions, and give (row, column).

>>> MMA["m16n8k16", 16].a(5, 3)
(9, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["MMA", "Shape"]

Position = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Shape:
    """One shape: its sizes, how many elements of a, b and c a lane holds, and where they are."""

    m: int
    n: int
    k: int
    a_count: int
    b_count: int
    c_count: int
    a: Position
    b: Position
    c: Position


def _c_16(lane: Any, i: Any) -> tuple[Any, Any]:
    return lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2


def _c_8(lane: Any, i: Any) -> tuple[Any, Any]:
    return lane // 4, lane % 4 * 2 + i


def _a(run: int) -> Position:
    """Runs of elements side by side, then eight rows further down, then the next columns."""
    return lambda lane, i: (lane // 4 + 8 * (i // run % 2), lane % 4 * run + i % run + 4 * run * (i // (2 * run)))


def _b(run: int) -> Position:
    return lambda lane, i: (lane % 4 * run + i % run + 4 * run * (i // run), lane // 4)


def _short_a(run: int) -> Position:
    return lambda lane, i: (lane // 4, lane % 4 * run + i)


def _short_b(run: int) -> Position:
    return lambda lane, i: (lane % 4 * run + i, lane // 4)


def _tall(k: int, run: int) -> Shape:
    return Shape(16, 8, k, k // 2, k // 4, 4, _a(run), _b(run), _c_16)


def _square(k: int, run: int) -> Shape:
    return Shape(8, 8, k, run, run, 2, _short_a(run), _short_b(run), _c_8)


MMA: dict[tuple[str, int], Shape] = {
    ("m16n8k8", 16): _tall(8, 2), ("m16n8k16", 16): _tall(16, 2),
    ("m16n8k16", 8): _tall(16, 4), ("m16n8k32", 8): _tall(32, 4),
    ("m16n8k4", 32): _tall(4, 1), ("m16n8k8", 32): _tall(8, 1),
    ("m16n8k32", 4): _tall(32, 8), ("m16n8k64", 4): _tall(64, 8),
    ("m8n8k16", 8): _square(16, 4), ("m8n8k32", 4): _square(32, 8), ("m8n8k4", 64): _square(4, 1),
}  # fmt: skip
"""By shape and bits of an operand's element."""
