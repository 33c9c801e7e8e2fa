"""Register layouts of ``mma.sync``: which elements of a matrix each lane holds (PTX ISA, "mma", "mma.sp").

Positions take a lane and the number of an element, as numbers or expressions, and give (row, column).

>>> MMA["m16n8k16", 16].a(5, 3)
(9, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .mma_layouts import Index

__all__ = ["MMA", "MMA_SPARSE", "PTX_TYPES", "Position", "Shape", "Sparse"]

PTX_TYPES = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32", "fp64": "float64",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "int8": "int8", "uint8": "uint8", "int4": "int4", "uint4": "uint4",
    "int32": "int32", "float16": "float16", "float32": "float32", "bfloat16": "bfloat16",
}  # fmt: skip
"""The dtypes that calls of ``ptx_mma`` name."""

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


def _c_16(lane: Index, i: Index) -> tuple[Index, Index]:
    return lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2


def _c_8(lane: Index, i: Index) -> tuple[Index, Index]:
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


@dataclass(frozen=True)
class Sparse:
    """A shape whose left operand has half of its elements, of each chunk of a row; metadata says which.

    ``held`` is where lanes hold the elements that there are: as a dense operand of half the width. Each chunk has four
    bits of metadata: two indices of two bits. Sources: PTX ISA, "Sparse matrix storage", "Matrix fragments for
    multiply-accumulate operation with sparse matrix A".
    """

    held: Shape
    b_count: int
    bits: int
    threads: int
    """Threads of each four that hold the metadata of two rows; the selector says which of them."""

    @property
    def chunk(self) -> int:
        """Elements of a chunk: 2 (one is there), 4 (two are) or 8 (two pairs)."""
        return {32: 2, 4: 8}.get(self.bits, 4)

    def where(self, row: Index, chunk: Index, selector: int) -> tuple[Index, Index]:
        """The lane that holds the metadata of a chunk, and the lowest bit of it there.

        For elements of 16 bits and more two rows, eight apart, share a word; for smaller ones each has its own.
        """
        first = row % 8 * 4 + selector * self.threads
        if self.bits >= 16:
            return first + chunk // 4, row // 8 * 16 + chunk % 4 * 4
        return first + chunk // 8 * 2 + row // 8, chunk % 8 * 4

    def column(self, bits: Index, held: Index) -> Index:
        """The column that an element of a row has in the whole matrix, from the four bits of its chunk."""
        if self.chunk == 2:
            return held * 2 + bits // 2 % 2
        if self.chunk == 4:
            return held // 2 * 4 + bits // (1 + held % 2 * 3) % 4
        return held // 4 * 8 + bits // (1 + held // 2 % 2 * 3) % 4 * 2 + held % 2


MMA_SPARSE: dict[tuple[str, int], Sparse] = {
    ("m16n8k16", 16): Sparse(_tall(8, 2), 4, 16, 1), ("m16n8k32", 16): Sparse(_tall(16, 2), 8, 16, 2),
    ("m16n8k8", 32): Sparse(_tall(4, 1), 2, 32, 1), ("m16n8k16", 32): Sparse(_tall(8, 1), 4, 32, 2),
    ("m16n8k32", 8): Sparse(_tall(16, 4), 8, 8, 2), ("m16n8k64", 8): Sparse(_tall(32, 4), 16, 8, 4),
    ("m16n8k64", 4): Sparse(_tall(32, 8), 16, 4, 2), ("m16n8k128", 4): Sparse(_tall(64, 8), 32, 4, 4),
}  # fmt: skip
"""By shape and bits of an operand's element."""
