"""Folders of a cache on disk, safe against crashes and several writers.

An entry is a folder that is written under another name and renamed into place as a whole; the first writer wins. A list
of checksums is part of it, so that a damaged entry reads as "not there" and is removed. The folder of the cache is the
user's alone, since entries hold machine code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...meta_schedule.builder.device_artifact import needs_machine_code
from ...runtime.nvidia import providers
from ...support import config
from ...support import untrusted as ut
from ...support.errors import MalformedDataError, RelaxishError
from ...support.log import get_logger
from ...support.private_folder import UnsafeFolderError, private_folder
from ...target import Target

__all__ = ["entry_path", "find", "is_emulated", "key_of", "put", "seal", "verify"]

_log = get_logger("tile")
_SUMS = "checksums.json"
_CHECK = ut.mapping_of(ut.text("[0-9a-f]{64}"), key=ut.text(r"[\w.+-]{1,200}"))


def key_of(*parts: Any) -> str:
    """The key of plain data: this version and what changes generated code are part of it."""
    from ... import __version__

    data = [__version__, [list(map(str, pair)) for pair in config.code_key()], *parts]
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def is_emulated(target: Target) -> bool:
    """Whether kernels for a target run without machine code, in this process."""
    return target.kind.name == "cuda" and not needs_machine_code(providers.chosen())


def entry_path(kind: str, key: str, target: Target | None = None) -> Path | None:
    """Path of an entry, existing or not; None where the cache is off, or its folder cannot be trusted.

    Nothing is kept for a target whose device is emulated: what runs there is no machine code.
    """
    if config.TILE_DISABLE_CACHE.value:
        return None
    if target is not None and is_emulated(target):
        return None
    try:
        root = private_folder(private_folder(Path(config.CACHE_DIR.value)) / "tile")
        return private_folder(root / kind) / key
    except (UnsafeFolderError, OSError) as err:
        _log.warning("kernels are not kept: %s", err)
        return None


def seal(folder: Path) -> None:
    """Write the checksums of a folder's files."""
    sums = {p.name: _sum(p) for p in sorted(folder.iterdir()) if p.name != _SUMS}
    (folder / _SUMS).write_text(json.dumps(sums))


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def verify(folder: Path) -> None:
    """Compare a folder with its checksums. Raises MalformedDataError where something is missing, new or changed."""
    try:
        data = (folder / _SUMS).read_bytes()
        sums = _CHECK(ut.parse_json(data, f"{folder}/{_SUMS}", max_bytes=1 << 20), _SUMS)
        there = {p.name for p in folder.iterdir()} - {_SUMS}
        if there != set(sums):
            raise MalformedDataError(f"{folder}: its files are not those of its checksums")
        for name, wanted in sums.items():
            if (folder / name).is_symlink() or _sum(folder / name) != wanted:
                raise MalformedDataError(f"{folder}: {name} was changed or damaged")
    except OSError as err:
        raise MalformedDataError(f"{folder}: cannot be read ({err.strerror})") from None


def find(path: Path | None, load: Callable[[Path], Any]) -> Any:
    """Value that ``load`` makes of an entry; None if it is not there. A damaged one is removed."""
    if path is None or not path.is_dir():
        return None
    try:
        verify(path)
        return load(path)
    except Exception as err:  # whatever damage does to the reader
        _log.warning("an entry of the cache is damaged and is made again: %s", err)
        shutil.rmtree(path, ignore_errors=True)
        return None


def put(path: Path | None, write: Callable[[Path], None]) -> bool:
    """Have ``write(folder)`` make an entry; whether it is there now. A disk without room costs the entry only."""
    if path is None:
        return False
    temporary = ""
    try:
        temporary = tempfile.mkdtemp(prefix=".new", dir=path.parent)
        write(Path(temporary))
        seal(Path(temporary))
        # A folder is replaced only where it is empty: another writer's entry stays.
        os.rename(temporary, path)
        return True
    except (OSError, RelaxishError) as err:  # of a compiler that does not know the device, say
        if not path.is_dir():
            _log.warning("a kernel is not kept: %s", err)
        return path.is_dir()
    finally:
        if temporary and os.path.isdir(temporary):
            with contextlib.suppress(OSError):
                shutil.rmtree(temporary)
