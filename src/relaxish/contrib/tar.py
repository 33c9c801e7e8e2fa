"""Archives of objects, which are smaller and quicker to make than libraries.

>>> from relaxish.contrib import utils
>>> folder = utils.tempdir()
>>> _ = open(folder.relpath("note.txt"), "w").write("hello")
>>> tar(folder.relpath("all.tar"), [folder.relpath("note.txt")])
>>> untar(folder.relpath("all.tar"), folder.relpath("out"))
>>> open(folder.relpath("out/note.txt")).read()
'hello'
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from typing import Any

from .utils import TempDirectory

__all__ = ["normalize_file_list_by_unpacking_tars", "tar", "untar"]


def tar(output: str, files: str | Sequence[str]) -> None:
    """Put files into an archive, all in one folder. Raises ValueError for two of the same name."""
    names: set[str] = set()
    with tarfile.open(output, "w") as archive:
        for path in [files] if isinstance(files, str) else files:
            name = os.path.basename(path)
            if name in names:
                raise ValueError(f"two files are called {name!r}")
            names.add(name)
            archive.add(path, arcname=name)


tar.output_format = "tar"  # type: ignore[attr-defined]  # what export_library calls the file


def untar(tar_file: str, directory: str) -> None:
    """Unpack an archive; members that would land outside of the folder are refused."""
    os.makedirs(directory, exist_ok=True)
    with tarfile.open(tar_file) as archive:
        archive.extractall(directory, filter="data")


def normalize_file_list_by_unpacking_tars(temp: TempDirectory, file_list: Sequence[Any]) -> list[str]:
    """The files, with what archives among them contain in place of the archives."""
    found: list[str] = []
    for number, path in enumerate(file_list):
        if not str(path).endswith(".tar"):
            found.append(str(path))
            continue
        folder = temp.relpath(f"unpacked{number}")
        untar(str(path), folder)
        found += sorted(os.path.join(folder, name) for name in os.listdir(folder))
    return found
