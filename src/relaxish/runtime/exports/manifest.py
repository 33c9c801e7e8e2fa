"""Manifest of an exported file: its schema, its checksum, and the checks of the files it names.

A manifest is data: it is parsed, compared with the schema below, and never executed. It carries a SHA-256 of itself and
the sizes and SHA-256 of every file that belongs to it, so that a truncated, changed or mixed-up export is one error
before any of it is mapped. It also says what the machine code needs (triple, CPU features, calling convention).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ...support.errors import MalformedDataError, RelaxishError
from ...support.host_cpu import host_triple, missing_features
from ...support.threads import available_cores
from ...support.untrusted import (
    Check,
    anything,
    boolean,
    integer,
    list_of,
    mapping_of,
    number,
    one_of,
    optional,
    parse_json,
    record,
    text,
    tuple_of,
)
from ..arrays.dtype import dlpack_code

__all__ = [
    "ABI_VERSION", "FORMAT_VERSION", "KERNEL_SPEC", "PIECE_BYTES", "CodeRequirements", "check_files", "check_requirements", "describe_files",
    "file_name", "manifest_text", "parse_manifest",
]  # fmt: skip

FORMAT_VERSION = 2
#: How kernels and entries are called; counts up whenever machine code made before can no longer be called.
ABI_VERSION = 1
_ZERO = "0" * 64
_MAX_MANIFEST = 1 << 28
_PIECE = 1 << 20
PIECE_BYTES = 32 << 20


@dataclass(frozen=True)
class CodeRequirements:
    """Requirements of machine code: the target as text, the triple, and the CPU features it may use."""

    target: str = ""
    triple: str = ""
    features: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"target": self.target, "triple": self.triple, "features": list(self.features)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CodeRequirements:
        """Inverse of :meth:`to_json`."""
        return CodeRequirements(data["target"], data["triple"], tuple(data["features"]))

    def problem(self) -> str:
        """Why this machine cannot run the code; empty if it can."""
        here = host_triple()
        if self.triple and _family(self.triple) != _family(here):
            return f"it was compiled for {self.triple}, and this machine is {here}"
        missing = missing_features(self.features)
        if missing:
            return f"it needs CPU features that this machine lacks: {', '.join(missing)} (compiled for {self.target})"
        return ""


def _family(triple: str) -> tuple[str, str]:
    arch, _, rest = triple.partition("-")
    system = next((name for name in ("linux", "darwin", "windows") if name in rest), rest)
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch), system


def check_requirements(where: str, requirements: Iterable[CodeRequirements]) -> int:
    """The index of the last requirement this machine meets (the best version comes last). Raises RelaxishError."""
    problems = [r.problem() for r in requirements]
    fitting = [i for i, problem in enumerate(problems) if not problem]
    if not fitting:
        raise RelaxishError(f"cannot load {where}: " + (problems[0] if problems else "it has no program"))
    return fitting[-1]


# ---- the schema


def _dtype(value: object, where: str) -> str:
    found: str = text("[a-zA-Z0-9_\\[\\]]{0,64}")(value, where)
    try:
        if found:
            dlpack_code(found)
    except ValueError as err:
        raise MalformedDataError(f"{where}: {err}") from None
    return found


def file_name(value: object, where: str) -> str:
    """The name of a file beside the manifest: no folder, no link to elsewhere."""
    found: str = text(r"[^/\\\0]{1,255}")(value, where)
    if found in (".", ".."):
        raise MalformedDataError(f"{where}: {found!r} is not the name of a file")
    return found


def _value(value: Any, where: str) -> list[Any]:
    """A constant that is not a tensor: ``[kind, value]``."""
    checks: dict[str, Check] = {
        "shape": list_of(integer()), "tuple": list_of(_value), "string": text(longest=1 << 24), "bool": boolean,
        "null": one_of(None), "int": integer(), "float": number, "tensor": _NAME,
    }  # fmt: skip
    kind, _ = tuple_of(one_of(*checks), anything)(value, where)
    return [kind, checks[kind](value[1], where)]


def _instruction(value: object, where: str) -> list[Any]:
    kind = value[0] if isinstance(value, list) and value else None
    found = _INSTRUCTIONS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise MalformedDataError(f"{where}: not an instruction")
    return found(value, where)


def _call(value: Any, where: str) -> list[Any]:
    """``["call", dst, func, args]``, and what the result is declared to be, if anything."""
    parts = (one_of("call"), _REGISTER, _INDEX, list_of(_ARG))
    return tuple_of(*parts, _declared)(value, where) if len(value) > len(parts) else tuple_of(*parts)(value, where)


def _declared(value: object, where: str) -> list[Any]:
    """What a function that is not compiled here is declared to give."""
    kind = value[0] if isinstance(value, list) and value else None
    found = _DECLARED.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise MalformedDataError(f"{where}: not a declaration of a result")
    return found(value, where)


def _result(value: Any, where: str) -> dict[str, Any]:
    key = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else None
    if key == "tuple":
        return {"tuple": list_of(_result)(value[key], where)}
    if key == "tensor":
        return {"tensor": tuple_of(_INDEX, _SIZE, _SHAPE, _dtype)(value[key], where)}
    if key == "value":
        kind, given = tuple_of(one_of("shape", "prim", "string", "null"), anything)(value[key], where)
        inner: dict[str, Check] = {
            "shape": list_of(integer()), "prim": _scalar, "string": text(), "null": one_of(None),
        }  # fmt: skip
        return {"value": [kind, inner[kind](given, where)]}
    raise MalformedDataError(f"{where}: expected one of tuple, tensor, value")


def _scalar(value: object, where: str) -> float:
    return value if isinstance(value, bool) else number(value, where)


def _dim(value: object, where: str) -> int | str:
    return text(longest=1 << 12)(value, where) if isinstance(value, str) else _SIZE(value, where)


_NAME = text(longest=1 << 12)
_INDEX = integer(0, 1 << 31)
_SIZE = integer(0, 1 << 48)
_SHAPE = list_of(_SIZE, 64)
_REGISTER = integer(-2, 1 << 24)
_ARG = tuple_of(one_of("r", "i", "c", "f"), integer())
_INSTRUCTIONS: dict[str, Check] = {
    "call": _call,
    "ret": tuple_of(one_of("ret"), _REGISTER),
    "goto": tuple_of(one_of("goto"), integer()),
    "if": tuple_of(one_of("if"), _REGISTER, integer()),
}
_RANK = integer(-1, 64)
_DECLARED: dict[str, Check] = {
    "tensor": tuple_of(one_of("tensor"), _dtype, _RANK, optional(list_of(optional(_SIZE), 64))),
    "shape": tuple_of(one_of("shape"), _RANK),
    "tuple": tuple_of(one_of("tuple"), list_of(optional(_declared))),
}
_FUNCTION = record(
    {
        "kind": one_of("vm", "vmtir", "kernel", "packed"),
        "name": _NAME,
        "params": list_of(_NAME),
        "registers": integer(0, 1 << 24),
        "code": list_of(_instruction),
    }
)
KERNEL_SPEC = record(
    {
        "name": _NAME,
        "params": list_of(tuple_of(one_of("tensor", "scalar"), _dtype, list_of(_dim, 64))),
        "shape_vars": list_of(tuple_of(_NAME, _INDEX, _INDEX)),
    },
    {"result": _dtype, "written": list_of(_INDEX, 1 << 16)},
)
_PLAN = record(
    {
        "name": _NAME,
        "symbol": _NAME,
        "inputs": list_of(optional(tuple_of(_NAME, _SHAPE, _dtype))),
        "slots": list_of(tuple_of(one_of("input", "constant", "output", "workspace"), _INDEX, _SIZE)),
        "calls": list_of(
            tuple_of(_NAME, list_of(tuple_of(one_of("ptr", "int", "float"), _INDEX, _SIZE, number)))
        ),
        "result": _result,
    }
)  # fmt: skip
_CODE = record({"target": _NAME, "triple": _NAME, "features": list_of(_NAME, 1000)})
_EXTERNAL = record(
    {"packages": list_of(file_name)},
    {
        "type_key": _NAME,
        "programs": mapping_of(anything),
        "constants": list_of(_NAME),
        "place": _NAME,
        "runs_on": list_of(tuple_of(_INDEX, _INDEX), 1000),
        "nested": file_name,
    },
)
_SHA256 = text("[0-9a-f]{64}")
_FILES = mapping_of(record({"bytes": _SIZE, "sha256": _SHA256}, {"pieces": list_of(_SHA256)}), file_name)
_HEAD: dict[str, Check] = {
    "sha256": _SHA256,
    "format": one_of("relaxish-executable", "relaxish-kernels"),
    "version": one_of(FORMAT_VERSION),
    "abi": one_of(ABI_VERSION),
    "library": optional(file_name),
    "files": _FILES,
    "devices": list_of(file_name),
    "system_lib": boolean,
}
# What an archive was linked from, or is to be linked from where it is loaded.
_OBJECTS: dict[str, Check] = {"objects": list_of(file_name, 1000)}
_PROGRAM: dict[str, Check] = {"code": _CODE, "suffix": text(r"[\w.$]{0,64}"), "kernels": list_of(KERNEL_SPEC)}
_EXECUTABLE = record(
    {
        **_HEAD,
        "weights": file_name,
        "external": list_of(_EXTERNAL),
        "programs": list_of(
            record(
                {
                    **_PROGRAM,
                    "functions": list_of(_FUNCTION),
                    "constants": list_of(_value),
                    "constant_devices": mapping_of(tuple_of(_INDEX, _INDEX), text("[0-9]{1,9}")),
                    "plans": list_of(_PLAN),
                    "metadata": mapping_of(anything),
                }
            )
        ),
    },
    _OBJECTS,
)
_KERNELS = record({**_HEAD, "programs": list_of(record({**_PROGRAM, "entry": optional(_NAME)}))}, _OBJECTS)


# ---- the text


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """A manifest as text, its checksum filled in."""
    blank = json.dumps({"sha256": _ZERO, **manifest})
    return blank.replace(_ZERO, hashlib.sha256(blank.encode()).hexdigest(), 1)


def parse_manifest(where: str, data: bytes) -> dict[str, Any]:
    """The manifest in a file's contents. Raises MalformedDataError if it is damaged, changed or of another version."""
    manifest = parse_json(data, f"the manifest {where} is damaged", max_depth=100, max_bytes=_MAX_MANIFEST)
    if not isinstance(manifest, dict) or not str(manifest.get("format", "")).startswith("relaxish-"):
        raise MalformedDataError(f"{where} is not a relaxish manifest")
    for key, mine in (("version", FORMAT_VERSION), ("abi", ABI_VERSION)):
        if type(manifest.get(key)) is int and manifest[key] != mine:
            raise MalformedDataError(
                f"manifest {where}: {key} {manifest[key]} is not supported (this is {key} {mine}); "
                "build and export the model again"
            )
    digest = manifest.get("sha256")
    if (
        not isinstance(digest, str)
        or hashlib.sha256(data.replace(digest.encode(), _ZERO.encode(), 1)).hexdigest() != digest
    ):
        raise MalformedDataError(
            f"the manifest {where} is damaged: it is not what was exported (its checksum does not fit)"
        )
    schema = _EXECUTABLE if manifest["format"] == "relaxish-executable" else _KERNELS
    checked: dict[str, Any] = schema(manifest, f"manifest {where}")
    used = [checked["library"], checked.get("weights"), *checked["devices"], *checked.get("objects", ())]
    used += [name for item in checked.get("external", ()) for name in (*item["packages"], item.get("nested"))]
    for name in used:
        if name is not None and name not in checked["files"]:
            raise MalformedDataError(f"manifest {where}: {name} is used, but not among its files")
    return checked


