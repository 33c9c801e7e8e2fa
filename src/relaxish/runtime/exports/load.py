"""Deployment files, read: what :mod:`.export` wrote becomes a program again.

Nothing is trusted before it is checked: the manifest against its schema and checksum, every file against the size and
SHA-256 in the manifest, what the code needs against this machine, and all indices against what they point into. Only
then is the library mapped. Nothing of the program runs before it is called.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...support import config
from ...support.errors import MalformedDataError, MissingFileError, RelaxishError
from ...support.untrusted import malformed
from ..devices.module import DeviceModule
from . import safetensors_file
from ..bytecode.instructions import CallOp, FunctionInfo, GotoOp, IfOp, RetOp, instruction_from_json
from ..devices.package import read_package
from ..arrays.dtype import itemsize
from ..vm.executable import VMExecutable, constant_from_json
from ..kernels.external import load_external
from .linking import link_objects
from ..kernels.kernel import PACKED_SUFFIX, KernelSpec, NativeLibrary
from .manifest import CodeRequirements, check_files, check_requirements, file_name, parse_manifest
from ..kernels.module import Module
from ..arrays.ndarray import NDArray
from .nested import NestedModule
from ..bytecode.plan import ExecutionPlan, Result, ResultTensor
from ..registry import register_func
from .shared_library import SharedLibrary, shared_library
from .system_library import register_symbols
from ...support.sequences import of_kind


__all__ = ["load_module"]


def load_module(path: str | os.PathLike[str], fmt: str = "") -> VMExecutable | Module:
    """Load what ``export_library`` wrote; give the shared object, the manifest or the tar file.

    Raises RelaxishError, before anything is mapped or run, if a file is missing, damaged, changed or of another
    version, or if this machine cannot run the code. Of several versions the best that this CPU can run is taken.
    """
    location = Path(path)
    if not location.exists():
        raise MissingFileError(f"cannot find file {location}: no such file")
    if location.is_symlink():
        location = location.resolve()
    if not location.is_file():
        raise MalformedDataError(f"cannot load {location}: it is not a regular file")
    with malformed(f"cannot load {location}"):
        if location.suffix != ".json" and tarfile.is_tarfile(location):
            return _load_tar(location)
        return _load_checked(location)


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest_path = path.with_suffix(".json")
    if manifest_path.exists() and not manifest_path.is_file():
        raise MalformedDataError(f"cannot load {path}: its manifest {manifest_path} is not a regular file")
    try:
        data = manifest_path.read_bytes()
    except FileNotFoundError:
        raise RelaxishError(f"cannot load {path}: its manifest {manifest_path} is missing") from None
    except OSError as err:
        raise RelaxishError(f"cannot load {path}: the manifest {manifest_path} is unreadable ({err})") from None
    try:
        return parse_manifest(str(manifest_path), data)
    except MalformedDataError as err:
        raise MalformedDataError(f"cannot load {path}: {err}") from None


def _load_checked(location: Path) -> VMExecutable | Module:
    manifest = _read_manifest(location)
    folder = location.parent
    check_files(folder, manifest["files"])
    programs = manifest["programs"]
    needs = [CodeRequirements.from_json(p["code"]) for p in programs]
    chosen = check_requirements(str(location), needs)
    program = programs[chosen]
    kernels = {k["name"]: _kernel_spec(k, location) for k in program["kernels"]}
    devices = [_published(read_package(folder / name)) for name in manifest["devices"]]
    library: NativeLibrary | None = None
    if manifest["library"] or manifest.get("objects"):
        shared = _mapped(folder, manifest)
        library = _Suffixed(shared, program["suffix"]) if program["suffix"] else shared
        _check_symbols(location, library, set(kernels) - {n for d in devices for n in d.kernels})
    for module in devices:
        module.host_library = library
        if config.HOST_PROGRAMS.value == "native":
            module.use_native_host()
    loaded: VMExecutable | Module
    if manifest["format"] == "relaxish-kernels":
        loaded = Module(kernels, library, entry_name=program["entry"])
        for module in devices:
            loaded.import_module(module)
    else:
        weights = safetensors_file.load(str(folder / manifest["weights"]))
        loaded = _executable(location, program, kernels, weights)
        loaded.libraries = [library] if library is not None else []
        loaded.device_modules = list(devices)
        for index, description in enumerate(manifest["external"]):
            loaded.external_modules.append(_external(folder, index, description, weights))
    loaded.requirements = needs[chosen]
    if manifest["system_lib"]:
        register_symbols(loaded)
    return loaded


def _mapped(folder: Path, manifest: Mapping[str, Any]) -> SharedLibrary:
    """The library of a program; where there are only objects, what this machine's linker makes of them."""
    name = manifest["library"]
    if name:
        return shared_library(str((folder / name).resolve()), manifest["files"][name]["sha256"])
    names = manifest["objects"]
    digest = hashlib.sha256("".join(manifest["files"][n]["sha256"] for n in names).encode()).hexdigest()
    with tempfile.TemporaryDirectory(prefix="relaxish-link-") as place:
        path = os.path.join(place, "linked.so")
        link_objects(path, [(folder / n).read_bytes() for n in names])
        return shared_library(path, digest)


