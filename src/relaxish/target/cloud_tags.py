"""Machines that one rents, by the names of their sizes: ``aws/c4.4xlarge``, ``aws/g4dn.xlarge``, ``aws/p4d.24xlarge``.

Cores are counted as parallel loops should use them: a core with two hardware threads is one.
"""

from __future__ import annotations

from typing import Any

__all__ = ["cloud_tags"]

_X86, _ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"
_SIZES = {
    "medium": 1, "large": 2, "xlarge": 4, "2xlarge": 8, "3xlarge": 12, "4xlarge": 16, "6xlarge": 24, "8xlarge": 32,
    "9xlarge": 36, "10xlarge": 40, "12xlarge": 48, "16xlarge": 64, "18xlarge": 72, "24xlarge": 96, "32xlarge": 128,
    "48xlarge": 192,
}  # fmt: skip
_USUAL = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"
_GRAVITON = "medium large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge"
# Family: CPU, hardware threads of a core, sizes.
_CPU_FAMILIES: dict[str, tuple[str, int, str]] = {
    "c4": ("haswell", 2, "large xlarge 2xlarge 4xlarge 8xlarge"),
    "m4": ("broadwell", 2, "large xlarge 2xlarge 4xlarge 10xlarge 16xlarge"),
    "c5": ("skylake-avx512", 2, "large xlarge 2xlarge 4xlarge 9xlarge 12xlarge 18xlarge 24xlarge"),
    "m5": ("skylake-avx512", 2, _USUAL),
    "c5n": ("skylake-avx512", 2, "large xlarge 2xlarge 4xlarge 9xlarge 18xlarge"),
    "c5a": ("znver2", 2, _USUAL),
    "c6i": ("icelake-server", 2, _USUAL + " 32xlarge"),
    "m6i": ("icelake-server", 2, _USUAL + " 32xlarge"),
    "c6a": ("znver3", 2, _USUAL + " 32xlarge 48xlarge"),
    "c7i": ("sapphirerapids", 2, _USUAL + " 48xlarge"),
    "m7i": ("sapphirerapids", 2, _USUAL + " 48xlarge"),
    "c7a": ("znver4", 1, "medium " + _USUAL + " 32xlarge 48xlarge"),
    "c6g": ("neoverse-n1", 1, _GRAVITON),
    "c7g": ("neoverse-v1", 1, _GRAVITON),
    "c8g": ("neoverse-v2", 1, _GRAVITON + " 24xlarge 48xlarge"),
}
# Sizes of which the family's CPU or count does not hold.
_OTHER_CPU = {"c5.12xlarge": "cascadelake", "c5.24xlarge": "cascadelake"}
_OTHER_THREADS = {"c4.8xlarge": 36}
# Family: CPU, tag of its GPUs, how many of them each size has.
_GPU_FAMILIES: dict[str, tuple[str, str, dict[str, int]]] = {
    "g4dn": ("cascadelake", "nvidia/nvidia-t4", {
        "xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1}),
    "g5": ("znver2", "nvidia/nvidia-a10g", {
        "xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1, "24xlarge": 4,
        "48xlarge": 8}),
    "g6": ("znver3", "nvidia/nvidia-l4", {
        "xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1, "24xlarge": 4,
        "48xlarge": 8}),
    "p3": ("broadwell", "nvidia/nvidia-v100", {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p4d": ("cascadelake", "nvidia/nvidia-a100", {"24xlarge": 8}),
    "p5": ("znver3", "nvidia/nvidia-h100", {"48xlarge": 8}),
}  # fmt: skip


def _cpu(mcpu: str, cores: int) -> dict[str, Any]:
    arm = mcpu.startswith("neoverse")
    return {
        "kind": "llvm",
        "keys": ["arm_cpu" if arm else "x86", "cpu"],
        "mtriple": _ARM if arm else _X86,
        "mcpu": mcpu,
        "num-cores": cores,
    }


def cloud_tags() -> dict[str, dict[str, Any]]:
    """The configuration behind each tag ``aws/...``."""
    tags: dict[str, dict[str, Any]] = {}
    for family, (mcpu, per_core, sizes) in _CPU_FAMILIES.items():
        for size in sizes.split():
            name = f"{family}.{size}"
            threads = _OTHER_THREADS.get(name, _SIZES[size])
            tags["aws/" + name] = _cpu(_OTHER_CPU.get(name, mcpu), max(1, threads // per_core))
    for family, (mcpu, gpu, counts) in _GPU_FAMILIES.items():
        for size, count in counts.items():
            tags[f"aws/{family}.{size}"] = {
                "kind": "composite",
                "host": _cpu(mcpu, _SIZES[size] // 2),
                "devices": [gpu] * count,
            }
    # The field's own names of one family, which say nothing of the triple.
    for size in "large xlarge 2xlarge 4xlarge 9xlarge 12xlarge 18xlarge 24xlarge".split():
        config = tags[f"aws/c5.{size}"]
        tags[f"aws/cpu/c5.{size}"] = {name: value for name, value in config.items() if name != "mtriple"}
    return tags
