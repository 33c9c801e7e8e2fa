"""Compiling CUDA C++: by NVRTC from its wheel, else by the ``nvcc`` on the path. Needs no GPU.

Compiled images are kept in the object cache on disk; its key holds the source, the architecture, and the compiler's
version. With ``PassContext(config={"cuda.kernels_output_dir": folder})`` sources and images are also written there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from ....ir.transform import PassContext
from ....support.errors import MissingExtraError, RelaxishError
from ....support.threads import available_cores
from ...common import object_cache
from .images import Image, KernelResources
from .nvcc import NVCC
from .nvrtc_library import NVRTC
from ....ir.plain import plain_str

__all__ = [
    "KernelResources", "available", "compile_cubin", "compile_image", "compile_many", "compile_ptx", "compilers", "kernel_resources",
    "supported_architectures",
]  # fmt: skip

_ARCH = re.compile(r"sm_(\d+)([af]?)")


class Compiler(Protocol):
    """Interface of NVRTC and nvcc."""

    name: str

    def version(self) -> str:
        """Name and version, for the cache."""

    def architectures(self) -> tuple[int, ...]:
        """Numbers of the architectures it compiles for."""

    def compile(self, source: str, arch: str, kind: str) -> Image:
        """An image of some kind."""


def available() -> bool:
    """Whether there is a compiler: NVRTC or nvcc."""
    return NVRTC.present() or NVCC.present()


def compile_cubin(source: str, arch: str) -> bytes:
    """Machine code for ``arch`` (``"sm_80"``, ``"sm_90a"``).

    Raises RelaxishError with the compiler's log when the source does not compile, and for an architecture that no
    compiler here knows; MissingExtraError without a compiler.
    """
    return compile_image(source, arch, "cubin").data


def compile_ptx(source: str, arch: str) -> str:
    """PTX for ``arch``; errors as :func:`compile_cubin`."""
    return compile_image(source, arch, "ptx").data.rstrip(b"\0").decode()


def kernel_resources(source: str, arch: str) -> dict[str, KernelResources]:
    """Registers, shared memory and spills of each kernel; errors as :func:`compile_cubin`."""
    return compile_image(source, arch, "cubin").resources()


def compile_image(source: str, arch: str, kind: str) -> Image:
    """An image of kind ``"cubin"`` or ``"ptx"``, from the cache if it was made before."""
    compiler = _compiler(arch)
    key = object_cache.key_of(source, f"cuda {kind}", arch, compiler.version())
    kept = object_cache.lookup(key)
    if kept is not None:
        image = Image.unpacked(kept)
    else:
        image = compiler.compile(source, arch, kind)
        object_cache.store(key, image.packed())
    _write_out(source, image, kind)
    return image


def compile_many(jobs: Sequence[tuple[str, str]], threads: int | None = None) -> list[bytes | RelaxishError]:
    """Cubins of many (source, arch) pairs, side by side; what does not compile gives its error instead."""

    def run(job: tuple[str, str]) -> bytes | RelaxishError:
        try:
            return compile_cubin(*job)
        except RelaxishError as err:
            return err

    with ThreadPoolExecutor(threads or available_cores()) as pool:
        return list(pool.map(run, jobs))


def supported_architectures() -> tuple[int, ...]:
    """Numbers of the architectures for which something here compiles; empty without a compiler."""
    return tuple(sorted({n for c in compilers() for n in c.architectures()}))


@lru_cache(maxsize=1)
def compilers() -> tuple[Compiler, ...]:
    """The compilers of this machine, the quickest first."""
    return tuple(kind() for kind in (NVRTC, NVCC) if kind.present())


@lru_cache(maxsize=None)
def _compiler(arch: str) -> Compiler:
    """The first compiler that knows the architecture."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise RelaxishError(f"{arch!r} is no CUDA architecture; expected such as 'sm_80' or 'sm_90a'")
    for compiler in compilers():
        if int(match[1]) in compiler.architectures():
            return compiler
    if not available():
        raise MissingExtraError("cuda", "nvidia-cuda-nvrtc", "compiling CUDA source")
    known = ", ".join(f"sm_{n}" for n in supported_architectures())
    names = " and ".join(c.version() for c in compilers())
    raise RelaxishError(f"{names} cannot compile for {arch}; what can be compiled for: {known}")


def _write_out(source: str, image: Image, kind: str) -> None:
    """Put source and image into the folder that the pass context names; a second kernel gets a name of its own."""
    wanted = PassContext.current().config.get("cuda.kernels_output_dir")
    if not wanted:
        return
    folder = Path(plain_str(wanted))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tvm_kernels.cu"
    if path.exists() and path.read_text() != source:
        path = folder / f"tvm_kernels_{hashlib.sha256(source.encode()).hexdigest()[:8]}.cu"
    path.write_text(source)
    path.with_suffix(f".{kind}").write_bytes(image.data)
