"""Register layouts of ``mma.sync`` and ``wgmma``: which elements of a matrix each lane holds (PTX ISA, "mma", "mma.sp", "wgmma").

Positions take a lane and the number of an element, as numbers or expressions, and give (row, column).

>>> MMA["m16n8k16", 16].a(5, 3)
(9, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .mma_layouts import Index

__all__ = [
    "MMA", "MMA_SPARSE", "PTX_TYPES", "Position", "Shape", "Sparse", "first_result", "pair", "warp_result",
    "warpgroup_result",
]  # fmt: skip

PTX_TYPES = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32", "fp64": "float64",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "int8": "int8", "uint8": "uint8", "int4": "int4", "uint4": "uint4",
    "int32": "int32", "float16": "float16", "float32": "float32", "bfloat16": "bfloat16",
}  # fmt: skip
"""The dtypes that calls of ``ptx_mma`` name."""

Position = Callable[[Any, Any], tuple[Any, Any]]


def pair(lane: Index, i: Index) -> tuple[Index, Index]:
    """Of a matrix of 8 x 8 every lane holds two elements side by side: results of 8 rows, what ``ldmatrix`` brings."""
    return lane // 4, lane % 4 * 2 + i


def warpgroup_result(thread: Index, i: Index) -> tuple[Index, Index]:
    """Results of ``wgmma``: each warp of the four has 16 rows, and these as ``mma.sync`` has them, eight columns a time."""
    row = thread // 32 * 16 + thread % 32 // 4 + i % 4 // 2 * 8
    return row, i // 4 * 8 + thread % 4 * 2 + i % 2


def warp_result(lane: Index, i: Index) -> tuple[Index, Index]:
    """Results of ``wgmma`` within one warp: 16 rows as ``mma.sync`` has them, eight columns a time."""
    return lane // 4 + i % 4 // 2 * 8, i // 4 * 8 + lane % 4 * 2 + i % 2


def first_result(thread: Index) -> tuple[Index, Index, Index]:
    """Of the first result of ``wgmma`` that a thread holds: its warp's row, its row within the warp, its column.

    The thread's other results are beside it, 8 rows below, and 8, 16, ... columns to the right.
    """
    return thread % 128 // 32 * 16, thread % 32 // 4, thread % 4 * 2


@dataclass(frozen=True)
class Shape:
    """One shape: its sizes, how many elements of a, b and c a lane holds, and where they are.

    ``run`` elements of an operand lie side by side along ``k``, then come those eight rows further down, then the next.
    """

    m: int
    n: int
    k: int
    run: int

    @property
    def a_count(self) -> int:
        return self.m * self.k // 32

    @property
    def b_count(self) -> int:
        return self.n * self.k // 32

    @property
    def c_count(self) -> int:
        return self.m * self.n // 32

    def a(self, lane: Any, i: Any) -> tuple[Any, Any]:
        r = self.run
        if self.m == 8:
            return lane // 4, lane % 4 * r + i
        return lane // 4 + i // r % 2 * 8, lane % 4 * r + i % r + i // (2 * r) * (4 * r)

    def b(self, lane: Any, i: Any) -> tuple[Any, Any]:
        r = self.run
        return lane % 4 * r + i % r + i // r * (4 * r), lane // 4

    def c(self, lane: Any, i: Any) -> tuple[Any, Any]:
        if self.m == 8:
            return pair(lane, i)
        row, column = pair(lane, i % 2)
        return row + i // 2 * 8, column


MMA: dict[tuple[str, int], Shape] = {
    **{(f"m16n8k{k}", bits): Shape(16, 8, k, run) for k, bits, run in (
        (8, 16, 2), (16, 16, 2), (16, 8, 4), (32, 8, 4), (4, 32, 1), (8, 32, 1), (32, 4, 8), (64, 4, 8),
    )},
    **{(f"m8n8k{k}", bits): Shape(8, 8, k, run) for k, bits, run in ((16, 8, 4), (32, 4, 8), (4, 64, 1))},
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
    bits: int
    threads: int
    """Threads of each four that hold the metadata of two rows; the selector says which of them."""

    @property
    def b_count(self) -> int:
        """Elements of b, which has all, in a lane."""
        return 2 * self.held.b_count

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
    (f"m16n8k{2 * k}", bits): Sparse(Shape(16, 8, k, run), bits, threads) for k, run, bits, threads in (
        (8, 2, 16, 1), (16, 2, 16, 2), (4, 1, 32, 1), (8, 1, 32, 2), (16, 4, 8, 2), (32, 4, 8, 4), (32, 8, 4, 2), (64, 8, 4, 4),
    )
}  # fmt: skip
"""By shape and bits of an operand's element."""
