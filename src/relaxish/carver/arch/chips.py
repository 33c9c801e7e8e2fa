"""GPU data by product name and by architecture: the facts behind estimates and tile hints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...target.target import Target

__all__ = ["Chip", "chip_of", "compute_capability"]


@dataclass(frozen=True)
class Chip:
    """A GPU: processors, clock (GHz), multiply-adds of a processor in a cycle (float32, matrix units with 16-bit
    operands), memory bandwidth (GB/s), bytes of shared memory and threads of a processor, and bytes of second-level
    cache.
    """

    cores: int
    clock: float
    multiply_adds: int
    matrix_multiply_adds: int
    bandwidth: float
    shared_memory: int
    threads: int
    l2_cache: int


def _chip(
    cores: int, clock: float, fma: int, matrix: int, bandwidth: float, shared: float, threads: int, l2: float
) -> Chip:
    return Chip(cores, clock, fma, matrix, bandwidth, int(shared * 1024), threads, int(l2 * (1 << 20)))


# Compute capability -> the largest common part of the generation.
_NVIDIA = {
    50: _chip(5, 1.1, 128, 128, 86, 64, 2048, 2), 60: _chip(56, 1.3, 64, 64, 732, 64, 2048, 4),
    61: _chip(20, 1.6, 128, 128, 320, 96, 2048, 2), 70: _chip(80, 1.5, 64, 512, 900, 96, 2048, 6),
    75: _chip(40, 1.6, 64, 512, 320, 64, 1024, 4), 80: _chip(108, 1.41, 64, 1024, 1555, 164, 2048, 40),
    86: _chip(82, 1.7, 128, 512, 936, 100, 1536, 6), 87: _chip(16, 1.3, 128, 512, 204, 164, 1536, 4),
    89: _chip(128, 2.5, 128, 512, 1008, 100, 1536, 72), 90: _chip(132, 1.75, 128, 2048, 3350, 228, 2048, 50),
    100: _chip(148, 1.8, 128, 4096, 8000, 228, 2048, 126), 120: _chip(170, 2.4, 128, 512, 1792, 100, 1536, 96),
}  # fmt: skip
# Product -> processors, clock, bandwidth, second-level cache (MiB); the rest is its generation's.
_PRODUCTS = {
    "geforce-rtx-5090": (170, 2.4, 1792, 96), "geforce-rtx-5080": (84, 2.6, 960, 64),
    "geforce-rtx-5070-ti": (70, 2.45, 896, 48), "geforce-rtx-5070": (48, 2.5, 672, 48),
    "geforce-rtx-4090": (128, 2.5, 1008, 72), "geforce-rtx-4080": (76, 2.5, 717, 64),
    "geforce-rtx-4070-ti": (60, 2.6, 504, 48), "geforce-rtx-4070": (46, 2.5, 504, 36),
    "geforce-rtx-4060-ti": (34, 2.5, 288, 32), "geforce-rtx-4060": (24, 2.5, 272, 24),
    "nvidia-l4": (58, 2.0, 300, 48), "nvidia-l40": (142, 2.5, 864, 96), "nvidia-l40s": (142, 2.5, 864, 96),
    "rtx-6000-ada": (142, 2.5, 960, 96),
    "geforce-rtx-3090-ti": (84, 1.86, 1008, 6), "geforce-rtx-3090": (82, 1.7, 936, 6),
    "geforce-rtx-3080-ti": (80, 1.67, 912, 6), "geforce-rtx-3080": (68, 1.7, 760, 5),
    "geforce-rtx-3070-ti": (48, 1.77, 608, 4), "geforce-rtx-3070": (46, 1.73, 448, 4),
    "geforce-rtx-3060-ti": (38, 1.67, 448, 4), "geforce-rtx-3060": (28, 1.78, 360, 3),
    "geforce-rtx-3050": (20, 1.78, 224, 2),
    "nvidia-a40": (84, 1.74, 696, 6), "nvidia-a10": (72, 1.7, 600, 6), "nvidia-a10g": (80, 1.7, 600, 6),
    "nvidia-a16": (10, 1.7, 200, 2), "nvidia-a2": (10, 1.77, 200, 2), "rtx-a6000": (84, 1.8, 768, 6),
    "rtx-a5000": (64, 1.7, 768, 6), "rtx-a4000": (48, 1.56, 448, 4), "rtx-a2000": (26, 1.2, 288, 3),
    "nvidia-a100": (108, 1.41, 1555, 40), "nvidia-a30": (56, 1.44, 933, 24),
    "nvidia-h100": (132, 1.75, 3350, 50), "nvidia-h200": (132, 1.75, 4800, 50), "nvidia-b200": (148, 1.8, 8000, 126),
    "nvidia-v100": (80, 1.5, 900, 6), "tesla-v100": (80, 1.5, 900, 6), "nvidia-titan-v": (80, 1.46, 653, 4.5),
    "nvidia-t4": (40, 1.6, 320, 4), "nvidia-titan-rtx": (72, 1.77, 672, 6), "geforce-rtx-2080-ti": (68, 1.55, 616, 5.5),
    "geforce-rtx-2080": (46, 1.7, 448, 4), "geforce-rtx-2070": (36, 1.6, 448, 4), "geforce-rtx-2060": (30, 1.7, 336, 3),
    "tesla-p100": (56, 1.3, 732, 4), "nvidia-p100": (56, 1.3, 732, 4), "tesla-p40": (30, 1.5, 346, 3),
    "geforce-gtx-1080-ti": (28, 1.6, 484, 2.75), "geforce-gtx-1080": (20, 1.7, 320, 2),
    "geforce-gtx-1070": (15, 1.7, 256, 2), "geforce-gtx-1060": (10, 1.7, 192, 1.5),
    "jetson-agx-xavier": (8, 1.38, 137, 0.5), "jetson-xavier-nx": (6, 1.1, 60, 0.5),
    "jetson-agx-orin-64gb": (16, 1.3, 204, 4), "jetson-agx-orin-32gb": (14, 0.93, 204, 4),
    "jetson-orin-nx": (8, 0.92, 102, 2), "jetson-orin-nano": (8, 0.63, 68, 2),
    "jetson-tx2": (2, 1.3, 58, 0.5), "jetson-tx1": (2, 1.0, 25, 0.25), "jetson-nano": (1, 0.92, 25, 0.25),
}  # fmt: skip
_AMD = {
    "gfx900": _chip(64, 1.5, 64, 128, 484, 64, 2560, 4), "gfx906": _chip(60, 1.8, 64, 128, 1024, 64, 2560, 4),
    "gfx908": _chip(120, 1.5, 64, 512, 1228, 64, 2560, 8), "gfx90a": _chip(110, 1.7, 64, 512, 1638, 64, 2048, 8),
    "gfx940": _chip(304, 2.1, 128, 1024, 5300, 64, 2048, 4), "gfx941": _chip(304, 2.1, 128, 1024, 5300, 64, 2048, 4),
    "gfx942": _chip(304, 2.1, 128, 1024, 5300, 64, 2048, 4), "gfx950": _chip(256, 2.4, 128, 2048, 8000, 160, 2048, 4),
    "gfx1030": _chip(80, 2.2, 64, 128, 512, 64, 2048, 4), "gfx1100": _chip(96, 2.5, 128, 256, 960, 64, 2048, 6),
    "gfx1101": _chip(60, 2.5, 128, 256, 624, 64, 2048, 4), "gfx1102": _chip(32, 2.5, 128, 256, 288, 64, 2048, 2),
    "gfx1151": _chip(40, 2.9, 128, 256, 256, 64, 2048, 2), "gfx1200": _chip(32, 2.9, 128, 512, 320, 64, 2048, 4),
    "gfx1201": _chip(64, 2.9, 128, 512, 640, 64, 2048, 8),
}  # fmt: skip
_APPLE = _chip(8, 1.28, 128, 128, 68, 32, 1024, 8)
# A mid-range part, for kinds of which any could be meant.
_UNKNOWN = _NVIDIA[75]


def compute_capability(arch: str) -> int:
    """The number in an architecture such as ``sm_89`` or ``sm_90a``; 0 where there is none.

    >>> compute_capability("sm_90a")
    90
    """
    digits = "".join(c for c in str(arch).partition("sm_")[2] if c.isdigit())
    return int(digits) if digits else 0


def chip_of(target: Target) -> Chip:
    """Chip of a target's device: by its tag, else by its architecture.

    >>> from relaxish import Target
    >>> chip_of(Target("nvidia/geforce-rtx-4060")).cores, chip_of(Target("cuda -arch=sm_80")).cores
    (24, 108)
    """
    kind = target.kind.name
    if kind == "rocm":
        return _AMD.get(str(target.attrs.get("mcpu", "")).partition(":")[0], _AMD["gfx90a"])
    if kind == "metal":
        return _APPLE
    capability = compute_capability(target.attrs.get("arch", ""))
    chip = _UNKNOWN
    if capability:
        chip = _NVIDIA[max([c for c in _NVIDIA if c <= capability], default=min(_NVIDIA))]
    product = _PRODUCTS.get(str(target.tag).partition("/")[2].partition(":")[0].removeprefix("nvidia-jetson-"))
    if product is not None:
        cores, clock, bandwidth, cache = product
        chip = replace(chip, cores=cores, clock=clock, bandwidth=bandwidth, l2_cache=int(cache * (1 << 20)))
    return replace(chip, l2_cache=int(target.attrs.get("l2_cache_size_bytes") or chip.l2_cache))
