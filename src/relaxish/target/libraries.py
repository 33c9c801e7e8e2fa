"""Target kinds that each library of ``-libs`` supports."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LIBRARY_KINDS", "fitting"]

LIBRARY_KINDS: dict[str, tuple[str, ...]] = {
    "cublas": ("cuda",),
    "cudnn": ("cuda",),
    "cutlass": ("cuda",),
    "thrust": ("cuda", "rocm", "vulkan"),
    "mkl": ("llvm", "c"),
    "hipblas": ("rocm",),
    "clml": ("opencl",),
}


def fitting(libraries: Iterable[str], kind: str) -> list[str]:
    """The libraries that a device of a kind can use; of those that nobody here knows, any device might.

    >>> fitting(["cublas", "mkl", "mine"], "llvm")
    ['mkl', 'mine']
    """
    return [name for name in libraries if kind in LIBRARY_KINDS.get(name, (kind,))]
