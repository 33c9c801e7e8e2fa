"""The C++ compiler of this machine, for linking libraries and programs.

>>> create_shared("one.so", ["one.o", "more.cc"], options=["-O2"])  # doctest: +SKIP
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "create_executable",
    "create_shared",
    "create_staticlib",
    "cross_compiler",
    "get_cc",
    "get_target_by_dump_machine",
]

_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


def get_cc() -> str | None:
    """The first compiler that is on the path; ``None`` without any."""
    return next((name for name in _COMPILERS if shutil.which(name)), None)


def create_shared(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None,
    cwd: str | None = None, ccache_env: Any = None,
) -> None:  # fmt: skip
    """Link objects and sources to a shared library. Raises RuntimeError with the compiler's words if that fails."""
    _run(_compiler(cc), ["-shared", "-fPIC", "-o", output, *_listed(objects), *(options or ())], cwd)


create_shared.output_format = "so"  # type: ignore[attr-defined]  # what export_library calls the file


def create_executable(
    output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, cc: str | None = None,
    cwd: str | None = None, ccache_env: Any = None,
) -> None:  # fmt: skip
    """Link objects and sources to a program."""
    _run(_compiler(cc), ["-o", output, *_listed(objects), *(options or ())], cwd)


def create_staticlib(output: str, inputs: str | Sequence[str], ar: str | None = None) -> None:
    """Put objects, and those of archives, into an archive."""
    archive = ar or "ar"
    members = _listed(inputs)
    _run(archive, ["qcs", output, *(path for path in members if not path.endswith(".a"))], None)
    for path in members:
        if path.endswith(".a"):
            script = f"open {output}\naddlib {path}\nsave\nend\n"
            _check(subprocess.run([archive, "-M"], input=script, capture_output=True, text=True, check=False))


def get_target_by_dump_machine(compiler: str | None) -> Callable[[], str | None]:
    """A function that asks a compiler for its target triple; ``None`` if it does not know."""

    def ask() -> str | None:
        if not compiler:
            return None
        try:
            done = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    return ask


class _CrossCompiler:
    """A compile function for ``export_library`` that always uses the same compiler and options."""

    def __init__(
        self, compile_func: str, options: Sequence[str] | None, output_format: str | None,
        get_target_triple: Callable[[], str | None] | None, add_files: Sequence[str] | None,
    ) -> None:  # fmt: skip
        self._compiler = compile_func if isinstance(compile_func, str) else None
        self._function = create_shared if isinstance(compile_func, str) else compile_func
        self._options, self._files = list(options or ()), list(add_files or ())
        self.output_format = output_format or getattr(self._function, "output_format", "so")
        self.get_target_triple = get_target_triple or get_target_by_dump_machine(self._compiler)

    def __call__(
        self, output: str, objects: str | Sequence[str], options: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        if self._compiler is not None:
            kwargs["cc"] = self._compiler
        return self._function(output, [*_listed(objects), *self._files], [*self._options, *(options or ())], **kwargs)


def cross_compiler(
    compile_func: str, options: Sequence[str] | None = None, output_format: str | None = None,
    get_target_triple: Callable[[], str | None] | None = None, add_files: Sequence[str] | None = None,
) -> _CrossCompiler:  # fmt: skip
    """A compile function made of a compiler's name, or of another compile function."""
    return _CrossCompiler(compile_func, options, output_format, get_target_triple, add_files)


def _compiler(cc: str | None) -> str:
    found = cc or get_cc()
    if found is None:
        raise ValueError("there is no C++ compiler on the path")
    return found


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]


def _run(program: str, arguments: Sequence[str], cwd: str | None) -> None:
    _check(subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=cwd))


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise RuntimeError(f"Compilation error:\n{done.stdout}{done.stderr}\nCommand line: {' '.join(done.args)}")
