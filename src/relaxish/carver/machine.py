"""Model of a CPU core: vectors, registers, operations and loads in a cycle, caches and pages."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

from ..target.target import Target

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
    def of_target(target: Target) -> CpuModel:
        """The model of a CPU target: its vector width, core count and caches; of this machine where no CPU is named."""
        bits = int(target.vector_bits)
        wide = bits >= 512 or bool(target.features.has_asimd)
        return replace(
            CpuModel(),
            vector_bytes=bits // 8,
            registers=32 if wide else 16,
            cores=int(target.num_cores),
            caches=_caches_of(str(target.attrs.get("mcpu", "")).partition(",")[0]),
        )


def _caches_of(name: str) -> tuple[int, ...]:
    """Caches of a CPU by its name: code for another machine must not depend on the one that compiles."""
    if not name or name == "native":
        return host_caches()
    sizes = next((sizes for prefix, sizes in _CACHES.items() if name.startswith(prefix)), None)
    return CpuModel().caches if sizes is None else tuple(int(k * 1024) for k in sizes)


# Kilobytes of a core's first and second level, and of the third level that cores share.
_CACHES = {
    "haswell": (32, 256, 16 << 10), "broadwell": (32, 256, 16 << 10), "skylake-avx512": (32, 1024, 16 << 10),
    "skylake": (32, 256, 8 << 10), "cascadelake": (32, 1024, 24 << 10), "icelake": (48, 1280, 32 << 10),
    "sapphirerapids": (48, 2048, 48 << 10), "emeraldrapids": (48, 2048, 48 << 10), "graniterapids": (48, 2048, 48 << 10),
    "znver1": (32, 512, 8 << 10), "znver2": (32, 512, 16 << 10), "znver3": (32, 512, 32 << 10),
    "znver4": (32, 1024, 32 << 10), "znver5": (48, 1024, 32 << 10), "apple": (128, 4096, 8 << 10),
    "neoverse": (64, 1024, 32 << 10), "cortex-a72": (32, 512, 1024), "cortex-a57": (32, 1024, 2048),
    "cortex-a53": (32, 256, 512), "cortex-a76": (64, 256, 2048), "cortex-a78": (64, 256, 4096), "carmel": (64, 1024, 4096),
}  # fmt: skip


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
