"""Shared memory of NVIDIA GPUs: what every launch gets, and what a launch may ask for."""

from __future__ import annotations

from typing import Any

from .limits import attrs_with_limits

__all__ = ["STATIC_SHARED_MEMORY", "opt_in_shared_memory"]

# Compilers refuse kernels whose arrays of fixed size take more, whatever the device has.
STATIC_SHARED_MEMORY = 48 * 1024
_OPT_IN = {
    70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227,
    100: 227, 101: 227, 103: 227, 120: 99, 121: 99,
}  # fmt: skip


def opt_in_shared_memory(arch: str) -> int:
    """Bytes of dynamic shared memory (``shared.dyn``) that a block may have on an architecture.

    Targets count 48 KiB unless they say otherwise, so a search leaves larger tiles out. To have them considered:

    >>> from relaxish.target import Target
    >>> target = Target({"tag": "nvidia/nvidia-a100", "max_shared_memory_per_block": opt_in_shared_memory("sm_80")})
    >>> target.attrs["max_shared_memory_per_block"]
    166912
    """
    digits = "".join(c for c in arch.removeprefix("sm_") if c.isdigit())
    return 1024 * _OPT_IN.get(int(digits or 0), STATIC_SHARED_MEMORY // 1024)


def static_limit(target: Any) -> int:
    """Bytes of shared memory of fixed size that a block may have on a target; all of it where the two are one."""
    most = int(attrs_with_limits(target)["max_shared_memory_per_block"])
    return min(most, STATIC_SHARED_MEMORY) if target.kind.name == "cuda" else most
