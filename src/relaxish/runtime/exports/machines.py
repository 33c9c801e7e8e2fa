"""Programs for several machines: one executable each, and the manifest by which a disco session finds its workers'.

``programs.export_library("model.json")`` writes ``model.json`` and an archive for each machine beside it;
``session.load_vm_module("model.json")`` then loads, on every worker, the program of the machine that the worker is on.
Workers are counted through: the first machine has the first ``workers`` of them, and so on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...support.errors import MalformedDataError, RelaxishError
from ...support.files import replace_file
from ...support.untrusted import integer, list_of, mapping_of, one_of, parse_json, record, text
from ..vm.executable import VMExecutable
from .load import load_module
from .manifest import check_files, describe_files, file_name

__all__ = ["MachinePrograms", "is_machines_file", "load_machine"]

_FORMAT = "relaxish-machines"
_SHA256 = text("[0-9a-f]{64}")
_SCHEMA = record(
    {
        "format": one_of(_FORMAT),
        "version": one_of(1),
        "machines": list_of(record({"name": text(r"[\w.-]{1,200}"), "file": file_name, "workers": integer(1, 1 << 16)}), 1 << 16),
        "files": mapping_of(record({"bytes": integer(0), "sha256": _SHA256}, {"pieces": list_of(_SHA256)}), file_name),
    }
)  # fmt: skip
_LARGEST = 1 << 24


class MachinePrograms(Mapping[str, VMExecutable]):
    """Result of a build for a target of kind ``machines``: an executable for each machine, by name and in order."""

    def __init__(self, programs: Mapping[str, tuple[VMExecutable, int]]) -> None:
        self._programs = dict(programs)

    def __getitem__(self, name: str) -> VMExecutable:
        return self._programs[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    @property
    def workers(self) -> dict[str, int]:
        """Number of workers of a session on each machine: one for each of its GPUs, or one."""
        return {name: count for name, (_, count) in self._programs.items()}

    def export_library(self, file_name: str | os.PathLike[str], **options: Any) -> str:
        """Write the manifest (a name ending in ``.json``) and beside it ``<stem>.<machine>.tar`` for each machine."""
        path = Path(file_name)
        if path.suffix != ".json":
            raise RelaxishError(f"the manifest of several machines' programs ends in .json, not {path.name}")
        machines = []
        for name, (program, workers) in self._programs.items():
            archive = f"{path.stem}.{re.sub('[^A-Za-z0-9_.-]', '_', name)}.tar"
            program.export_library(path.parent / archive, **options)
            machines.append({"name": name, "file": archive, "workers": workers})
        files = describe_files(path.parent, [str(m["file"]) for m in machines])
        data = {"format": _FORMAT, "version": 1, "machines": machines, "files": files}
        replace_file(path, json.dumps(data, indent=1).encode())
        return str(path)


def is_machines_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is the manifest of several machines' programs."""
    location = Path(path)
    if location.suffix != ".json" or not location.is_file() or location.stat().st_size > _LARGEST:
        return False
    return f'"{_FORMAT}"' in location.read_text(errors="replace")[:200]


def load_machine(path: str | os.PathLike[str], worker_id: int, num_workers: int) -> VMExecutable:
    """The program of the machine that a worker is on.

    Raises MalformedDataError for a damaged manifest or archive, RelaxishError if the session has another number of workers.
    """
    location = Path(path)
    data = _SCHEMA(parse_json(location.read_text(), str(location), max_bytes=_LARGEST), f"manifest {location}")
    total = sum(machine["workers"] for machine in data["machines"])
    if total != num_workers:
        names = ", ".join(f"{m['name']} {m['workers']}" for m in data["machines"])
        raise RelaxishError(f"{location} is for {total} workers ({names}), and the session has {num_workers}")
    first = 0
    for machine in data["machines"]:
        if worker_id < first + machine["workers"]:
            break
        first += machine["workers"]
    name = machine["file"]
    if name not in data["files"]:
        raise MalformedDataError(f"manifest {location}: {name} is used, but not among its files")
    # Each machine needs its own archive alone.
    check_files(location.parent, {name: data["files"][name]})
    loaded = load_module(location.parent / name)
    if not isinstance(loaded, VMExecutable):
        raise MalformedDataError(f"{location.parent / name} is not a program of graph functions")
    return loaded
