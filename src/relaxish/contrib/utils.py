"""Temporary folders for scripts that compile, save and load.

>>> from relaxish.contrib import utils
>>> folder = utils.tempdir()
>>> _ = open(folder.relpath("notes.txt"), "w").write("hello")
>>> folder.listdir()
['notes.txt']
>>> folder.remove()
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

__all__ = ["TempDirectory", "tempdir"]


class TempDirectory:
    """A folder that is removed with the object, or at the latest when Python ends."""

    def __init__(self, custom_path: str | None = None) -> None:
        if custom_path is not None:
            os.mkdir(custom_path)
        self.temp_dir = custom_path or tempfile.mkdtemp(prefix="relaxish-")
        self._remove = weakref.finalize(self, shutil.rmtree, self.temp_dir, ignore_errors=True)

    @property
    def path(self) -> str:
        """Path of the folder."""
        return self.temp_dir

    def remove(self) -> None:
        """Remove the folder and all that is in it now."""
        self._remove()

    def relpath(self, name: str) -> str:
        """The path of ``name`` in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """Names in the folder."""
        return sorted(os.listdir(self.temp_dir))


def tempdir(custom_path: str | None = None) -> TempDirectory:
    """A new temporary folder; at ``custom_path``, which must not exist yet, if that is given."""
    return TempDirectory(custom_path)
