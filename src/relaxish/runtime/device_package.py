"""Device modules as files: a zip archive of the manifest (signatures, host programs, sources) and the binaries."""

from __future__ import annotations

import json
import os
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

from ..support.errors import MissingFileError, RelaxishError
from .device_module import DeviceModule

__all__ = ["LOADERS", "is_package", "read_package", "write_package"]

_MANIFEST = "module.json"
_FOLDER = "binaries/"
# By kind of target: the class whose ``from_json(manifest, binaries)`` makes the module; others are plain DeviceModules.
LOADERS: dict[str, str] = {"cuda": "relaxish.runtime.nvidia.module:CUDAModule"}


def write_package(path: Path, module: Any) -> None:
    """Write a device module. Raises RelaxishError when the file cannot be written."""
    manifest, binaries = module.package()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest))
            for name, data in binaries.items():
                archive.writestr(_FOLDER + name, data)
        os.replace(temporary, path)
    except OSError as err:
        raise RelaxishError(f"cannot write {path}: {err.strerror}") from None


def is_package(path: Path) -> bool:
    """Whether a file is a device module's."""
    return path.is_file() and zipfile.is_zipfile(path)


def read_package(path: Path) -> DeviceModule:
    """The module of a file. Raises RelaxishError for a file that is missing or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read(_MANIFEST))
            names = [n for n in archive.namelist() if n.startswith(_FOLDER)]
            binaries = {n.removeprefix(_FOLDER): archive.read(n) for n in names}
    except FileNotFoundError:
        raise MissingFileError(f"cannot find file {path}: no such file") from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as err:
        raise RelaxishError(f"cannot load {path}: the device module is damaged ({err})") from None
    module, _, name = LOADERS.get(manifest["type_key"], "").partition(":")
    kind = getattr(import_module(module), name) if module else DeviceModule
    made: DeviceModule = kind.from_json(manifest, binaries)
    return made
