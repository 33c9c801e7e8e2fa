"""Shared objects in this process: each is loaded once for its contents, whatever file it comes from.

What is mapped is a copy that nobody else can name. A file that is written again in place would change the code that runs,
and end the process if it became shorter: when a kernel is called, when one of its threads wakes, or when the number of
threads is set. The dynamic linker, too, knows libraries by name and inode, and would take another file for the one before.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from ...support.errors import RelaxishError
from ..kernels import packed_calls
from ..kernels.thread_count import SETTER, pool_loaded

__all__ = ["SharedLibrary", "shared_library"]

_NUMBERS = itertools.count(1)


@contextlib.contextmanager
def _in_memory(path: str) -> Iterator[str]:
    """A copy in memory alone, under a name that was never used before. Raises OSError where there is no such thing."""
    if not hasattr(os, "memfd_create"):
        raise OSError("no files in memory")
    descriptor = os.memfd_create(os.path.basename(path), os.MFD_CLOEXEC)
    try:
        with open(path, "rb") as source, os.fdopen(os.dup(descriptor), "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        # Numbers of descriptors come again; what makes the name a new one means nothing to the file system.
        new = f"{next(_NUMBERS):b}".replace("1", "/.").replace("0", "/")
        yield f"/proc/self/fd{new}/{descriptor}"
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _in_folder(path: str) -> Iterator[str]:
    """A copy in a folder of its own, deleted once it is open. Raises OSError where there is no room for it."""
    with tempfile.TemporaryDirectory(prefix="relaxish-load-") as folder:
        name = Path(folder) / f"{next(_NUMBERS)}-{os.path.basename(path)}"
        shutil.copyfile(path, name)
        yield str(name)


def _open(path: str) -> ctypes.CDLL:
    """``dlopen`` of what is in this file now. Raises OSError."""
    # Elsewhere a file that is mapped can be neither written nor deleted.
    for copy in (_in_memory, _in_folder) if sys.platform != "win32" else ():
        with contextlib.suppress(OSError), copy(path) as name:
            return ctypes.CDLL(name)
    return ctypes.CDLL(path)  # a file system without room or rights for a copy; or the error that names the file


class SharedLibrary:
    """A shared object opened with ``dlopen``; a file written again since it was loaded is loaded again."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._handle = _open(path)
        except OSError as err:
            raise RelaxishError(f"cannot load {path}: {err}") from None
        with contextlib.suppress(KeyError):
            pool_loaded(self.address(SETTER))
        with contextlib.suppress(KeyError):
            packed_calls.serve(self.address(packed_calls.SETTER))

    def address(self, symbol: str) -> int:
        """The address of an exported symbol; KeyError when there is none."""
        try:
            return ctypes.cast(getattr(self._handle, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise KeyError(symbol) from None


# They stay: threads of their own may run in them.
_BY_CONTENTS: dict[str, SharedLibrary] = {}
_LOCK = threading.Lock()


def shared_library(path: str, sha256: str) -> SharedLibrary:
    """The shared object in a file whose contents have this checksum; one that was loaded before has it as well."""
    with _LOCK:
        found = _BY_CONTENTS.get(sha256)
        if found is None:
            found = _BY_CONTENTS[sha256] = SharedLibrary(path)
        return found
