"""Host memory standing for device memory, with the device's limit and its checks."""

from __future__ import annotations

import bisect
import threading
from typing import Any

import numpy as np

from .errors import CODES, failure

__all__ = ["Allocations"]

_ALIGNMENT = 512


class Allocations:
    """Blocks of one device by address."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._blocks: dict[int, tuple[int, Any]] = {}
        self._sorted: list[int] = []
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> int:
        """The address of a new block. Raises the driver's error when the device would be full."""
        what = f"allocating {nbytes} bytes"
        if nbytes <= 0:
            raise failure(CODES["INVALID_VALUE"], what)
        with self._lock:
            if self.used + nbytes > self.total:
                raise failure(CODES["OUT_OF_MEMORY"], what, f"{self.total - self.used} of {self.total} bytes are free")
            # The pages of a large untouched block cost nothing.
            memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
            raw = memory.__array_interface__["data"][0]
            address: int = raw + -raw % _ALIGNMENT
            self._blocks[address] = (nbytes, memory)
            bisect.insort(self._sorted, address)
            self.used += nbytes
        return address

    def free(self, address: int) -> None:
        """Drop a block."""
        with self._lock:
            if address not in self._blocks:
                raise failure(CODES["INVALID_VALUE"], "freeing memory", f"no block begins at {address:#x}")
            nbytes, _ = self._blocks.pop(address)
            self._sorted.remove(address)
            self.used -= nbytes

    def find(self, address: int) -> tuple[int, int] | None:
        """(begin, size) of the block that holds an address."""
        with self._lock:
            place = bisect.bisect_right(self._sorted, address) - 1
            if place < 0:
                return None
            begin = self._sorted[place]
            size = self._blocks[begin][0]
        return (begin, size) if address < begin + size else None

    def check(self, address: int, nbytes: int, what: str) -> None:
        """Raise the driver's error unless the bytes are within one block."""
        if nbytes == 0:
            return
        found = self.find(address)
        if found is None:
            raise failure(CODES["INVALID_VALUE"], what, f"{address:#x} is no address of this device")
        begin, size = found
        if address + nbytes > begin + size:
            raise failure(
                CODES["INVALID_VALUE"], what, f"{nbytes} bytes at {address - begin} of a block of {size} bytes"
            )
