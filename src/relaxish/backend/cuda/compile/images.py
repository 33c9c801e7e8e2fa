"""Compiled images and what their kernels need of a multiprocessor, as the assembler reports it."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

__all__ = ["Image", "KernelResources"]

_KERNEL = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")


@dataclass(frozen=True)
class KernelResources:
    """Resources of a kernel: of one thread registers, stack and spills, of one block static shared memory and barriers."""

    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0

    @property
    def spills(self) -> bool:
        """Whether registers are kept in local memory at times."""
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0


@dataclass(frozen=True)
class Image:
    """Machine code or PTX, and what the compiler said."""

    data: bytes
    log: str = ""

    def resources(self) -> dict[str, KernelResources]:
        """By kernel; empty for PTX, which has no registers yet.

        >>> log = "Compiling entry function 'k' for 'sm_80'\\n0 bytes stack frame, 0 bytes spill stores, " \\
        ...       "0 bytes spill loads\\nUsed 24 registers, used 1 barriers, 512 bytes smem, 372 bytes cmem[0]"
        >>> Image(b"", log).resources()["k"].registers
        24
        """
        found: dict[str, KernelResources] = {}
        parts = _KERNEL.split(self.log)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            used = _USED.search(text)
            if used is None:
                continue
            stack = _STACK.search(text)
            frame, stored, loaded = (int(n) for n in stack.groups()) if stack is not None else (0, 0, 0)
            shared, barriers = _number(r"(\d+) bytes smem", used[2]), _number(r"used (\d+) barriers", used[2])
            found[name] = KernelResources(int(used[1]), shared, frame, stored, loaded, barriers)
        return found

    def packed(self) -> bytes:
        """As one piece for the cache."""
        log = self.log.encode()
        return struct.pack("<I", len(log)) + log + self.data

    @staticmethod
    def unpacked(packed: bytes) -> Image:
        """The inverse of :meth:`packed`."""
        (size,) = struct.unpack_from("<I", packed)
        return Image(packed[4 + size :], packed[4 : 4 + size].decode())


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match is not None else 0
