"""NVRTC from its wheel: CUDA C++ compiled in this process."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

from ....support.errors import RelaxishError
from .headers import include_folders, nvrtc_folder
from .images import Image

__all__ = ["NVRTC"]

_NO_HEADER = "\nCUDA's headers are in the packages nvidia-cuda-runtime and nvidia-cuda-crt, and in a toolkit with nvcc."


class NVRTC:
    """The compiler library of the newest CUDA wheels that are installed; see :mod:`.nvrtc` for who calls it."""

    name = "NVRTC"

    def __init__(self) -> None:
        folder = nvrtc_folder()
        assert folder is not None, "ask present() first"
        self.library = _library(folder)

    @staticmethod
    def present() -> bool:
        """Whether the wheel is installed, and headers for it."""
        return nvrtc_folder() is not None and any((p / "cuda_fp16.h").exists() for p in include_folders())

    def version(self) -> str:
        """Such as ``"nvrtc 13.0"``."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return f"nvrtc {major.value}.{minor.value}"

    def architectures(self) -> tuple[int, ...]:
        """The numbers of the architectures it compiles for, such as 80 and 90."""
        count = ctypes.c_int()
        self._check(self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        self._check(self.library.nvrtcGetSupportedArchs(found))
        return tuple(found)

    def compile(self, source: str, arch: str, kind: str) -> Image:
        """Compile to ``"cubin"`` or ``"ptx"``. Raises RelaxishError with the log when the source does not compile."""
        program = ctypes.c_void_p()
        self._check(self.library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
        ))  # fmt: skip
        try:
            options = self._options(arch, kind)
            array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
            if self.library.nvrtcCompileProgram(program, len(options), array) != 0:
                log = self._log(program)
                hint = _NO_HEADER if "open source file" in log else ""
                raise RelaxishError(f"the CUDA source does not compile for {arch}:\n{log}{hint}")
            size = ctypes.c_size_t()
            name = "CUBIN" if kind == "cubin" else "PTX"
            self._check(getattr(self.library, f"nvrtcGet{name}Size")(program, ctypes.byref(size)))
            image = ctypes.create_string_buffer(size.value)
            self._check(getattr(self.library, f"nvrtcGet{name}")(program, image))
            return Image(image.raw, self._log(program))
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _options(self, arch: str, kind: str) -> list[str]:
        real = arch if kind == "cubin" else arch.replace("sm_", "compute_")
        options = ["--std=c++17", f"--gpu-architecture={real}", "-default-device"]
        if kind == "cubin":
            options.append("--ptxas-options=-v")
        return options + [f"--include-path={p}" for p in include_folders()]

    def _log(self, program: Any) -> str:
        size = ctypes.c_size_t()
        self._check(self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(max(1, size.value))
        self._check(self.library.nvrtcGetProgramLog(program, text))
        return text.value.decode(errors="replace")

    def _check(self, status: int) -> None:
        if status != 0:
            raise RelaxishError(f"NVRTC: {self.library.nvrtcGetErrorString(status).decode()}")


@lru_cache(maxsize=1)
def _library(folder: Path) -> ctypes.CDLL:
    for builtins in sorted(folder.glob("lib/libnvrtc-builtins.so.*"))[-1:]:
        # NVRTC asks the loader for this library by name only.
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    found = [p for p in sorted(folder.glob("lib/libnvrtc.so.*")) if "alt" not in p.name]
    library = ctypes.CDLL(str(found[-1]))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library