# ---- files


def _open(path: Path) -> BinaryIO:
    """A regular file, opened. Raises MalformedDataError for links and others, RelaxishError if it is unreadable."""
    try:
        # Without O_NONBLOCK the opening of a named pipe waits for somebody to write to it.
        flags = ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK")
        descriptor = os.open(path, sum((getattr(os, name, 0) for name in flags), os.O_RDONLY))
    except FileNotFoundError:
        raise RelaxishError(f"{path} is missing") from None
    except OSError as err:
        if path.is_symlink():
            raise MalformedDataError(f"{path} is a symbolic link; the files of an export stand beside it") from None
        raise RelaxishError(f"cannot read {path}: {err.strerror}") from None
    file = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise MalformedDataError(f"{path} is not a regular file")
    return file


def _digests(file: BinaryIO, start: int, end: int, *digests: Any) -> None:
    """Put the bytes of a part of a file into digests; positions are given, so that threads can share the file."""
    while start < end:
        piece = os.pread(file.fileno(), min(_PIECE, end - start), start)
        if not piece:
            return
        start += len(piece)
        for digest in digests:
            digest.update(piece)


def _piece_digest(file: BinaryIO, index: int, size: int) -> str:
    digest = hashlib.sha256()
    _digests(file, index * PIECE_BYTES, min(size, (index + 1) * PIECE_BYTES), digest)
    return digest.hexdigest()


