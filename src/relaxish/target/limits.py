"""Limits of devices for those who must have a number: what the target says, else what every device of its kind can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .target import Target

__all__ = ["attrs_with_limits"]

# What the standards of these kinds promise of any device, where targets carry no default of their own.
_PROMISED: dict[str, dict[str, int]] = {
    "cuda": {"max_shared_memory_per_block": 48 * 1024},
    "nvptx": {"max_shared_memory_per_block": 48 * 1024},
    "rocm": {"max_shared_memory_per_block": 64 * 1024},
    "opencl": {"max_shared_memory_per_block": 16 * 1024},
    "metal": {"max_shared_memory_per_block": 32 * 1024},
    "vulkan": {"max_shared_memory_per_block": 16 * 1024},
    "webgpu": {"max_shared_memory_per_block": 16 * 1024, "thread_warp_size": 1},
}


def attrs_with_limits(target: Target | None) -> Mapping[str, Any]:
    """The attributes of a target, with the limits of blocks of threads that a GPU's leaves out.

    >>> from relaxish.target import Target
    >>> limits = attrs_with_limits(Target("vulkan"))
    >>> limits["max_shared_memory_per_block"], limits["max_threads_per_block"]
    (16384, 256)
    """
    if target is None:
        return {}
    promised = _PROMISED.get(target.kind.name)
    if promised is None:
        return target.attrs
    threads = {"max_threads_per_block": target.attrs["max_num_threads"]} if "max_num_threads" in target.attrs else {}
    return {**promised, **threads, **target.attrs}