class _Suffixed:
    """One version of a library that holds several: its symbols end in a suffix."""

    def __init__(self, library: SharedLibrary, suffix: str) -> None:
        self._library = library
        self._suffix = suffix
        self.path = library.path

    def address(self, symbol: str) -> int:
        """The address of an exported symbol; KeyError when there is none."""
        return self._library.address(symbol + self._suffix)


def _check_symbols(location: Path, library: NativeLibrary, names: set[str]) -> None:
    for name in names:
        try:
            library.address(name + PACKED_SUFFIX)
        except KeyError:
            raise MalformedDataError(f"cannot load {location}: its library has no kernel {name}") from None


def _executable(
    location: Path, program: dict[str, Any], kernels: dict[str, KernelSpec], weights: Mapping[str, NDArray]
) -> VMExecutable:
    constants = [_constant(location, data, weights) for data in program["constants"]]
    functions = [_function_from_json(f) for f in program["functions"]]
    for function in functions:
        _check_function(location, function, len(constants), functions, kernels)
    plans = [ExecutionPlan.from_json(p) for p in program["plans"]]
    for plan in plans:
        _check_plan(location, plan, constants, kernels)
    loaded = VMExecutable(
        functions, constants, kernels=kernels, plans={p.name: p for p in plans}, metadata=program["metadata"]
    )
    loaded.constant_devices = {int(i): (place[0], place[1]) for i, place in program["constant_devices"].items()}
    return loaded


def _constant(location: Path, data: Sequence[Any], weights: Mapping[str, NDArray]) -> Any:
    if data[0] != "tensor":
        return constant_from_json(data)
    if data[1] not in weights:
        raise MalformedDataError(f"cannot load {location}: the weights have no tensor {data[1]}")
    return weights[data[1]]


def _function_from_json(data: dict[str, Any]) -> FunctionInfo:
    code = [instruction_from_json(i) for i in data["code"]]
    return FunctionInfo(data["kind"], data["name"], tuple(data["params"]), data["registers"], code)


def _kernel_spec(data: dict[str, Any], location: Path) -> KernelSpec:
    spec = KernelSpec.from_json(data)
    for var in spec.shape_vars:
        if var.param_index >= len(spec.params) or var.dim_index >= len(spec.params[var.param_index].shape):
            raise MalformedDataError(
                f"cannot load {location}: kernel {spec.name} reads the size {var.name} of no argument"
            )
    for index in spec.written or ():
        if index >= len(spec.params) or spec.params[index].kind != "tensor":
            raise MalformedDataError(f"cannot load {location}: kernel {spec.name} writes argument {index}, no tensor")
    return spec


# ---- whether what points somewhere points to something