def describe_files(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Sizes and checksums of files, as a manifest carries them.

    A large file also has the checksums of its pieces of ``PIECE_BYTES``, so that loading can check them side by side.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        with _open(folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            whole, pieces = hashlib.sha256(), []
            for start in range(0, size, PIECE_BYTES):
                piece = hashlib.sha256()
                _digests(file, start, min(size, start + PIECE_BYTES), whole, piece)
                pieces.append(piece.hexdigest())
        found[name] = {"bytes": size, "sha256": whole.hexdigest()}
        if len(pieces) > 1:
            found[name]["pieces"] = pieces
    return found


def check_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare files with what the manifest says of them. Raises RelaxishError for the first that differs."""
    with contextlib.ExitStack() as stack:
        jobs: list[tuple[str, BinaryIO, int]] = []
        for name, entry in files.items():
            path, expected = folder / name, entry["bytes"]
            file = stack.enter_context(_open(path))
            size = os.fstat(file.fileno()).st_size
            if size != expected:
                what = "truncated or damaged" if size < expected else "damaged"
                raise MalformedDataError(f"{path} is {what}: it has {size} bytes instead of {expected}")
            count = len(entry.get("pieces", (None,)))
            if count != max(1, -(-size // PIECE_BYTES)):
                raise MalformedDataError(f"{path}: the manifest has {count} checksums for {size} bytes")
            jobs += [(name, file, index) for index in range(count)]

        def fits(job: tuple[str, BinaryIO, int]) -> bool:
            name, file, index = job
            wanted = files[name].get("pieces", (files[name]["sha256"],))[index]
            return _piece_digest(file, index, files[name]["bytes"]) == wanted

        if len(jobs) > 1 and sum(entry["bytes"] for entry in files.values()) > 16 * _PIECE:
            with ThreadPoolExecutor(min(len(jobs), available_cores(), 16)) as pool:
                verdicts = list(pool.map(fits, jobs))
        else:
            verdicts = [fits(job) for job in jobs]
        for (name, _, _), good in zip(jobs, verdicts, strict=True):
            if not good:
                raise MalformedDataError(
                    f"{folder / name} is damaged or was changed: its SHA-256 is not that of the manifest"
                )
