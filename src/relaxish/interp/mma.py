"""Matrix operations of warps: ``ldmatrix``, ``mma.sync``, and the stores and fills of their fragments.

Each lane holds a few elements of every matrix; the layouts are those of the PTX manual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..tir.tensor_intrin.mma_fragments import MMA, PTX_TYPES, Position, pair
from ..tir.tensor_intrin.mma_layouts import mma_32x8_to_shared_16x16_layout
from .intrinsics import Array, Pointer

__all__ = ["WARP_INSTRUCTIONS"]


def _memory(place: Array | Pointer, offset: int) -> Array:
    """The elements from an address on."""
    if isinstance(place, Pointer):
        return place.data[place.offset + int(offset) :]
    return place[int(offset) :]


def _gather(held: dict[int, Any], count: int, at: Position, rows: int, columns: int) -> Array:
    first = next(iter(held.values()))
    out = np.zeros((rows, columns), dtype=first.dtype)
    for lane, values in held.items():
        for i in range(count):
            out[at(lane, i)] = values[i]
    return out


def _mma(requests: dict[int, Any]) -> dict[int, Any]:
    """``(shape, a_layout, b_layout, a_type, b_type, c_type, a, a_index, b, b_index, c, c_index, saturate)``."""
    first = next(iter(requests.values()))
    bits = dt.bits(PTX_TYPES.get(str(first[3]), "int4"))
    shape = MMA.get((str(first[0]), bits)) if bits >= 8 else None
    if shape is None:
        raise NotImplementedError(f"the interpreter does not know mma of shape {first[0]} of {first[3]}")
    a = _gather({lane: _memory(r[6], r[7]) for lane, r in requests.items()}, shape.a_count, shape.a, shape.m, shape.k)
    b = _gather({lane: _memory(r[8], r[9]) for lane, r in requests.items()}, shape.b_count, shape.b, shape.k, shape.n)
    results = {lane: _memory(r[10], r[11]) for lane, r in requests.items()}
    kind = next(iter(results.values())).dtype
    wide: Any = np.int32 if kind.kind in "iu" else np.float64 if kind == np.float64 else np.float32
    product = a.astype(wide) @ b.astype(wide)
    for lane, values in results.items():
        for i in range(shape.c_count):
            values[i] = (values[i].astype(wide) + product[shape.c(lane, i)]).astype(kind)
    return dict.fromkeys(requests, 0)


def _ldmatrix(requests: dict[int, Any]) -> dict[int, Any]:
    """``(transposed, count, ".b16", local, local_offset, shared, shared_offset)``: lane i points at row i."""
    first = next(iter(requests.values()))
    transposed, count = bool(first[0]), int(first[1])
    if transposed and _memory(first[5], 0).itemsize == 1:
        return _load_bytes_transposed(requests)
    rows = {lane: _memory(r[5], r[6]) for lane, r in requests.items()}
    size = next(iter(rows.values())).itemsize
    width = 16 // size
    matrices = [
        np.stack([rows[8 * m + i][:width].view(np.uint16) for i in range(8)]) for m in range(count)
    ]  # fmt: skip
    for lane, request in requests.items():
        target = _memory(request[3], request[4])
        for m, matrix in enumerate(matrices):
            held = matrix.T if transposed else matrix
            row, column = pair(lane, 0)
            values = np.ascontiguousarray(held[row, column : column + 2]).view(target.dtype)
            target[m * len(values) : (m + 1) * len(values)] = values
    return dict.fromkeys(requests, 0)


def _load_bytes_transposed(requests: dict[int, Any]) -> dict[int, Any]:
    """The instruction cannot transpose bytes, so each lane reads its own; the last argument is the row pitch."""
    for lane, request in requests.items():
        memory, target, stride = _memory(request[5], 0), _memory(request[3], request[4]), int(request[6])
        for i in range(16):
            row = i % 8 // 4 * 16 + lane % 4 * 4 + i % 4
            target[i] = memory[row * stride + lane // 4 + i // 8 * 8]
    return dict.fromkeys(requests, 0)


def _fill(requests: dict[int, Any]) -> dict[int, Any]:
    """``(count, local, offset)``."""
    for count, local, offset in requests.values():
        _memory(local, offset)[: int(count)] = 0
    return dict.fromkeys(requests, 0)


def _store(requests: dict[int, Any]) -> dict[int, Any]:
    """``(m, n, target, source, source_offset, stride)``: eight elements of a lane into a 16 x 16 tile."""
    for lane, (_, _, target, source, offset, stride) in requests.items():
        values, memory = _memory(source, offset), _memory(target, 0)
        for i in range(8):
            row, column = mma_32x8_to_shared_16x16_layout(lane, i)
            memory[row * int(stride) + column] = values[i]
    return dict.fromkeys(requests, 0)


WARP_INSTRUCTIONS: dict[str, Callable[[dict[int, Any]], dict[int, Any]]] = {
    "ptx_mma": _mma, "ptx_ldmatrix": _ldmatrix, "mma_fill": _fill, "mma_store": _store,
}  # fmt: skip
