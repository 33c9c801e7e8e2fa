"""Device modules as files: a zip archive of the manifest (signatures, host programs, sources) and the binaries."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

from ...support import entry_points
from ...support.errors import MalformedDataError, MissingFileError, RelaxishError
from ...support.untrusted import integer, list_of, malformed, mapping_of, parse_json, record, text, tuple_of
from .module import DeviceModule
from ..exports.manifest import KERNEL_SPEC

__all__ = ["is_package", "read_package", "write_package"]

_MANIFEST = "module.json"
_FOLDER = "binaries/"
_LARGEST, _MOST = 1 << 31, 100_000
_TEXT = text(longest=1 << 28)
_NAME = text(longest=1 << 12)
_SCHEMA = record(
    {
        "type_key": _NAME,
        "device_type": integer(0, 1 << 16),
        "sources": mapping_of(_TEXT),
        "kernels": list_of(tuple_of(_NAME, list_of(_NAME), list_of(_NAME))),
        "programs": list_of(tuple_of(KERNEL_SPEC, _TEXT)),
    },
    {"arch": _NAME, "parts": mapping_of(_TEXT)},
)


def write_package(path: Path, module: DeviceModule) -> None:
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
    where = f"cannot load {path}: the device module is damaged"
    with malformed(where):
        try:
            data, binaries = _contents(path, where)
        except FileNotFoundError:
            raise MissingFileError(f"cannot find file {path}: no such file") from None
        except Exception as err:  # of the many kinds the archive reader raises for damaged archives
            if isinstance(err, RelaxishError):
                raise
            raise MalformedDataError(f"{where} ({err or type(err).__name__})") from None
        manifest = _SCHEMA(parse_json(data, where, max_depth=100), where)
        hook = f"device_module.{manifest['type_key']}"  # a class of modules of its own
        kind = entry_points.load(hook) if entry_points.available(hook) else DeviceModule
        made: DeviceModule = kind.from_json(manifest, binaries)
        for program in made.programs.values():
            _ = program.function  # a text that is no host program is an error now, not at its first call
        return made


def _contents(path: Path, where: str) -> tuple[bytes, dict[str, bytes]]:
    """The manifest and the binaries of an archive; its directory says how large they are before they are unpacked."""
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > _LARGEST or len(infos) > _MOST:
            raise MalformedDataError(f"{where}: what it holds is too large")
        names = [info.filename for info in infos]
        if len(set(names)) != len(names):
            raise MalformedDataError(f"{where}: a name is there twice")
        strange = [n for n in names if n != _MANIFEST and not n.startswith(_FOLDER)]
        if strange:
            raise MalformedDataError(f"{where}: {strange[0]!r} does not belong there")
        binaries = {n.removeprefix(_FOLDER): archive.read(n) for n in names if n != _MANIFEST}
        return archive.read(_MANIFEST), binaries
