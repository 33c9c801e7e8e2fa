"""Deployment files: shared object, weights, manifest.

``model.so`` holds kernels and native entries, ``model.safetensors`` the constants, ``model.json`` everything else
(bytecode, signatures, plans). ``model.tar`` packs the three into one file.
"""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.errors import MissingFileError, RelaxishError
from . import safetensors_file
from .bytecode import FunctionInfo, instruction_from_json, instruction_to_json
from .device_package import read_package, write_package
from .executable import Executable, constant_from_json, constant_to_json
from .external import load_external
from .kernel import KernelSpec, SharedLibrary
from .module import Module
from .ndarray import NDArray
from .plan import ExecutionPlan
from .registry import register_func
from .system_library import register_symbols

FORMAT_VERSION = 1


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError as err:
        raise RelaxishError(f"cannot write {path}: {err.strerror}") from None


def _in_tar(file_name: str, write: Any) -> str:
    with tempfile.TemporaryDirectory(prefix="relaxish-export-") as folder:
        stem = Path(file_name).stem
        write(os.path.join(folder, stem + ".so"))
        try:
            with tarfile.open(file_name, "w") as tar:
                for part in sorted(os.listdir(folder)):
                    tar.add(os.path.join(folder, part), part)
        except OSError as err:
            raise RelaxishError(f"cannot write {file_name}: {err.strerror}") from None
    return file_name


def _link(path: str, objects: list[bytes], linker: Any) -> None:
    if linker is None:
        raise RelaxishError("this module has no object code to export (it runs in the interpreting mode)")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise RelaxishError(f"cannot write {path}: {folder} is not a writable directory")
    linker(path, objects)


def export_executable(executable: Executable, file_name: str) -> str:
    """Write an executable; returns the file name."""
    if file_name.endswith(".tar"):
        return _in_tar(file_name, lambda path: export_executable(executable, path))
    if executable.python_kernels:
        raise RelaxishError("an executable of the interpreting mode cannot be exported")
    path = Path(file_name)
    has_library = bool(executable.kernels) and not _only_on_devices(executable)
    if has_library:
        _link(file_name, executable.objects, executable.linker)
    tensors = {f"c{i}": c for i, c in enumerate(executable.constants) if isinstance(c, NDArray)}
    external = [m for m in executable.external_modules if hasattr(m, "to_manifest") or _is_device_module(m)]
    for index, module in enumerate(external):
        if not _is_device_module(module):
            tensors.update({f"x{index}.{name}": tensor for name, tensor in module.tensors().items()})
    safetensors_file.save(str(path.with_suffix(".safetensors")), tensors)
    constants = [None if isinstance(c, NDArray) else constant_to_json(c) for c in executable.constants]
    manifest = {
        "format": "relaxish-executable",
        "version": FORMAT_VERSION,
        "library": path.name if has_library else None,
        "devices": _write_devices(path, executable.device_modules, has_library),
        "constant_devices": {str(i): list(place) for i, place in executable.constant_devices.items()},
        "external": [_external_to_json(path, index, m) for index, m in enumerate(external)],
        "weights": path.with_suffix(".safetensors").name,
        "functions": [_function_to_json(f) for f in executable.functions],
        "constants": constants,
        "kernels": [k.to_json() for k in executable.kernels.values()],
        "plans": [p.to_json() for p in executable.plans.values()],
        "metadata": executable.metadata,
        "system_lib": executable.in_system_lib,
    }
    if not has_library and not manifest["devices"]:
        path.write_bytes(b"")  # what is loaded is named by this file, though all is in those beside it
    _write_text(path.with_suffix(".json"), json.dumps(manifest))
    return file_name


def export_module(module: Module, file_name: str) -> str:
    """Write a module of kernels; returns the file name."""
    if file_name.endswith(".tar"):
        return _in_tar(file_name, lambda path: export_module(module, path))
    path = Path(file_name)
    devices = [m for m in module.imported_modules if _is_device_module(m)]
    has_library = bool(module.objects) or not devices
    if has_library:
        _link(file_name, module.objects, module.linker)
    manifest = {
        "format": "relaxish-kernels",
        "version": FORMAT_VERSION,
        "library": path.name if has_library else None,
        "devices": _write_devices(path, devices, has_library),
        "kernels": [k.to_json() for k in module.kernels.values()],
        "entry": module.entry_name,
        "system_lib": module.in_system_lib,
    }
    _write_text(path.with_suffix(".json"), json.dumps(manifest))
    return file_name


def _only_on_devices(executable: Executable) -> bool:
    """Whether every kernel is a device module's."""
    on_devices = {name for module in executable.device_modules for name in module.programs}
    return bool(on_devices) and set(executable.kernels) <= on_devices


def _write_devices(path: Path, modules: Sequence[Any], has_library: bool) -> list[str]:
    """Write device modules beside the library, or the first in its place where there is none; their file names."""
    names = []
    for index, module in enumerate(modules):
        target = path.with_suffix(f".device{index}") if has_library or index else path
        write_package(target, module)
        names.append(target.name)
    return names


def _is_device_module(module: Any) -> bool:
    return bool(getattr(module, "is_device_module", False))


def _external_to_json(path: Path, index: int, module: Any) -> dict[str, Any]:
    """What a code generator made, as plain data and the names of files with its device modules."""
    of_kernels = _is_device_module(module)
    names = []
    for number, package in enumerate([module] if of_kernels else module.packages):
        target = path.with_suffix(f".external{index}_{number}")
        write_package(target, package)
        names.append(target.name)
    described: dict[str, Any] = {} if of_kernels else module.to_manifest()
    return {**described, "packages": names}


