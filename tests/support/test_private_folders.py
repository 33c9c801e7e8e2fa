"""Folders of what will be run are private, and what is in them is checked before it is used."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from relaxish.backend.common import object_cache
from relaxish.support import config, private_folder
from relaxish.support.private_folder import UnsafeFolderError
from relaxish.testing.fuzz.child import in_child

KEY = "ab" + "0" * 38
OTHER = "ab" + "1" * 38


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def cache(tmp_path: Path):
    with config.CACHE_DIR.override(tmp_path / "cache"), config.CACHE.override(True):
        yield tmp_path / "cache"


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_whatever_the_umask(cache: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        object_cache.store(KEY, b"code")
    finally:
        os.umask(before)
    assert object_cache.lookup(KEY) == b"code"
    folders = [cache, *(p for p in cache.rglob("*") if p.is_dir())]
    assert len(folders) == 3 and {_mode(p) for p in folders} == {0o700}
    assert all(_mode(p) & 0o077 == 0 for p in cache.rglob("*"))


def test_readable_folders_become_private(cache: Path) -> None:
    cache.mkdir(mode=0o755)
    object_cache.store(KEY, b"code")
    assert _mode(cache) == 0o700 and object_cache.lookup(KEY) == b"code"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o702])
@pytest.mark.parametrize("part", ["", "objects"])
def test_writable_folders_are_not_used(cache: Path, mode: int, part: str) -> None:
    object_cache.store(KEY, b"code")
    os.chmod(cache / part, mode)
    assert object_cache.lookup(KEY) is None
    object_cache.store(OTHER, b"code")
    assert not list(cache.rglob(OTHER[2:]))
    with pytest.raises(UnsafeFolderError, match="others may write"):
        private_folder.private_folder(cache / part)


def test_folders_of_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder.private_folder(tmp_path / "mine")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(UnsafeFolderError, match="belongs to user"):
        private_folder.private_folder(folder)


def test_files_are_no_folders(cache: Path) -> None:
    cache.write_text("x")
    object_cache.store(KEY, b"code")
    assert object_cache.lookup(KEY) is None and cache.read_text() == "x"


def test_every_flipped_bit_of_an_entry(cache: Path) -> None:
    body = bytes(range(200))
    object_cache.store(KEY, body)
    (path,) = (p for p in cache.rglob("*") if p.is_file())
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        assert object_cache.lookup(KEY) is None and not path.exists()
    for keep in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:keep])
        assert object_cache.lookup(KEY) is None
    path.write_bytes(whole)
    assert object_cache.lookup(KEY) == body


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_entries_that_are_no_files(cache: Path, kind: str) -> None:
    object_cache.store(KEY, b"code")
    (path,) = (p for p in cache.rglob("*") if p.is_file())
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert in_child(lambda: object_cache.lookup(KEY) or "nothing", 30) == "nothing"
    object_cache.store(KEY, b"code")
    assert object_cache.lookup(KEY) == b"code"


def test_entries_of_other_keys(cache: Path) -> None:
    """A whole entry under a name that is not its own is another program."""
    object_cache.store(KEY, b"code of one program")
    (path,) = (p for p in cache.rglob("*") if p.is_file())
    path.rename(path.with_name(OTHER[2:]))
    assert object_cache.lookup(OTHER) is None and object_cache.lookup(KEY) is None


def test_a_full_disk_leaves_no_pieces(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    object_cache.store(KEY, b"code")
    assert not [p for p in cache.rglob("*") if p.is_file()]
