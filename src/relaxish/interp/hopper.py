"""Hopper's instructions: barriers in shared memory, bulk tensor copies, products of four warps.

Addresses are taken literally: a copy writes swizzled bytes, a product reads them back through its operands' byte
distances, as the matrix descriptors of PTX say. Shared memory is taken to begin at a multiple of 1024. A copy is
complete as soon as it is issued; the emulator is there to find the races that this hides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..tir.tensor_intrin.mma_fragments import warpgroup_result
from .intrinsics import Array, MEANINGS, np_dtype, Pointer

__all__ = ["GROUPS", "WAITS", "BlockWaits", "TensorMap", "swizzled"]

#: The place of a byte, or the places of many.
Address = TypeVar("Address", int, Array)
Bytes = np.ndarray[Any, Any]
_WARPGROUP = 128


def swizzled(address: Address, width: int) -> Address:
    """Byte address after swizzling over ``width`` bytes (0: no swizzle).

    Bits 4.. are exclusive-ored with bits 7..: 3 bits for 128 bytes, 2 for 64, 1 for 32.
    """
    return address ^ ((address >> 7 & width // 16 - 1) << 4) if width else address


def _bytes(place: Pointer) -> tuple[Bytes, int]:
    return place.data.view(np.uint8), place.offset * place.data.itemsize


# -- barriers: the phase bit, the arrivals of a phase, those missing, and the bytes missing, in one word ---------------

_BITS = 20
_MASK = (1 << _BITS) - 1


def _state(barrier: Pointer) -> tuple[int, int, int, int]:
    word = int(barrier.data[barrier.offset])
    missing_bytes = word & (1 << _BITS + 1) - 1
    if missing_bytes >> _BITS:
        missing_bytes -= 1 << _BITS + 1
    word >>= _BITS + 1
    return word >> 2 * _BITS & 1, word >> _BITS & _MASK, word & _MASK, missing_bytes


def _set(barrier: Pointer, phase: int, arrivals: int, missing: int, missing_bytes: int) -> int:
    if missing < 0:
        raise RuntimeError("more threads arrive at a barrier than its phase expects")
    if missing == 0 and missing_bytes == 0:
        phase, missing = phase ^ 1, arrivals
    word = ((phase << _BITS | arrivals) << _BITS | missing) << _BITS + 1 | missing_bytes & (1 << _BITS + 1) - 1
    barrier.data[barrier.offset] = word
    return 0


def _init(barrier: Pointer, count: int) -> int:
    return _set(barrier, 0, int(count), int(count), 0)


def _arrive(barrier: Pointer, rank: int = 0) -> int:
    if int(rank) != 0:
        raise NotImplementedError("the interpreter runs one block of a cluster at a time")
    phase, arrivals, missing, missing_bytes = _state(barrier)
    return _set(barrier, phase, arrivals, missing - 1, missing_bytes)


def _expect(barrier: Pointer, count: int) -> int:
    phase, arrivals, missing, missing_bytes = _state(barrier)
    return _set(barrier, phase, arrivals, missing - 1, missing_bytes + int(count))


def _completed(barrier: Pointer, count: int) -> None:
    phase, arrivals, missing, missing_bytes = _state(barrier)
    _set(barrier, phase, arrivals, missing, missing_bytes - count)


def _passed(barrier: Pointer, parity: int) -> bool:
    return _state(barrier)[0] != int(parity) & 1


# -- copies ------------------------------------------------------------------------------------------------------------


class TensorMap:
    """A tensor in global memory and the box that one copy moves; sizes innermost first."""

    def __init__(self, data: Array, dtype: str, rank: int, *numbers: int) -> None:
        values = [int(n) for n in numbers]
        rank = int(rank)
        start, self.memory = (data.offset, data.data) if isinstance(data, Pointer) else (0, data)
        self.size = np_dtype(dtype).itemsize
        self.start = start * self.memory.itemsize
        self.sizes = values[:rank]
        self.strides = [self.size, *values[rank : 2 * rank - 1]]
        self.box = values[2 * rank - 1 : 3 * rank - 1]
        self.swizzle = values[3 * rank - 1]
        self._check()

    def _check(self) -> None:
        inner = self.box[0] * self.size
        if inner % 16 or any(s % 16 for s in self.strides[1:]):
            raise ValueError(f"rows of a box and strides are multiples of 16 bytes, not {inner}, {self.strides[1:]}")
        if self.swizzle and inner > self.swizzle:
            raise ValueError(f"a box {inner} bytes wide does not fit a swizzle of {self.swizzle}")
        if any(not 1 <= b <= 256 for b in self.box):
            raise ValueError(f"a box has 1 to 256 elements along each dimension, not {self.box}")

    def places(self, shared: int, first: tuple[int, ...]) -> tuple[Any, Any, Any]:
        """Of each byte of the box at ``first``: where it is in shared and in global memory, and whether it exists."""
        grid = np.meshgrid(*[np.arange(b) for b in reversed(self.box)], indexing="ij")
        inside, outside = np.ones(grid[0].shape, bool), np.full(grid[0].shape, self.start)
        for at, size, stride, offset in zip(reversed(grid), self.sizes, self.strides, first, strict=True):
            index = at + int(offset)
            inside &= (index >= 0) & (index < size)
            outside = outside + index * stride
        byte = np.arange(self.size)
        count = inside.size * self.size
        target = swizzled(shared + np.arange(count), self.swizzle)
        source = (outside.reshape(-1, 1) + byte).reshape(-1)
        return target, source, np.repeat(inside.reshape(-1), self.size)


def _tma_load(target: Pointer, tensor: TensorMap, barrier: Pointer, mask: int, *first: int) -> int:
    if int(mask) not in (0, 1):
        raise NotImplementedError("the interpreter runs one block of a cluster at a time")
    memory, at = _bytes(target)
    places, source, inside = tensor.places(at, first)
    memory[places] = np.where(inside, tensor.memory.view(np.uint8)[np.where(inside, source, 0)], 0)
    _completed(barrier, len(places))
    return 0


def _tma_store(tensor: TensorMap, source: Pointer, *first: int) -> int:
    memory, at = _bytes(source)
    places, target, inside = tensor.places(at, first)
    tensor.memory.view(np.uint8)[target[inside]] = memory[places[inside]]
    return 0


# -- products ------------------------------------------------------------------------------------------------------------


def _operand(fields: tuple[Any, ...], rows: int, dtype: str) -> Array:
    """A (rows, 32 bytes of k) operand in shared memory: address, leading and stride offset, swizzle, rows contiguous."""
    address, leading, stride, swizzle, by_rows = fields
    memory, start = _bytes(address)
    leading, stride, swizzle = int(leading), int(stride), int(swizzle)
    kind = np_dtype(dtype)
    row = np.arange(rows).reshape(-1, 1, 1)
    column = np.arange(32 // kind.itemsize).reshape(1, -1, 1)
    byte = np.arange(kind.itemsize)
    width = swizzle or 16
    # The PTX manual calls the two directions leading and stride; which is which depends on the layout.
    if by_rows:
        along = row * kind.itemsize
        far, deep = (leading, stride) if swizzle else (stride, leading)
        where = along // width * far + along % width + column % 8 * width + column // 8 * deep
    else:
        along = column * kind.itemsize
        where = row % 8 * width + row // 8 * stride + along // width * leading + along % width
    places = swizzled(start + where + byte, swizzle)
    return np.ascontiguousarray(memory[places]).view(kind)[..., 0]


def _multiply(a: Array, b: Array, requests: dict[int, Any], tail: int, n: int) -> dict[int, Any]:
    if len(requests) != _WARPGROUP:
        raise RuntimeError("a warpgroup product needs all 128 threads of a warpgroup")
    kind = str(requests[0][3])
    wide: Any = np.int32 if kind == "int32" else np.float32
    product = a.astype(wide) @ b.astype(wide).T
    i: Any = np.arange(n // 2)
    for lane, request in requests.items():
        place, offset, add = request[4], int(request[5]), request[tail]
        memory = place
        if isinstance(place, Pointer):
            memory, offset = place.data, place.offset + offset
        held = memory[offset : offset + n // 2]
        old = held.astype(wide) if add else wide(0)
        held[...] = (old + product[warpgroup_result(lane, i)]).astype(held.dtype)
    return dict.fromkeys(requests, 0)


def _wgmma_ss(requests: dict[int, Any], group: int) -> dict[int, Any]:
    first = requests[min(requests)]
    n = int(first[0])
    a, b = _operand(first[6:11], 64, str(first[1])), _operand(first[11:16], n, str(first[2]))
    return _multiply(a, b, requests, 16, n)


def _wgmma_rs(requests: dict[int, Any], group: int) -> dict[int, Any]:
    first = requests[min(requests)]
    n, kind = int(first[0]), np_dtype(str(first[1]))
    pack = 4 // kind.itemsize
    i = np.arange(4 * pack)
    a = np.zeros((64, 8 * pack), kind)
    for lane, request in requests.items():
        row = lane // 32 * 16 + lane % 32 // 4 + i // pack % 2 * 8
        column = i // (2 * pack) * 4 * pack + lane % 4 * pack + i % pack
        a[row, column] = request[6][int(request[7]) :][: 4 * pack]
    return _multiply(a, _operand(first[8:13], n, str(first[2])), requests, 13, n)


def _elect(requests: dict[int, Any], group: int) -> dict[int, Any]:
    return {lane: lane == min(requests) for lane in requests}


def _warp_group(requests: dict[int, Any], group: int) -> dict[int, Any]:
    return dict.fromkeys(requests, group * 32 // _WARPGROUP)


# Instruction -> (threads that execute it together, whether all must be there, answer).
GROUPS: dict[str, tuple[int, bool, Callable[[dict[int, Any], int], dict[int, Any]]]] = {
    "ptx_wgmma_ss": (_WARPGROUP, True, _wgmma_ss), "ptx_wgmma_rs": (_WARPGROUP, True, _wgmma_rs),
    "warp_sync": (32, True, lambda requests, _: dict.fromkeys(requests, 0)),
    "ptx_elect_sync": (32, False, _elect), "ptx_warp_group_index": (32, False, _warp_group),
}  # fmt: skip
WAITS = frozenset(
    {"ptx_mbarrier_wait_parity", "ptx_mbarrier_try_wait", "ptx_named_barrier_sync", "ptx_named_barrier_arrive"}
)


class BlockWaits:
    """Barriers of a block: waits of threads at barriers in memory, and at named barriers."""

    def __init__(self) -> None:
        self.arrived: dict[int, int] = {}

    def answers(self, waiting: dict[int, Any]) -> dict[int, Any]:
        """The threads, by index, whose requests are fulfilled."""
        done: dict[int, Any] = {}
        named: dict[int, tuple[int, list[int]]] = {}
        for index, request in waiting.items():
            if request is None or request[0] not in WAITS:
                continue
            name, _, (place, value) = request
            if name == "ptx_mbarrier_wait_parity":
                if _passed(place, value):
                    done[index] = 0
            elif name == "ptx_mbarrier_try_wait":
                done[index] = _passed(place, value)
            elif name == "ptx_named_barrier_arrive":
                self.arrived[int(place)] = self.arrived.get(int(place), 0) + 1
                done[index] = 0
            else:
                named.setdefault(int(place), (int(value), []))[1].append(index)
        for number, (count, members) in named.items():
            if len(members) + self.arrived.get(number, 0) >= count:
                self.arrived[number] = self.arrived.get(number, 0) - (count - len(members))
                done.update(dict.fromkeys(members, 0))
        return done


def _nothing(*_: object) -> int:
    return 0


MEANINGS.update(
    {
        "ptx_mbarrier_init": _init, "ptx_mbarrier_arrive": _arrive, "ptx_mbarrier_arrive_expect_tx": _expect,
        "ptx_tma_load": _tma_load, "ptx_tma_store": _tma_store, "tensor_map_encode": TensorMap,
        "ptx_cluster_rank": lambda: 0,
    }
)  # fmt: skip
for _name in (
    "fence_mbarrier_init", "fence_proxy_async", "tma_store_commit", "tma_store_wait", "tma_prefetch", "wgmma_fence",
    "wgmma_commit", "wgmma_wait", "wgmma_fence_operand", "setmaxnreg", "cluster_arrive", "cluster_arrive_relaxed",
    "cluster_wait",
):  # fmt: skip
    MEANINGS[f"ptx_{_name}"] = _nothing
