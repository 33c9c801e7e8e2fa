"""Shared objects in this process: each is loaded once for its contents, whatever file it comes from.

The dynamic linker knows libraries by the name and the inode of their file: a file that was written again in place, or put
where another one was, would be taken for what was loaded before.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path

from ..support.errors import RelaxishError
from .thread_count import SETTER, pool_loaded

__all__ = ["SharedLibrary", "shared_library"]

# What was loaded under a name, or as an inode: (device, inode), size, time of the last change.
_BY_NAME: dict[str, tuple[int, ...]] = {}
_BY_INODE: dict[tuple[int, int], tuple[int, ...]] = {}
_NUMBERS = itertools.count()


def _open(path: str) -> ctypes.CDLL:
    """``dlopen`` of this very file. Raises OSError."""
    stat = os.stat(path)
    inode = stat.st_dev, stat.st_ino
    identity = *inode, stat.st_size, stat.st_mtime_ns
    if _BY_INODE.setdefault(inode, identity) == identity and _BY_NAME.setdefault(path, identity) == identity:
        return ctypes.CDLL(path)
    with tempfile.TemporaryDirectory(prefix="relaxish-load-") as folder:
        # A name that no other file ever has; a file that changed in place needs another inode as well.
        name = Path(folder) / f"{next(_NUMBERS)}-{os.path.basename(path)}"
        if _BY_INODE[inode] == identity:
            name.symlink_to(os.path.abspath(path))
        else:
            shutil.copyfile(path, name)
        return ctypes.CDLL(str(name))


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
