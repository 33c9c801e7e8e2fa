"""Locations of CUDA's headers and compiler library: NVIDIA's wheels, and toolkits.

The wheels of CUDA 13 share one folder (``nvidia/cu13/include``), those of CUDA 12 have one each. ``cuda_fp16.h`` and its
like come with nvidia-cuda-runtime, ``crt/mma.h`` with nvidia-cuda-crt, which torch does not bring along: what the wheels
lack is taken from the toolkit of the ``nvcc`` on the path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ....runtime.nvidia.libs.loading import wheel_folders

__all__ = ["NEEDED", "candidates", "include_folders", "nvrtc_folder"]

# What generated files include, each through at least one header of its own package.
NEEDED = ("cuda_fp16.h", "cuda_fp8.h", "crt/mma.h")
_USUAL_TOOLKIT = Path("/usr/local/cuda")
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.M)


@lru_cache(maxsize=1)
def nvrtc_folder() -> Path | None:
    """The wheel's folder whose ``lib`` has NVRTC; None where it is not installed."""
    return next((p for p in wheel_folders() if any(p.glob("lib/libnvrtc.so.*"))), None)


@lru_cache(maxsize=1)
def include_folders() -> tuple[Path, ...]:
    """Folders that together hold the headers of :data:`NEEDED`, as far as they are on this machine."""
    found: list[Path] = []
    missing = list(NEEDED)
    for place in candidates():
        if any((place / name).exists() for name in missing):
            found.append(place)
            missing = [name for name in missing if not (place / name).exists()]
        if not missing:
            break
    return tuple(found)


def candidates() -> Iterator[Path]:
    """Folders that may hold the headers, the best one first."""
    nvrtc = nvrtc_folder()
    if nvrtc is not None:
        yield nvrtc / "include"  # of the compiler's own version
    for folder in wheel_folders():
        yield folder / "include"
    for folder in _toolkits():
        yield folder / "include"


def _toolkits() -> list[Path]:
    folders = [_USUAL_TOOLKIT]
    if shutil.which("nvcc") is not None:
        # The nvcc on the path may be a script; what it would run says where the toolkit is.
        plan = subprocess.run(
            ["nvcc", "--dryrun", "-x", "cu", "-E", "/dev/null"], capture_output=True, text=True, check=False
        )
        folders = [Path(top.strip()).resolve() for top in _TOP.findall(plan.stderr + plan.stdout)] + folders
    return folders
