"""CUDA C++ compiled, and what an architecture can do.

>>> parse_compute_version("8.6")
(8, 6)
>>> have_tensorcore("7.0"), have_bf16("7.5")
(True, False)
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..target import Target

__all__ = [
    "compile_cuda", "find_cuda_path", "get_cuda_version", "get_target_compute_version", "have_bf16", "have_cudagraph",
    "have_fp16", "have_fp4", "have_fp8", "have_int8", "have_tensorcore", "parse_compute_version",
]  # fmt: skip


def compile_cuda(
    code: str, target_format: str = "ptx", arch: str | None = None, options: Sequence[str] | None = None,
    path_target: str | None = None,
) -> bytearray:  # fmt: skip
    """The ``ptx`` or ``cubin`` of a source, for ``arch`` (``"sm_80"``; the current target's unless given).

    Raises ValueError for other formats and RelaxishError with the log where the source does not compile.
    """
    from ..backend.cuda.compile.nvrtc import compile_image

    if target_format not in ("ptx", "cubin"):
        raise ValueError("target_format must be in cubin, ptx")
    if options:
        raise ValueError("options of the compiler are not supported")
    wanted = arch or f"sm_{get_target_compute_version().replace('.', '')}"
    data = bytearray(compile_image(code, wanted, target_format).data)
    if path_target is not None:
        Path(path_target).write_bytes(data)
    return data


def find_cuda_path() -> str:
    """The folder of the CUDA toolkit whose ``nvcc`` is on the path. Raises RuntimeError without one."""
    found = shutil.which("nvcc")
    if found is None:
        raise RuntimeError("Cannot find cuda path")
    return os.path.dirname(os.path.dirname(os.path.realpath(found)))


def get_cuda_version(cuda_path: str | None = None) -> tuple[int, ...]:
    """The version of the toolkit. Raises RuntimeError without one."""
    from ..backend.cuda.compile.nvcc import NVCC

    if not NVCC.present():
        raise RuntimeError("Cannot read cuda version file")
    return tuple(int(part) for part in re.findall(r"\d+", NVCC().version()))


def get_target_compute_version(target: Target | None = None) -> str:
    """The version of a CUDA target's architecture, such as ``"8.6"``; of the current target, or of the device.

    Raises ValueError if none of them says.
    """
    from ..runtime import cuda

    target = target or Target.current(allow_none=True)
    arch = None if target is None else target.attrs.get("arch")
    if arch:
        number = re.sub(r"\D", "", str(arch))
        return f"{number[:-1]}.{number[-1]}"
    if cuda(0).exist:
        return str(cuda(0).compute_version)
    raise ValueError("No CUDA architecture was specified or GPU detected.")


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """Major and minor version."""
    major, _, minor = str(compute_version).partition(".")
    try:
        return int(major), int(minor)
    except ValueError:
        raise RuntimeError(f"Compute version parsing error of {compute_version!r}") from None


def _version(given: str) -> tuple[int, int]:
    return parse_compute_version(given or get_target_compute_version())


def have_fp16(compute_version: str) -> bool:
    """Whether there is half precision arithmetic."""
    version = _version(compute_version)
    return version == (5, 3) or version >= (6, 0)


def have_int8(compute_version: str) -> bool:
    """Whether there are dot products of bytes."""
    return _version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: str | None = None, target: Target | None = None) -> bool:
    """Whether there are tensor cores."""
    return _version(compute_version or get_target_compute_version(target)) >= (7, 0)


def have_cudagraph() -> bool:
    """Whether the toolkit records graphs of kernels."""
    try:
        return get_cuda_version() >= (10, 0)
    except RuntimeError:
        return False


def have_bf16(compute_version: str) -> bool:
    """Whether there is bfloat16 arithmetic."""
    return _version(compute_version) >= (8, 0)


def have_fp8(compute_version: str) -> bool:
    """Whether there are numbers of 8 bits with a fraction."""
    return _version(compute_version) >= (8, 9)


def have_fp4(compute_version: str) -> bool:
    """Whether there are numbers of 4 bits with a fraction."""
    return _version(compute_version) >= (10, 0)