def _check_function(
    location: Path,
    function: FunctionInfo,
    constants: int,
    functions: Sequence[FunctionInfo],
    kernels: Mapping[str, KernelSpec],
) -> None:
    """Raise MalformedDataError for a register, constant, function or jump target that is not there."""

    def require(fits: bool, what: str) -> None:
        if not fits:
            raise MalformedDataError(f"cannot load {location}: function {function.name}: {what}")

    if not function.is_vm:
        require(not function.code, "a function of another kind has bytecode")
        require(function.kind != "kernel" or function.name in kernels, "there is no kernel of this name")
        return
    registers, size = function.num_registers, len(function.code)
    require(len(function.param_names) <= registers, "it has more parameters than registers")
    require(size > 0 and isinstance(function.code[-1], RetOp | GotoOp), "it does not end in a return")
    limits = {"c": constants, "f": len(functions)}
    for at, op in enumerate(function.code):
        match op:
            case CallOp():
                require(
                    -2 < op.dst < registers and op.func < len(functions), f"instruction {at} names what is not there"
                )
                for arg in op.args:
                    low, high = (-2, registers) if arg.kind == "r" else (0, limits.get(arg.kind, 1 << 63))
                    require(arg.kind == "i" or low <= arg.value < high, f"instruction {at} names what is not there")
            case RetOp():
                require(-1 <= op.reg < registers, f"instruction {at} returns what is not there")
            case _:
                offset = op.offset if isinstance(op, GotoOp) else op.false_offset
                require(0 <= at + offset < size, f"instruction {at} jumps out of the function")
                require(
                    not isinstance(op, IfOp) or 0 <= op.cond < registers, f"instruction {at} reads what is not there"
                )


def _check_plan(
    location: Path, plan: ExecutionPlan, constants: Sequence[Any], kernels: Mapping[str, KernelSpec]
) -> None:
    """Raise MalformedDataError for a slot, argument or kernel that is not there, or memory beyond a slot's end."""

    def require(fits: bool, what: str) -> None:
        if not fits:
            raise MalformedDataError(f"cannot load {location}: plan of {plan.name}: {what}")

    sizes: list[int] = []
    for i, slot in enumerate(plan.slots):
        if slot.kind == "input":
            require(slot.index < len(plan.inputs), f"slot {i} is an argument that is not there")
            spec = plan.inputs[slot.index]
            require(spec is not None, f"slot {i} is an argument that is no tensor")
            assert spec is not None
            sizes.append(_nbytes(spec.shape, spec.dtype))
        elif slot.kind == "constant":
            fits = slot.index < len(constants) and isinstance(constants[slot.index], NDArray)
            require(fits, f"slot {i} is a constant that is not there")
            sizes.append(constants[slot.index].nbytes)
        else:
            sizes.append(slot.nbytes)
    for call in plan.calls:
        require(call.kernel in kernels, f"there is no kernel {call.kernel}")
        spec_of = kernels[call.kernel]
        count = len(spec_of.params) + len(spec_of.shape_vars)
        require(len(call.operands) == count, f"{call.kernel} takes {count} operands, not {len(call.operands)}")
        for position, operand in enumerate(call.operands):
            if operand.kind == "ptr":
                known = spec_of.params[position].shape if position < len(spec_of.params) else ()
                fixed = list(of_kind(known, int))
                size = _nbytes(fixed, spec_of.params[position].dtype) if len(fixed) == len(known) and known else 0
                fits = operand.slot < len(sizes) and operand.offset + size <= sizes[operand.slot]
                require(fits, f"an operand of {call.kernel} lies beyond its slot")
                own = position not in (spec_of.written or ()) or plan.slots[operand.slot].kind in (
                    "output",
                    "workspace",
                )
                require(own, f"{call.kernel} writes an argument or a constant of the function")
    _check_result(plan.result, sizes, plan, require)


def _check_result(
    result: Result, sizes: Sequence[int], plan: ExecutionPlan, require: Callable[[bool, str], None]
) -> None:
    match result:
        case tuple():
            for item in result:
                _check_result(item, sizes, plan, require)
        case ResultTensor():
            require(result.slot < len(sizes), "a result lies in a slot that is not there")
            require(plan.slots[result.slot].kind != "workspace", "a result lies in the workspace")
            end = result.offset + _nbytes(result.shape, result.dtype)
            require(end <= sizes[result.slot], "a result lies beyond its slot")


def _nbytes(shape: Sequence[int], dtype: str) -> int:
    size = itemsize(dtype)
    for extent in shape:
        size *= extent
    return size


# ---- parts that are modules of their own


