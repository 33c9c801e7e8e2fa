"""Numbers for memory whose real handles cannot be counted with.

Everything above works with integer addresses: a tensor may begin anywhere inside a block. OpenCL has opaque buffers, so
each gets a range of numbers of its own.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from ...support.errors import RelaxishError

__all__ = ["AddressBook", "Block"]

_PAGE = 4096


@dataclass
class Block:
    """One buffer of a device, known under ``address`` as long as this object lives."""

    address: int
    nbytes: int
    handle: Any
    device: int
    book: AddressBook

    def __del__(self) -> None:
        self.book.forget(self)


class AddressBook:
    """Gives blocks addresses, and finds the block of an address.

    >>> book = AddressBook()
    >>> block = book.add("a buffer", 100, device=0)
    >>> book.find(block.address + 8)
    ('a buffer', 8, 100)
    """

    def __init__(self) -> None:
        # Blocks may be collected, and forgotten, while one of the methods below runs in the same thread.
        self._lock = threading.RLock()
        self._next = 1 << 32
        self._starts: list[int] = []
        self._entries: list[tuple[Any, int]] = []

    def add(self, handle: object, nbytes: int, device: int) -> Block:
        """A new block; blocks never touch, so that an address past an end is never another's."""
        with self._lock:
            address = self._next
            self._next += (nbytes + 2 * _PAGE - 1) // _PAGE * _PAGE
            self._starts.append(address)
            self._entries.append((handle, nbytes))
        return Block(address, nbytes, handle, device, self)

    def find(self, address: int) -> tuple[Any, int, int]:
        """(buffer, offset in it, bytes of it). Raises RelaxishError for an address that was never given."""
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            if at >= 0:
                handle, nbytes = self._entries[at]
                offset = address - self._starts[at]
                if offset <= nbytes:
                    return handle, offset, nbytes
        raise RelaxishError(f"no memory of the device is at address {address:#x}")

    def forget(self, block: Block) -> None:
        """The block is gone."""
        with self._lock:
            at = bisect_right(self._starts, block.address) - 1
            if at >= 0 and self._starts[at] == block.address:
                del self._starts[at], self._entries[at]
