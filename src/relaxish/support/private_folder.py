"""Folders that hold what will be run later: they belong to this user, and nobody else may write or read there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import RelaxishError

__all__ = ["UnsafeFolderError", "private_folder"]


class UnsafeFolderError(RelaxishError):
    """A folder that must be private belongs to, or can be written by, somebody else."""


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder of mode 0700, whatever the umask, or check the one that is there.

    One of ours that others may only read is made private. Raises UnsafeFolderError for one that another user owns or
    can write to, for what they put there may be run; OSError if it cannot be made.
    """
    folder = Path(path)
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass  # another process was quicker; what it made is checked as any other
        else:
            os.chmod(folder, 0o700)
        status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{folder} is not a directory")
    if not hasattr(os, "geteuid"):
        return folder
    if status.st_uid != os.geteuid():
        raise UnsafeFolderError(f"{folder} belongs to user {status.st_uid}, not to this one ({os.geteuid()})")
    if status.st_mode & 0o022:
        raise UnsafeFolderError(
            f"others may write to {folder} (mode {stat.S_IMODE(status.st_mode):o}), and what is there would be run; "
            f"look at what it holds, then: chmod 700 {folder}"
        )
    if status.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return folder