def _external_from_json(folder: Path, index: int, data: dict[str, Any], weights: dict[str, NDArray]) -> Any:
    packages = [_published(read_package(folder / name)) for name in data.get("packages", ())]
    if "programs" not in data:
        return packages[0]
    return load_external(data, {name: weights[f"x{index}.{name}"] for name in data["constants"]}, packages)


def _published(module: Any) -> Any:
    """A device module; if it has kernels only, no host programs, others call them as packed functions."""
    if not module.programs:
        for name in module.kernel_names:
            register_func(name, module.get_function(name), override=True)
    return module


def _function_to_json(info: FunctionInfo) -> dict[str, Any]:
    return {
        "kind": info.kind,
        "name": info.name,
        "params": list(info.param_names),
        "registers": info.num_registers,
        "code": [instruction_to_json(i) for i in info.code],
    }


def _function_from_json(data: dict[str, Any]) -> FunctionInfo:
    code = [instruction_from_json(i) for i in data["code"]]
    return FunctionInfo(data["kind"], data["name"], tuple(data["params"]), data["registers"], code)


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest_path = path.with_suffix(".json")
    try:
        manifest = json.loads(manifest_path.read_text())
    except FileNotFoundError:
        raise RelaxishError(f"cannot load {path}: its manifest {manifest_path} is missing") from None
    except (OSError, ValueError) as err:
        raise RelaxishError(f"cannot load {path}: the manifest {manifest_path} is damaged ({err})") from None
    if not isinstance(manifest, dict) or not str(manifest.get("format", "")).startswith("relaxish-"):
        raise RelaxishError(f"cannot load {path}: {manifest_path} is not a relaxish manifest")
    if manifest.get("version") != FORMAT_VERSION:
        raise RelaxishError(f"cannot load {path}: manifest version {manifest.get('version')} is not supported")
    return manifest


def load_module(path: str | os.PathLike[str], fmt: str = "") -> Executable | Module:
    """Load what ``export_library`` wrote; give the shared object, the manifest or the tar file."""
    location = Path(path)
    if not location.exists():
        raise MissingFileError(f"cannot find file {location}: no such file")
    if tarfile.is_tarfile(location):
        return _load_tar(location)
    manifest = _read_manifest(location)
    libraries = []
    if manifest["library"]:
        libraries = [SharedLibrary(str((location.parent / manifest["library"]).resolve()))]
    kernels = {k["name"]: KernelSpec.from_json(k) for k in manifest["kernels"]}
    loaded: Executable | Module
    devices = [_published(read_package(location.parent / name)) for name in manifest.get("devices", ())]
    if manifest["format"] == "relaxish-kernels":
        loaded = Module(kernels, libraries[0] if libraries else None, entry_name=manifest["entry"])
        for module in devices:
            loaded.import_module(module)
    else:
        loaded = _load_executable(location, manifest, kernels, libraries)
        loaded.device_modules = list(devices)
    if manifest.get("system_lib"):
        register_symbols(loaded)
    return loaded


def _load_executable(
    location: Path, manifest: dict[str, Any], kernels: dict[str, KernelSpec], libraries: Sequence[SharedLibrary]
) -> Executable:
    weights = safetensors_file.load(str(location.parent / manifest["weights"]))
    constants = [weights[f"c{i}"] if c is None else constant_from_json(c) for i, c in enumerate(manifest["constants"])]
    plans = [ExecutionPlan.from_json(p) for p in manifest["plans"]]
    loaded = Executable(
        [_function_from_json(f) for f in manifest["functions"]],
        constants,
        kernels=kernels,
        libraries=libraries,
        plans={p.name: p for p in plans},
        metadata=manifest.get("metadata"),
    )
    loaded.constant_devices = {int(i): tuple(place) for i, place in manifest.get("constant_devices", {}).items()}
    for index, description in enumerate(manifest.get("external", ())):
        loaded.external_modules.append(_external_from_json(location.parent, index, description, weights))
    return loaded


_UNPACKED: list[tempfile.TemporaryDirectory[str]] = []


def _load_tar(path: Path) -> Executable | Module:
    folder = tempfile.TemporaryDirectory(prefix="relaxish-load-")
    _UNPACKED.append(folder)  # the library stays mapped from there
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            source = tar.extractfile(member)
            name = os.path.basename(member.name)
            if source is not None and name:
                (Path(folder.name) / name).write_bytes(source.read())
    manifests = list(Path(folder.name).glob("*.json"))
    if len(manifests) != 1:
        raise RelaxishError(f"cannot load {path}: it does not contain exactly one manifest")
    return load_module(manifests[0])


def load_static_library(path: str | os.PathLike[str], func_names: Sequence[str]) -> StaticLibrary:
    """An object file whose functions are linked into what is exported. Raises RelaxishError if it cannot be read."""
    try:
        return StaticLibrary(tuple(func_names), Path(path).read_bytes())
    except OSError as err:
        raise RelaxishError(f"cannot load {path}: {err.strerror}") from None


@dataclass(frozen=True)
class StaticLibrary:
    """Object code with the names of its functions."""

    func_names: tuple[str, ...]
    object_bytes: bytes
    type_key = "static_library"

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether the object file defines it."""
        return name in self.func_names
