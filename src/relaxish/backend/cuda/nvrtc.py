"""Compiling CUDA C++ in this process: NVRTC from its wheel, else the ``nvcc`` on the path.

Needs no GPU. Compiled images go to the object cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...support.errors import MissingExtraError, RelaxishError

__all__ = ["available", "compile_cubin", "compile_ptx"]


def available() -> bool:
    """Whether there is a compiler: NVRTC or nvcc."""
    return _nvrtc_folder() is not None or shutil.which("nvcc") is not None


def compile_cubin(source: str, arch: str) -> bytes:
    """Machine code for ``arch`` (``"sm_80"``, ``"sm_90a"``).

    Raises RelaxishError with the compiler's log when the source does not compile, MissingExtraError without a compiler.
    """
    return _compile(source, arch, "cubin")


def compile_ptx(source: str, arch: str) -> str:
    """PTX for ``arch``; errors as :func:`compile_cubin`."""
    return _compile(source, arch.replace("sm_", "compute_"), "ptx").rstrip(b"\0").decode()


def _compile(source: str, arch: str, kind: str) -> bytes:
    folder = _nvrtc_folder()
    if folder is not None:
        return _with_nvrtc(source, arch, kind, folder)
    if shutil.which("nvcc") is not None:
        return _with_nvcc(source, arch, kind)
    raise MissingExtraError("cuda", "nvidia-cuda-nvrtc", "compiling CUDA source")


@lru_cache(maxsize=1)
def _nvrtc_folder() -> Path | None:
    """The folder of the newest CUDA wheels: ``lib`` and ``include`` are in it."""
    spec = find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    for root in roots:
        for folder in sorted(root.glob("cu*"), reverse=True):
            if any(folder.glob("lib/libnvrtc.so.*")):
                return folder
        if any(root.glob("cuda_nvrtc/lib/libnvrtc.so.*")):
            return root / "cuda_nvrtc"
    return None


@lru_cache(maxsize=1)
def _library(folder: Path) -> Any:
    found = [p for p in sorted(folder.glob("lib/libnvrtc.so.*")) if "builtins" not in p.name and "alt" not in p.name]
    library = ctypes.CDLL(str(found[-1]))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _include_folders(folder: Path) -> list[Path]:
    candidates = [folder / "include", folder.parent / "cuda_runtime" / "include"]
    return [p for p in candidates if (p / "cuda_fp16.h").exists()]


def _with_nvrtc(source: str, arch: str, kind: str, folder: Path) -> bytes:
    library = _library(folder)
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
    ))  # fmt: skip
    try:
        options = ["--std=c++17", f"--gpu-architecture={arch}", "-default-device"]
        options += [f"--include-path={p}" for p in _include_folders(folder)]
        array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        if library.nvrtcCompileProgram(program, len(options), array) != 0:
            raise RelaxishError(f"the CUDA source does not compile for {arch}:\n{_log(library, program)}")
        size = ctypes.c_size_t()
        name = "CUBIN" if kind == "cubin" else "PTX"
        _check(library, getattr(library, f"nvrtcGet{name}Size")(program, ctypes.byref(size)))
        image = ctypes.create_string_buffer(size.value)
        _check(library, getattr(library, f"nvrtcGet{name}")(program, image))
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _log(library: Any, program: Any) -> str:
    size = ctypes.c_size_t()
    _check(library, library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(library, library.nvrtcGetProgramLog(program, text))
    return text.value.decode(errors="replace")


def _check(library: Any, status: int) -> None:
    if status != 0:
        raise RelaxishError(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def _with_nvcc(source: str, arch: str, kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.cu"
        path.write_text(source)
        image = path.with_suffix("." + kind)
        command = ["nvcc", "--std=c++17", f"-arch={arch}", f"--{kind}", "-o", str(image), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RelaxishError(f"the CUDA source does not compile for {arch}:\n{done.stderr}")
        return image.read_bytes()
