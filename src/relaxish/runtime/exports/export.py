"""Deployment files, written: shared object, weights, manifest. :mod:`.load` reads them again.

``model.so`` holds kernels and native entries, ``model.safetensors`` the constants, ``model.json`` everything else
(bytecode, signatures, plans, and checksums of the other files). ``model.tar`` packs them into one file. A program built
in several versions for CPUs of different abilities is still one set of files: the kernels of all versions are in the
one library, those of the second and later ones under names with a suffix.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...support.elf import with_suffix
from ...support.errors import RelaxishError
from ...support.files import replace_file
from ...support.log import get_logger
from . import safetensors_file
from ..bytecode.instructions import FunctionInfo, instruction_to_json
from ..devices.package import write_package
from ..vm.executable import VMExecutable, constant_to_json
from .linking import is_foreign, link_with
from .load import load_module
from .manifest import ABI_VERSION, FORMAT_VERSION, describe_files, manifest_text, parse_manifest
from ..kernels.module import Module
from ..arrays.ndarray import NDArray
from .nested import NestedModule

__all__ = ["StaticLibrary", "export_executable", "export_module", "load_module", "load_static_library"]


_log = get_logger("runtime")


def _in_tar(file_name: str, write: Callable[[str, _Linking], object]) -> str:
    with tempfile.TemporaryDirectory(prefix="relaxish-export-") as folder:
        stem = Path(file_name).stem
        write(os.path.join(folder, stem + ".so"), _Linking(in_archive=True))
        manifest = f"{stem}.json"
        parts = parse_manifest(manifest, (Path(folder) / manifest).read_bytes())["files"]
        temporary = f"{file_name}.{os.getpid()}.tmp"
        try:
            with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
                for part in (manifest, *sorted(parts)):
                    # Nothing of the machine that wrote it: equal programs make equal archives.
                    with open(os.path.join(folder, part), "rb") as source:
                        member = tarfile.TarInfo(part)
                        member.size = os.fstat(source.fileno()).st_size
                        tar.addfile(member, source)
            os.replace(temporary, file_name)
        except OSError as err:
            raise RelaxishError(f"cannot write {file_name}: {err.strerror}") from None
    return file_name


@dataclass(frozen=True)
class _Linking:
    """How a library is made: by a function of the caller's, or by this machine's linker; an archive has the objects too."""

    fcompile: Any = None
    addons: Any = None
    workspace_dir: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    in_archive: bool = False


def _link(path: str, objects: list[bytes], linker: Callable[..., Any] | None, how: _Linking) -> tuple[bool, list[str]]:
    """Write the library of objects: whether there is one, and the names of objects that are written beside it."""
    if linker is None:
        raise RelaxishError("this module has no object code to export (it runs in the interpreting mode)")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise RelaxishError(f"cannot write {path}: {folder} is not a writable directory")
    support = getattr(linker, "support", list)
    if how.fcompile is not None:
        whole = [*objects, *support()]
        link_with(how.fcompile, path, whole, how.addons or (), how.workspace_dir, **how.options)
        return True, []
    if not how.in_archive:
        _link_here(path, objects, linker)
        return True, []
    names = []
    for number, data in enumerate([*objects, *support()]):
        names.append(f"lib{number}.o")
        Path(folder, names[-1]).write_bytes(data)
    if is_foreign(getattr(linker, "triple", "")):
        return False, names  # who loads the archive links them
    try:
        _link_here(path, objects, linker)
    except RelaxishError as error:
        _log.info("%s holds objects alone: %s", path, error)
        return False, names
    return True, names


def _write_code(
    path: str, objects: list[bytes], linker: Any, devices: Sequence[Any], needed: bool, how: _Linking
) -> tuple[bool, list[str]]:
    """The code of a program and of the host programs of its device modules, as :func:`_link` writes it.

    Host programs are text in the device modules as well, so that where nothing else needs a library, and this machine has
    no linker for itself, there is none.
    """
    codes = [code for code in (getattr(m, "host_code", None) for m in devices) if code is not None]
    if not codes:
        return _link(path, objects, linker, how) if needed else (False, [])
    whole = [*objects, *(code.object_bytes for code in codes), codes[0].table_object]
    chosen = linker or codes[0].linker
    try:
        return _link(path, whole, chosen, how)
    except RelaxishError as error:
        if needed or how.fcompile is not None or is_foreign(chosen.triple):
            raise
        _log.info("%s has no machine code of its host programs: %s", path, error)
        return False, []


def _link_here(path: str, objects: list[bytes], linker: Callable[..., Any]) -> None:
    """Link objects; a library of that name that a process has mapped stays whole for it."""
    folder = os.path.dirname(path) or "."
    temporary = os.path.join(folder, f".{os.getpid()}.{os.path.basename(path)}")
    try:
        linker(temporary, objects)
        os.replace(temporary, path)
    except OSError as err:
        raise RelaxishError(f"cannot write {path}: {err.strerror}") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _suffix(index: int) -> str:
    return f".v{index}" if index else ""


def _all_objects(versions: Sequence[Any]) -> list[bytes]:
    """The objects of all versions, in which no two define the same name."""
    return [
        with_suffix(data, _suffix(index)) if index else data
        for index, version in enumerate(versions)
        for data in version.objects
    ]


def _how(
    fcompile: Callable[..., Any] | str | None,
    addons: Sequence[str] | None,
    workspace_dir: str | None,
    options: Mapping[str, Any],
) -> _Linking:
    if fcompile is not None and not callable(fcompile):
        raise TypeError(f"fcompile is a function (library, files), got {type(fcompile).__name__}")
    if fcompile is None and (addons or options):
        # Options are for a compiler: the one of this machine, unless another is given.
        fcompile = _with_compiler
    return _Linking(fcompile, addons, workspace_dir, dict(options))


def _with_compiler(path: str, files: Sequence[str], options: Sequence[str] = (), cc: str | None = None) -> None:
    """Link files with a C compiler. Raises RelaxishError with its words if that fails."""
    found = cc or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if found is None or shutil.which(found) is None:
        raise RelaxishError(
            f"there is no C compiler {cc or ''} on the path; give export_library(fcompile=...) a linker"
        )
    done = subprocess.run(
        [found, "-shared", "-fPIC", "-o", path, *files, *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RelaxishError(f"linking {path} failed: {done.stderr.strip()}")


def export_executable(
    executable: VMExecutable, file_name: str, fcompile: Callable[..., Any] | str | None = None,
    addons: Sequence[str] | None = None, workspace_dir: str | None = None,
    **options: Any,
) -> str:  # fmt: skip
    """Write an executable; returns the file name. ``fcompile(library, files, **options)`` may link it."""
    how = _how(fcompile, addons, workspace_dir, options)
    if file_name.endswith(".tar") and how.fcompile is None:
        return _in_tar(file_name, lambda path, how: _write_executable(executable, path, how))
    return _write_executable(executable, file_name, how)


def _write_executable(executable: VMExecutable, file_name: str, how: _Linking) -> str:
    if executable.python_kernels:
        raise RelaxishError("an executable of the interpreting mode cannot be exported")
    path = Path(file_name)
    versions = executable.versions or [executable]
    has_code = bool(executable.kernels) and not _only_on_devices(executable)
    own_objects = _all_objects(versions) if has_code else []
    has_library, objects = _write_code(
        file_name, own_objects, executable.linker, executable.device_modules, has_code, how
    )
    has_code = has_code or has_library or bool(objects)
    tensors: dict[str, NDArray] = {}
    constants = _constants(versions, tensors)
    external = [m for m in executable.external_modules if hasattr(m, "to_manifest") or _is_device_module(m)]
    for index, module in enumerate(external):
        if not _is_device_module(module):
            tensors.update({f"x{index}.{name}": tensor for name, tensor in module.tensors().items()})
    weights = path.with_suffix(".safetensors")
    safetensors_file.save(str(weights), tensors)
    devices = _write_devices(path, executable.device_modules, has_code)
    described = [_external_to_json(path, index, m) for index, m in enumerate(external)]
    if not has_library and not devices and not how.in_archive:
        replace_file(path, b"")  # what is loaded is named by this file, though all is in those beside it
    inner = [name for item in described for name in (*item["packages"], item.get("nested")) if name]
    own = [] if how.in_archive and not has_library and not (devices and not has_code) else [path.name]
    parts = [*own, *objects, weights.name, *devices, *inner]
    manifest = {
        "format": "relaxish-executable",
        "version": FORMAT_VERSION,
        "abi": ABI_VERSION,
        "library": path.name if has_library else None,
        "files": describe_files(path.parent, dict.fromkeys(parts)),
        "devices": devices,
        "external": described,
        "weights": weights.name,
        "programs": [_program_to_json(v, i, c) for i, (v, c) in enumerate(zip(versions, constants, strict=True))],
        "system_lib": executable.in_system_lib,
        **({"objects": objects} if objects else {}),
    }
    replace_file(path.with_suffix(".json"), manifest_text(manifest).encode())
    return file_name


def _program_to_json(executable: VMExecutable, index: int, constants: list[Any]) -> dict[str, Any]:
    return {
        "code": executable.requirements.to_json(),
        "suffix": _suffix(index),
        "constant_devices": {str(i): list(place) for i, place in executable.constant_devices.items()},
        "functions": [_function_to_json(f) for f in executable.functions],
        "constants": constants,
        "kernels": [k.to_json() for k in executable.kernels.values()],
        "plans": [p.to_json() for p in executable.plans.values()],
        "metadata": executable.metadata,
    }


def _constants(versions: Sequence[VMExecutable], tensors: dict[str, NDArray]) -> list[list[Any]]:
    """The constants of each version as plain data; arrays go to ``tensors``, equal ones of several versions once."""
    known: dict[Any, str] = {}
    made: list[list[Any]] = []
    for number, version in enumerate(versions):
        items: list[Any] = []
        for i, value in enumerate(version.constants):
            if not isinstance(value, NDArray):
                items.append(constant_to_json(value))
                continue
            name = f"c{i}" if not number else f"v{number}.c{i}"
            if len(versions) > 1:
                digest = hashlib.sha256(value.numpy().tobytes()).digest()
                name = known.setdefault((value.dtype, value.shape, digest), name)
            tensors.setdefault(name, value)
            items.append(["tensor", name])
        made.append(items)
    return made


def export_module(
    module: Module,
    file_name: str,
    fcompile: Callable[..., Any] | str | None = None,
    addons: Sequence[str] | None = None,
    workspace_dir: str | None = None,
    **options: Any,
) -> str:
    """Write a module of kernels; returns the file name. ``fcompile(library, files, **options)`` may link it."""
    how = _how(fcompile, addons, workspace_dir, options)
    if file_name.endswith(".tar") and how.fcompile is None:
        return _in_tar(file_name, lambda path, how: _write_module(module, path, how))
    return _write_module(module, file_name, how)


def _write_module(module: Module, file_name: str, how: _Linking) -> str:
    path = Path(file_name)
    versions = module.versions or [module]
    devices = [m for m in module.imported_modules if _is_device_module(m)]
    has_code = bool(module.objects) or not devices
    own_objects = _all_objects(versions) if has_code else []
    has_library, objects = _write_code(file_name, own_objects, module.linker, devices, has_code, how)
    has_code = has_code or has_library or bool(objects)
    names = _write_devices(path, devices, has_code)
    own = [path.name] if has_library or not has_code else []
    manifest = {
        "format": "relaxish-kernels",
        "version": FORMAT_VERSION,
        "abi": ABI_VERSION,
        "library": path.name if has_library else None,
        "files": describe_files(path.parent, dict.fromkeys([*own, *objects, *names])),
        "devices": names,
        "programs": [
            {
                "code": version.requirements.to_json(),
                "suffix": _suffix(index),
                "kernels": [k.to_json() for k in version.kernels.values()],
                "entry": version.entry_name,
            }
            for index, version in enumerate(versions)
        ],
        "system_lib": module.in_system_lib,
        **({"objects": objects} if objects else {}),
    }
    replace_file(path.with_suffix(".json"), manifest_text(manifest).encode())
    return file_name


def _only_on_devices(executable: VMExecutable) -> bool:
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


def _is_device_module(module: object) -> bool:
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
    if isinstance(module, NestedModule):
        inner = path.with_suffix(f".nested{index}.tar")
        export_executable(module.executable, str(inner))
        described["nested"] = inner.name
    return {**described, "packages": names}


def _function_to_json(info: FunctionInfo) -> dict[str, Any]:
    return {
        "kind": info.kind,
        "name": info.name,
        "params": list(info.param_names),
        "registers": info.num_registers,
        "code": [instruction_to_json(i) for i in info.code],
    }


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
