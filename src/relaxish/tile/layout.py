"""Layouts of tiles in shared memory, for ``T.annotate_layout``.

>>> layout = make_swizzled_layout((64, 64), "float16")
>>> layout.get_output_shape()
(1, 64, 64)
>>> [layout(row, 8)[-1] for row in range(4)]  # the second 16 bytes of a row lie where its number says
[8, 0, 24, 16]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..ir import dtype as dt
from ..ir.expr import PrimExpr
from ..ir.prim import IntImm, const_int
from ..tir import Buffer, IndexMap, bitwise_xor
from ..tir.transform.tiles.shared import Order

__all__ = [
    "Layout", "index_map_of", "make_full_bank_swizzled_layout", "make_half_bank_swizzled_layout", "make_linear_layout",
    "make_padded_layout", "make_quarter_bank_swizzled_layout", "make_swizzled_layout", "sizes_of",
]  # fmt: skip

Forward: TypeAlias = Callable[..., "PrimExpr | int | Sequence[PrimExpr | int]"]
_UNIT, _BANKS = 16, 128


class Layout:
    """Layout of a tile of ``shape``: ``forward_fn(*indices)`` gives one index or several.

    Several are taken in row-major order. Raises ValueError where two elements would lie in one place.
    """

    def __init__(self, shape: Sequence[int | PrimExpr], forward_fn: Forward) -> None:
        self.shape = sizes_of(shape)
        self.index_map = IndexMap.from_func(forward_fn, ndim=len(self.shape))
        self.order = Order(self.index_map, self.shape)

    def get_input_shape(self) -> tuple[int, ...]:
        """The shape of the tile."""
        return self.shape

    def get_output_shape(self) -> tuple[int, ...]:
        """Extents of the layout's output indices."""
        return self.order.extents

    def __call__(self, *indices: int) -> tuple[int, ...]:
        """The indices of an element's place."""
        found = []
        for e in self.index_map.map_indices(list(indices)):
            assert isinstance(e, IntImm)
            found.append(int(e.value))
        return tuple(found)

    def __repr__(self) -> str:
        return f"Layout({list(self.shape)} -> {list(self.get_output_shape())}, {self.index_map})"


def sizes_of(shape: Sequence[int | PrimExpr]) -> tuple[int, ...]:
    """Extents as numbers. Raises ValueError where one is not known."""
    sizes = []
    for e in shape:
        value = const_int(e)
        if value is None:
            raise ValueError(f"the extent {e} is not known; tiles in shared memory have constant sizes")
        sizes.append(value)
    return tuple(sizes)


def index_map_of(layout: Layout | IndexMap | Forward, ndim: int) -> IndexMap:
    """The index map of whatever says how a tile lies. Raises TypeError for other things."""
    match layout:
        case Layout():
            return layout.index_map
        case IndexMap():
            return layout
    if callable(layout):
        return IndexMap.from_func(layout, ndim=ndim)
    raise TypeError(f"a layout is a Layout, an index map or a function of the indices, not a {type(layout).__name__}")


def _tile(tile: Buffer | Sequence[int], dtype: str | None) -> tuple[tuple[int, ...], int]:
    """(shape, bytes of an element). Raises ValueError."""
    shape = tile.shape if isinstance(tile, Buffer) else tile
    kind = tile.dtype if isinstance(tile, Buffer) else dtype
    if kind is None:
        raise ValueError("say the type of the elements, or give the buffer")
    if dt.bits(kind) % 8:
        raise ValueError(f"elements of {kind} are smaller than a byte")
    return sizes_of(shape), dt.bits(kind) // 8


def make_linear_layout(tile: Buffer | Sequence[int], dtype: str | None = None) -> Layout:
    """Rows one after the other."""
    shape, _ = _tile(tile, dtype or "uint8")
    return Layout(shape, lambda *indices: list(indices))


def make_padded_layout(tile: Buffer | Sequence[int], dtype: str | None = None, pad_bytes: int = _UNIT) -> Layout:
    """Rows one after the other, with so many bytes between them that nobody uses."""
    shape, item = _tile(tile, dtype)
    pitch = shape[-1] + pad_bytes // item

    def place(*indices: PrimExpr) -> PrimExpr:
        row = indices[0]
        for index, extent in zip(indices[1:-1], shape[1:-1], strict=True):
            row = row * extent + index
        return row * pitch + indices[-1]

    return Layout(shape, place)


def _swizzled(tile: Buffer | Sequence[int], dtype: str | None, width: int) -> Layout:
    """Pieces of rows of ``width`` bytes, whose units of 16 bytes are exclusive-ored with the row's number."""
    shape, item = _tile(tile, dtype)
    if len(shape) < 2 or shape[-1] * item % width or shape[-2] % 8:
        raise ValueError(
            f"a tile of {list(shape)} elements of {item} bytes has no rows of {width} bytes in groups of 8"
        )
    columns, unit, units, lines = width // item, _UNIT // item, width // _UNIT, _BANKS // width

    def place(*indices: PrimExpr) -> list[PrimExpr]:
        *outer, row, column = indices
        turned = bitwise_xor(column % columns // unit, row // lines % units)
        return [*outer, column // columns, row, turned * unit + column % unit]

    return Layout(shape, place)


def make_full_bank_swizzled_layout(tile: Buffer | Sequence[int], dtype: str | None = None) -> Layout:
    """Swizzled in pieces of 128 bytes, what tensor copies call 128B. Raises ValueError for tiles without such rows."""
    return _swizzled(tile, dtype, 128)


def make_half_bank_swizzled_layout(tile: Buffer | Sequence[int], dtype: str | None = None) -> Layout:
    """Swizzled in pieces of 64 bytes (64B). Raises ValueError for tiles without such rows."""
    return _swizzled(tile, dtype, 64)


def make_quarter_bank_swizzled_layout(tile: Buffer | Sequence[int], dtype: str | None = None) -> Layout:
    """Swizzled in pieces of 32 bytes (32B). Raises ValueError for tiles without such rows."""
    return _swizzled(tile, dtype, 32)


def make_swizzled_layout(tile: Buffer | Sequence[int], dtype: str | None = None, allow_pad: bool = True) -> Layout:
    """The widest swizzle that the tile has, which keeps the reads of products free of bank conflicts; else padded rows
    (with ``allow_pad``), or plain ones."""
    for width in (128, 64, 32):
        try:
            return _swizzled(tile, dtype, width)
        except ValueError:
            continue
    return make_padded_layout(tile, dtype) if allow_pad else make_linear_layout(tile, dtype)
