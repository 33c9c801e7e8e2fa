"""Shared-memory layout of an operand tile: swizzled pieces that both bulk copies and warpgroup products understand.

A piece is what one copy brings: rows of ``swizzle`` bytes, one below the other; the 16-byte units of a row are
permuted by the row's number, which keeps the reads of a product free of bank conflicts. Facts (PTX ISA, "Matrix
descriptor" and "Canonical layouts"; tensor copies' "Swizzling modes"):

* the permutation exclusive-ors address bits 4.. with bits 7.. (3, 2 or 1 of them for 128, 64 or 32 bytes), so that
  a piece must begin at a multiple of 1024 bytes (8 rows of 128) for copies and products to agree;
* depth-major (rows of the tile contiguous along the depth): groups of 8 rows are ``stride`` = 8 * swizzle bytes apart;
  a product that begins at a later depth within a row just begins 32 bytes on; ``leading`` is not looked at;
* row-major along m or n (16-bit elements only): groups of 8 depths are ``stride`` = 8 * swizzle bytes apart, the next
  ``swizzle`` bytes of m or n are ``leading`` bytes further, that is in the next piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....ir import dtype as dt
from .tiles import HopperError

__all__ = ["DEPTH_BYTES", "TileLayout", "tile_layout"]

DEPTH_BYTES = 32
"""How much of the depth one product instruction takes, whatever the type."""
_WIDTHS = (128, 64, 32)
_MAX_BOX = 256
# Bytes that swizzling moves together.
_UNIT = 16


@dataclass(frozen=True)
class TileLayout:
    """One operand's tile of ``rows`` (m or n) by ``depth`` elements of ``dtype``."""

    rows: int
    depth: int
    dtype: str
    by_rows: bool
    swizzle: int

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return dt.bits(self.dtype) // 8

    @property
    def width(self) -> int:
        """Elements in a row of a piece."""
        return self.swizzle // self.item

    @property
    def lines(self) -> int:
        """Rows of a piece."""
        return self.depth if self.by_rows else self.rows

    @property
    def pieces(self) -> int:
        """Copies that bring the tile."""
        return (self.rows if self.by_rows else self.depth) // self.width

    @property
    def piece_bytes(self) -> int:
        """Size of a piece."""
        return self.lines * self.swizzle

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        return self.rows * self.depth * self.item

    @property
    def box(self) -> tuple[int, int]:
        """Elements one copy brings, innermost first."""
        return self.width, self.lines

    @property
    def offsets(self) -> tuple[int, int]:
        """(leading, stride) byte offsets of a matrix descriptor."""
        return (self.piece_bytes if self.by_rows else 16), 8 * self.swizzle

    def table(self) -> npt.NDArray[np.int64]:
        """The place of each element (rows, depth), or (depth, rows) by rows, in elements from the first."""
        line, along = np.indices((self.lines, self.rows if self.by_rows else self.depth))
        units, per_unit = self.swizzle // _UNIT, _UNIT // self.item
        unit = along % self.width // per_unit ^ line // (128 // self.swizzle) % units
        inside = line * self.width + unit * per_unit + along % per_unit
        return along // self.width * (self.piece_bytes // self.item) + inside

    def begin(self, row: int, depth: int) -> int:
        """The byte where a product's operand begins that starts at an element of the tile."""
        if self.by_rows:
            return row // self.width * self.piece_bytes + depth * self.swizzle
        return depth // self.width * self.piece_bytes + row * self.swizzle + depth % self.width * self.item


def tile_layout(rows: int, depth: int, dtype: str, by_rows: bool) -> TileLayout:
    """The layout with the widest swizzle that divides the tile. Raises HopperError where there is none."""
    item = dt.bits(dtype) // 8
    if by_rows and item != 2:
        raise HopperError(f"{dtype} operands must be contiguous along the depth")
    along = (rows if by_rows else depth) * item
    for width in _WIDTHS:
        if along % width == 0:
            made = TileLayout(rows, depth, dtype, by_rows, width)
            if made.lines > _MAX_BOX or made.lines % 8 or made.piece_bytes % 1024:
                break
            return made
    raise HopperError(f"a tile of {rows} x {depth} {dtype} cannot be laid out in swizzled pieces")