def _external(folder: Path, index: int, data: dict[str, Any], weights: Mapping[str, NDArray]) -> Any:
    packages = [_published(read_package(folder / name)) for name in data["packages"]]
    if "programs" not in data:
        return packages[0]
    if data.get("nested"):
        symbols = {symbol: _inner_name(folder, program) for symbol, program in data["programs"].items()}
        inner = load_module(folder / data["nested"])
        if not isinstance(inner, VMExecutable) or not set(symbols.values()) <= set(inner.function_names):
            raise MalformedDataError(f"cannot load {folder / data['nested']}: it lacks functions that are called")
        return NestedModule(data.get("place", ""), inner, symbols, data.get("runs_on") or [(1, 0)])
    return load_external(data, {name: weights[f"x{index}.{name}"] for name in data["constants"]}, packages)


def _inner_name(folder: Path, program: object) -> str:
    name = program.get("function") if isinstance(program, dict) else None
    if not isinstance(name, str):
        raise MalformedDataError(f"a program in {folder} does not say which function it calls")
    return name


def _published(module: DeviceModule) -> DeviceModule:
    """A device module; if it has kernels only, no host programs, others call them as packed functions."""
    if not module.programs:
        for name in module.kernel_names:
            register_func(name, module.get_function(name), override=True)
    return module


# ---- archives

_MOST_MEMBERS = 1000


def _load_tar(path: Path) -> VMExecutable | Module:
    """Load an archive: its one manifest says which members there are, and no others may be there."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = _members(path, tar)
            manifests = [m for m in members if m.name.endswith(".json")]
            if len(manifests) != 1:
                raise MalformedDataError(f"cannot load {path}: it does not contain exactly one manifest")
            source = tar.extractfile(manifests[0])
            assert source is not None
            data = source.read(manifests[0].size)
            if len(data) != manifests[0].size:
                raise MalformedDataError(f"cannot load {path}: the archive is truncated")
            manifest = parse_manifest(f"{path}:{manifests[0].name}", data)
            _check_members(path, members, manifest, manifests[0])
            folder = tempfile.TemporaryDirectory(prefix="relaxish-load-")
            for member in members:
                part = tar.extractfile(member)
                assert part is not None
                with open(os.path.join(folder.name, member.name), "xb") as out:
                    shutil.copyfileobj(part, out, 1 << 20)
    except (tarfile.TarError, OSError, EOFError) as err:
        raise MalformedDataError(f"cannot load {path}: the archive is damaged ({err})") from None
    loaded = _load_checked(Path(folder.name) / manifests[0].name)
    # Where a file that is mapped cannot be deleted, the folder stays with what was loaded from it.
    weakref.finalize(loaded, folder.cleanup)
    return loaded


def _members(path: Path, tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """The members, all of them files with plain names. Raises MalformedDataError for links, folders and devices."""
    members: list[tarfile.TarInfo] = []
    for member in tar:
        file_name(member.name, f"cannot load {path}: a member")
        if not member.isreg() or member.issparse() or stat.S_IFMT(member.mode):
            raise MalformedDataError(f"cannot load {path}: the member {member.name} is not a regular file")
        if any(member.name == m.name for m in members) or len(members) >= _MOST_MEMBERS:
            raise MalformedDataError(f"cannot load {path}: the member {member.name} is one too many")
        members.append(member)
    return members


def _check_members(
    path: Path, members: Sequence[tarfile.TarInfo], manifest: Mapping[str, Any], own: tarfile.TarInfo
) -> None:
    """Compare the members' sizes with the manifest, before anything is unpacked."""
    files = manifest["files"]
    for member in members:
        if member is own:
            continue
        if member.name not in files:
            raise MalformedDataError(f"cannot load {path}: the manifest knows no member {member.name}")
        if member.size != files[member.name]["bytes"]:
            raise MalformedDataError(
                f"cannot load {path}: {member.name} has {member.size} bytes instead of {files[member.name]['bytes']}: "
                "the archive is truncated or damaged"
            )
    missing = set(files) - {m.name for m in members}
    if missing:
        raise MalformedDataError(f"cannot load {path}: {min(missing)} is missing from the archive")
