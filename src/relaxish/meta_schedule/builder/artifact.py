"""Candidates as files: what a builder hands to callers who ask it directly, and how those files go away."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.registry import register_func
from ...target import Target
from .device_artifact import DeviceArtifact
from .interpreted import InterpretedArtifact

if TYPE_CHECKING:
    from ...backend.llvm.compile import CompiledObject

__all__ = ["export_kernels", "new_folder", "remove_build_dir", "unpacked", "write_artifact"]

_PREFIX = "relaxish-artifact-"
_CODE = ".candidate"


def new_folder() -> Path:
    """A folder of its own for one artifact; :func:`remove_build_dir` deletes it."""
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


def write_artifact(code: bytes) -> str:
    """Write a candidate to the one file of a new folder: a module if it runs on a processor, else the code itself."""
    made, folder = unpacked(code), new_folder()
    if made is not None and not isinstance(made, (DeviceArtifact, InterpretedArtifact)):
        return str(export_kernels(made, folder, archive=True))
    path = folder / f"module{_CODE}"
    path.write_bytes(code)
    return str(path)


def unpacked(artifact: str | bytes) -> DeviceArtifact | InterpretedArtifact | CompiledObject | None:
    """Artifact of a builder, from memory or a file it wrote; None for exported modules, which the runtime loads."""
    if isinstance(artifact, str):
        if not artifact.endswith(_CODE) or not os.path.isfile(artifact):
            return None
        artifact = Path(artifact).read_bytes()
    made: DeviceArtifact | InterpretedArtifact | CompiledObject = pickle.loads(artifact)
    return made


def export_kernels(compiled: CompiledObject, folder: Path, archive: bool = False) -> Path:
    """Compiled kernels as a module that :func:`relaxish.runtime.load_module` reads.

    For a machine of another architecture, and where an ``archive`` is asked for, the objects go in one file, and are
    linked where they are loaded.
    """
    from ...backend.llvm.compile import linker_of
    from ...runtime.exports.linking import is_foreign
    from ...runtime.kernels.module import Module

    path = folder / ("candidate.tar" if archive or is_foreign(compiled.triple) else "candidate.so")
    linker = linker_of(Target({"kind": "llvm", "mtriple": compiled.triple}) if compiled.triple else Target("llvm"))
    module: Any = Module(compiled.kernels, None, objects=[compiled.object_bytes], linker=linker)
    module.export_library(path)
    return path


@register_func("meta_schedule.remove_build_dir")
def remove_build_dir(artifact_path: str) -> None:
    """Delete an artifact: the whole folder where a builder made it for this one, else the file, and a folder left empty."""
    folder = os.path.dirname(artifact_path)
    if os.path.basename(folder).startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
        return
    if os.path.isfile(artifact_path):
        os.unlink(artifact_path)
        if folder and not os.listdir(folder):
            os.rmdir(folder)
