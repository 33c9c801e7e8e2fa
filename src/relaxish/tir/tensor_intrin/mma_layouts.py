"""Warp layouts of matrices for ``ldmatrix`` and ``mma.sync``: (lane, register) of each element.

Functions take and return scalars or expressions, so that they serve as index maps as well as on numbers.
Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".

>>> shared_16x16_to_ldmatrix_32x8_layout(9, 3)
(5, 3)
>>> mma_32x8_to_shared_16x16_layout(5, 3)
(9, 3)
"""

from __future__ import annotations

from typing import TypeVar

from ...ir.expr import PrimExpr

__all__ = [
    "Index",
    "ldmatrix_32x16_to_shared_16x32_layout_a", "ldmatrix_32x16_to_shared_16x32_layout_b",
    "ldmatrix_32x8_to_shared_16x16_layout", "ldmatrix_trans_32x8_to_shared_16x16_layout",
    "mma_32x8_to_shared_16x16_layout", "shared_16x16_to_ldmatrix_32x8_layout",
    "shared_16x32_to_ldmatrix_32x16_layout", "shared_32x16_to_ldmatrix_32x16_layout",
]  # fmt: skip

#: Numbers or expressions.
Index = TypeVar("Index", int, PrimExpr)


def shared_16x16_to_ldmatrix_32x8_layout(i: Index, j: Index) -> tuple[Index, Index]:
    """(lane, element) of ``[i, j]`` of a 16 x 16 matrix of 16-bit operands or of results."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


def shared_16x32_to_ldmatrix_32x16_layout(i: Index, j: Index) -> tuple[Index, Index]:
    """(lane, element) of ``[i, j]`` of a 16 x 32 matrix of 8-bit operands."""
    return 4 * (i % 8) + (j % 16) // 4, 8 * (j // 16) + (i // 8) * 4 + j % 4


def shared_32x16_to_ldmatrix_32x16_layout(i: Index, j: Index) -> tuple[Index, Index]:
    """(lane, element) of ``[i, j]`` of a 32 x 16 matrix of 8-bit operands."""
    return (i % 16) // 4 + 4 * (j % 8), 8 * (j // 8) + (i // 16) * 4 + i % 4


def ldmatrix_32x8_to_shared_16x16_layout(lane: PrimExpr, element: int) -> tuple[PrimExpr, PrimExpr]:
    """Row and column that a lane addresses in a 16 x 16 tile of shared memory."""
    return lane % 16, 8 * (lane // 16) + element % 8


def ldmatrix_trans_32x8_to_shared_16x16_layout(lane: PrimExpr, element: int) -> tuple[PrimExpr, PrimExpr]:
    """As :func:`ldmatrix_32x8_to_shared_16x16_layout`, where the quarters of the tile are transposed."""
    return 8 * (lane // 16) + lane % 8, 8 * ((lane % 16) // 8) + element % 8


def ldmatrix_32x16_to_shared_16x32_layout_a(lane: PrimExpr, element: int) -> tuple[PrimExpr, PrimExpr]:
    """Row and column that a lane addresses in a 16 x 32 tile of the left operand."""
    return lane % 16, element + (lane // 16) * 16


def ldmatrix_32x16_to_shared_16x32_layout_b(lane: PrimExpr, element: int) -> tuple[PrimExpr, PrimExpr]:
    """Row and column a lane addresses in a 16 x 32 tile of the right operand, which is transposed in memory."""
    return (lane // 16) * 8 + lane % 8, element + 16 * ((lane % 16) // 8)


def mma_32x8_to_shared_16x16_layout(lane: Index, element: Index) -> tuple[Index, Index]:
    """Row and column that a lane's element of a 16 x 16 matrix has."""
    return 8 * (element % 4 // 2) + lane // 4, 8 * (element // 4) + (lane % 4) * 2 + element % 2
