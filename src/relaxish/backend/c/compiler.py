"""The machine's C compiler: source to object code, objects to a shared library."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ...runtime.kernels.kernel import SharedLibrary
from ...support.errors import RelaxishError

__all__ = ["compile_object", "find_compiler", "link_shared", "load_objects"]

_OPTIONS = ("-std=c99", "-O2", "-fPIC", "-fno-strict-aliasing", "-w")


@lru_cache(maxsize=1)
def find_compiler() -> str | None:
    """The path of a C compiler; None where there is none."""
    return next((found for name in ("gcc", "clang", "cc") if (found := shutil.which(name))), None)


def _run(*arguments: str) -> None:
    compiler = find_compiler()
    if compiler is None:
        raise RelaxishError("the target 'c' needs a C compiler (gcc, clang or cc) on the path")
    done = subprocess.run([compiler, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RelaxishError(f"the C compiler failed:\n{done.stderr}")


def compile_object(source: str) -> bytes:
    """Object code of C99 text. Raises RelaxishError with the compiler's messages."""
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder) / "kernels.c", Path(folder) / "kernels.o"
        text.write_text(source)
        _run(*_OPTIONS, "-c", str(text), "-o", str(made))
        return made.read_bytes()


def link_shared(path: str | Path, objects: Sequence[bytes]) -> None:
    """Write a shared library from objects."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, body in enumerate(objects):
            files.append(str(Path(folder) / f"part{number}.o"))
            Path(files[-1]).write_bytes(body)
        _run("-shared", "-o", str(path), *files, "-lm")


def load_objects(objects: Sequence[bytes]) -> SharedLibrary:
    """Objects as a library of this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"
        link_shared(path, objects)
        return SharedLibrary(str(path))
