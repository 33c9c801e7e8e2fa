"""What a CPU core can do in a cycle and what fits where."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["CpuModel"]


@dataclass(frozen=True)
class CpuModel:
    """A core: vector unit, caches (bytes) and the bytes a cycle each next level delivers.

    >>> CpuModel().lanes(4)
    16
    """

    vector_bytes: int = 64
    registers: int = 32
    fma_per_cycle: float = 1.0
    loads_per_cycle: float = 0.7
    fma_latency: int = 4
    caches: tuple[int, ...] = (32 << 10, 1 << 20, 16 << 20)
    bytes_per_cycle: tuple[float, ...] = (32.0, 12.0, 5.0)
    cores: int = 1
    #: Pages whose addresses a core finds at once, and cycles to look up another one.
    pages: int = 64
    page_cycles: float = 7.0

    def lanes(self, element_bytes: int) -> int:
        """Elements in one vector register."""
        return max(1, self.vector_bytes // element_bytes)

    @staticmethod
    def of_target(target: Any) -> CpuModel:
        """The model of a CPU target: its vector width and core count, and this machine's caches."""
        bits = int(target.vector_bits)
        wide = bits >= 512 or bool(target.features.has_asimd)
        return replace(
            CpuModel(),
            vector_bytes=bits // 8,
            registers=32 if wide else 16,
            cores=int(target.num_cores),
            caches=host_caches(),
        )


@functools.lru_cache(maxsize=1)
def host_caches() -> tuple[int, ...]:
    """Sizes of the data caches of this machine, small to large; usual ones where the system does not tell."""
    sizes: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            sizes[int((index / "level").read_text())] = int(text.rstrip("KMG")) * _UNIT.get(text[-1], 1)
        except (OSError, ValueError):
            continue
    usual = dict(enumerate(CpuModel().caches, 1))
    return tuple(sizes.get(level, usual[level]) for level in (1, 2, 3))


_UNIT = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
