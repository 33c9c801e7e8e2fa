"""Tile multiplications of AMX: ``amx.tdp...(c, c_stride, a, a_stride, b, b_stride)``, strides in elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from collections.abc import Callable

from .intrinsics import Array, EXTERN, Pointer

__all__ = ["TILE_TYPES"]

# Instruction -> how A's and B's memory is read.
TILE_TYPES: dict[str, tuple[type[np.integer[Any]], type[np.integer[Any]]] | None] = {
    "amx.tdpbf16ps": None,
    "amx.tdpbusd": (np.uint8, np.int8),
    "amx.tdpbssd": (np.int8, np.int8),
    "amx.tdpbuud": (np.uint8, np.uint8),
    "amx.tdpbsud": (np.int8, np.uint8),
}


def _tile(pointer: Pointer, stride: int, columns: int) -> Array:
    """Sixteen rows of a matrix, as a copy."""
    return np.stack([pointer.data[pointer.offset + i * stride :][:columns] for i in range(16)])


def _multiply(name: str, c: Pointer, c_stride: int, a: Pointer, a_stride: int, b: Pointer, b_stride: int) -> int:
    pack = 2 if name == "amx.tdpbf16ps" else 4
    left, right = _tile(a, int(a_stride), 16 * pack), _tile(b, int(b_stride), 16 * pack)
    wide: type[np.number[Any]] = np.float32
    kinds = TILE_TYPES[name]
    if kinds is not None:
        wide = np.int32
        left, right = left.view(kinds[0]), right.view(kinds[1])
    # Row k of B holds, for each of sixteen columns, the values that meet words k of A's rows.
    unpacked = right.astype(wide).reshape(16, 16, pack).transpose(0, 2, 1).reshape(16 * pack, 16)
    product = left.astype(wide) @ unpacked
    for i in range(16):
        c.data[c.offset + i * int(c_stride) :][:16] += product[i]
    return 0


def _meaning(name: str) -> Callable[..., int]:
    return lambda *args: _multiply(name, *args)


for _name in TILE_TYPES:
    EXTERN[_name] = _meaning(_name)
