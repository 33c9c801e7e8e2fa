"""What warps compute together: ``ldmatrix``, ``mma.sync``, and the stores and fills of their fragments.

Each lane holds a few elements of every matrix; the layouts are those of the PTX manual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .intrinsics import Array, Pointer

__all__ = ["WARP_INSTRUCTIONS"]

Position = Callable[[int, int], tuple[int, int]]


def _accumulator(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2


def _a_16(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i // 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i // 4)


def _b_16(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 2 + i % 2 + 8 * (i // 2), lane // 4


def _a_8(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i // 4 % 2), lane % 4 * 4 + i % 4 + 16 * (i // 8)


def _b_8(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 4 + i % 4 + 16 * (i // 4), lane // 4


def _a_32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i % 2), lane % 4 + 4 * (i // 2)


def _b_32(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane // 4


# Shape -> (k, elements of A and B a lane holds, where they are in the matrices).
_SHAPES: dict[str, tuple[int, int, int, Position, Position]] = {
    "m16n8k8": (8, 4, 2, _a_16, _b_16),
    "m16n8k16": (16, 8, 4, _a_16, _b_16),
    "m16n8k32": (32, 16, 8, _a_8, _b_8),
    "m16n8k8 of tf32": (8, 4, 2, _a_32, _b_32),
}


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
    shape = str(first[0]) + (" of tf32" if first[3] == "tf32" else "")
    if shape not in _SHAPES:
        raise NotImplementedError(f"the interpreter does not know mma of shape {shape}")
    k, a_count, b_count, a_at, b_at = _SHAPES[shape]
    a = _gather({lane: _memory(r[6], r[7]) for lane, r in requests.items()}, a_count, a_at, 16, k)
    b = _gather({lane: _memory(r[8], r[9]) for lane, r in requests.items()}, b_count, b_at, k, 8)
    results = {lane: _memory(r[10], r[11]) for lane, r in requests.items()}
    kind = next(iter(results.values())).dtype
    wide: Any = np.int32 if kind.kind in "iu" else np.float32
    product = a.astype(wide) @ b.astype(wide)
    for lane, values in results.items():
        for i in range(4):
            values[i] = (values[i].astype(wide) + product[_accumulator(lane, i)]).astype(kind)
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
            pair = np.ascontiguousarray(held[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]).view(target.dtype)
            target[m * len(pair) : (m + 1) * len(pair)] = pair
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
            row = 8 * (i % 4 // 2) + lane // 4
            column = 8 * (i // 4) + lane % 4 * 2 + i % 2
            memory[row * int(stride) + column] = values[i]
    return dict.fromkeys(requests, 0)


WARP_INSTRUCTIONS: dict[str, Callable[[dict[int, Any]], dict[int, Any]]] = {
    "ptx_mma": _mma, "ptx_ldmatrix": _ldmatrix, "mma_fill": _fill, "mma_store": _store,
}  # fmt: skip
