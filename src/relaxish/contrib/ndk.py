"""The compiler of Android's native development kit, for linking libraries for phones.

``TVM_NDK_CC`` names it: ``export TVM_NDK_CC=.../toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android30-clang``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..support import config
from ..support.errors import RelaxishError
from . import cc

__all__ = ["create_shared", "create_staticlib"]


def _compiler() -> str:
    found = config.worker_environment().get("TVM_NDK_CC")
    if not found:
        raise RelaxishError("TVM_NDK_CC is not set: let it name the compiler of the NDK that links for the device")
    return found


def create_shared(output: str, objects: str | Sequence[str], options: Sequence[str] | None = None) -> None:
    """Link objects to a shared library for the device. Raises RelaxishError where no NDK is set, RuntimeError with the
    compiler's words where it refuses."""
    cc.create_shared(output, objects, ["-stdlib=libc++", *options] if options else None, cc=_compiler())


create_shared.output_format = "so"  # type: ignore[attr-defined]  # what export_library calls the file


def create_staticlib(output: str, inputs: str | Sequence[str]) -> None:
    """Put objects into an archive with the NDK's archiver."""
    cc.create_staticlib(output, inputs, os.path.join(os.path.dirname(_compiler()), "llvm-ar"))


create_staticlib.output_format = "a"  # type: ignore[attr-defined]
