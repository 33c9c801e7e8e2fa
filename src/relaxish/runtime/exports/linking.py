"""Objects to shared libraries: by the linkers of this machine, for it and for others, or by a function of the caller's.

A program for another machine needs a linker that knows that machine: ``<triple>-gcc``, ``<triple>-ld``, ``ld.lld``, or
what ``export_library(fcompile=...)`` is given. Without any, ``.tar`` holds the objects, and the other machine links them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...support.errors import RelaxishError
from ...support.host_cpu import host_triple

__all__ = ["ForeignLibrary", "Linker", "UnlinkedLibrary", "is_foreign", "link_objects", "link_with"]


def _arch(triple: str) -> str:
    arch = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)


def is_foreign(triple: str) -> bool:
    """Whether a triple is of another architecture than this machine's."""
    return bool(triple) and _arch(triple) != _arch(host_triple())


class Linker:
    """Linker of a program's objects for one target triple, with the support objects of every library."""

    def __init__(
        self,
        triple: str,
        support: Callable[[], Sequence[bytes]],
        link: Callable[[str, Sequence[bytes]], None] | None = None,
    ) -> None:
        self.triple = triple
        self.support = support
        self._link = link

    def __call__(self, path: str, objects: Sequence[bytes]) -> None:
        """Write a shared library. Raises RelaxishError if there is no linker, or it fails."""
        if self._link is not None:
            self._link(path, objects)
        else:
            link_objects(path, [*objects, *self.support()], self.triple)


class ForeignLibrary:
    """Machine code of another machine: it can be exported, and every attempt to call it is an error that says so."""

    def __init__(self, triple: str) -> None:
        self.triple = triple

    def address(self, symbol: str) -> int:
        """Raises RelaxishError."""
        raise RelaxishError(
            f"{symbol.removesuffix('__packed')} was compiled for {self.triple}, and this machine is {host_triple()}: "
            "export it with export_library, and load it there"
        )


class UnlinkedLibrary:
    """Machine code that calls functions which this process does not have: it can be exported and linked with them."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def address(self, symbol: str) -> int:
        """Raises RelaxishError."""
        raise RelaxishError(
            f"{symbol.removesuffix('__packed')} cannot be called here, the linker says: {self.missing}; load a library "
            "that has them (ctypes.CDLL with RTLD_GLOBAL) before the build, or export the module and link it with one"
        )


def _written(folder: str, objects: Sequence[bytes]) -> list[str]:
    names = []
    for i, data in enumerate(objects):
        names.append(os.path.join(folder, f"lib{i}.o"))
        Path(names[-1]).write_bytes(data)
    return names


def link_objects(path: str | Path, objects: Sequence[bytes], triple: str = "") -> None:
    """Write a shared library that needs nothing but the C library.

    Raises RelaxishError if there is no linker for the triple (by default this machine's), or if it fails.
    """
    foreign = is_foreign(triple)
    said = ""
    with tempfile.TemporaryDirectory(prefix="relaxish_link_") as folder:
        names = _written(folder, objects)
        for command in _foreign_commands(str(path), names, triple) if foreign else _commands(str(path), names):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            except OSError:
                continue
            if done.returncode == 0:
                return
            said = done.stderr.strip()
            if not foreign:
                raise RelaxishError(f"linking {path} failed: {said}")
    if foreign:
        raise RelaxishError(
            f"no linker for {triple} was found{f' that works ({said})' if said else ''}: give one to "
            f'export_library(fcompile=relaxish.contrib.cc.cross_compiler("{_usual(triple)}-gcc")), or export to a .tar file, '
            "which holds the objects"
        )
    raise RelaxishError("no linker was found: install a C compiler, binutils, or `pip install ziglang`")


def _usual(triple: str) -> str:
    """The prefix of cross tools: three parts, without a vendor."""
    parts = triple.split("-")
    return "-".join([parts[0], *parts[2:]]) if len(parts) == 4 else triple


def _commands(path: str, names: list[str]) -> list[list[str]]:
    commands = []
    if shutil.which("ld"):
        commands.append(["ld", "-shared", "-o", path, *names])
    for compiler in ("cc", "gcc", "clang"):
        if shutil.which(compiler):
            commands.append([compiler, "-shared", "-o", path, *names, "-lm", "-lpthread"])
    return [*commands, *_zig(path, names)]


def _foreign_commands(path: str, names: list[str], triple: str) -> list[list[str]]:
    commands = []
    for prefix in dict.fromkeys((triple, _usual(triple))):
        for tool in (f"{prefix}-gcc", f"{prefix}-ld"):
            if shutil.which(tool):
                commands.append([tool, "-shared", "-o", path, *names])
    if shutil.which("ld.lld") and "linux" in triple:
        commands.append(["ld.lld", "-shared", "-o", path, *names])
    return [*commands, *(_zig(path, names) if "linux" in triple else [])]


def _zig(path: str, names: list[str]) -> list[list[str]]:
    try:
        import ziglang  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return []
    return [[os.path.join(os.path.dirname(ziglang.__file__), "zig"), "ld.lld", "-shared", "-o", path, *names]]


def link_with(
    fcompile: Callable[..., Any],
    path: str,
    objects: Sequence[bytes],
    addons: Sequence[Any] = (),
    workspace_dir: str | None = None,
    **options: Any,
) -> None:
    """Let a function of the caller's write the library: ``fcompile(path, files, **options)``, as the field calls it.

    ``addons`` are further files for it; the objects are written to ``workspace_dir``, or to a temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix="relaxish_link_") as temporary:
        folder = os.fspath(workspace_dir) if workspace_dir else temporary
        try:
            os.makedirs(folder, exist_ok=True)
            files = [*_written(folder, objects), *(os.fspath(a) for a in addons)]
        except OSError as err:
            raise RelaxishError(f"cannot write objects to {folder}: {err.strerror}") from None
        fcompile(path, files, **options)
    if not os.path.isfile(path):
        raise RelaxishError(f"fcompile was to write {path}, and did not")
