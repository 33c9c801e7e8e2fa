"""Scripts written for Apache TVM v0.20, run as they are: ``python -m relaxish.compat script.py [arguments]``.

For one process ``tvm`` and all modules below it are names of relaxish's: ``import tvm``, ``import tvm.relax.op as op``,
``from tvm.script import ir as I`` give the very modules that ``import relaxish...`` gives, so that both spellings may be
mixed. Nothing is written to disk, and no other process sees the names. See docs/coming-from-tvm.md.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from .support import entry_points
from .support.errors import RelaxishError

__all__ = ["API_VERSION", "install", "installed", "main", "uninstall"]

API_VERSION = "0.20.0"
"""The version whose names and semantics these are: ``tvm.__version__`` of scripts that ask."""
_NAME = "tvm"
_REAL = "relaxish"
_USAGE = (
    "usage: python -m relaxish.compat script.py [arguments]\n       python -m relaxish.compat -m module [arguments]"
)


class _Facade(ModuleType):
    """The package under its other name: the same attributes, but the version of the API."""

    def __init__(self) -> None:
        super().__init__(_NAME, sys.modules[_REAL].__doc__)
        self.__version__ = API_VERSION
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(_NAME, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(_REAL), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(importlib.import_module(_REAL))})


def install() -> None:
    """Make ``tvm`` a name of this package in this process, also where the real one is installed.

    Raises RelaxishError if the real one has been imported already.
    """
    present = sys.modules.get(_NAME)
    if isinstance(present, _Facade):
        return
    if present is not None:
        raise RelaxishError(
            f"{_NAME} has been imported already, from {getattr(present, '__file__', 'elsewhere')}: "
            "call relaxish.compat.install() before the first import of it"
        )
    entry_points.alias_package(_NAME, _REAL)
    sys.modules[_NAME] = _Facade()


def uninstall() -> None:
    """Take the name back: later imports of ``tvm`` are those of the installed package, if there is one."""
    if not isinstance(sys.modules.get(_NAME), _Facade):
        return
    entry_points.alias_package(_NAME, None)
    for name in [n for n in sys.modules if n == _NAME or n.startswith(f"{_NAME}.")]:
        del sys.modules[name]


@contextmanager
def installed() -> Iterator[None]:
    """The name, within a block; for tests."""
    already = isinstance(sys.modules.get(_NAME), _Facade)
    install()
    try:
        yield
    finally:
        if not already:
            uninstall()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script or, after ``-m``, a module as ``__main__`` with its arguments. Returns 2 if none is given.

    What the program raises and its ``sys.exit`` pass through.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help") or given == ["-m"]:
        print(_USAGE, file=sys.stderr if given not in (["-h"], ["--help"]) else sys.stdout)
        return 0 if given and given[0] in ("-h", "--help") else 2
    if given[0] != "-m" and not os.path.exists(given[0]):
        print(f"there is no script {given[0]!r}\n{_USAGE}", file=sys.stderr)
        return 2
    install()
    if given[0] == "-m":
        sys.argv = given[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
        return 0
    sys.argv = given
    sys.path[0] = os.path.dirname(os.path.abspath(given[0]))
    runpy.run_path(given[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    # As the module of this name, whose classes others see, not as __main__, which the script becomes.
    sys.exit(importlib.import_module(f"{_REAL}.compat").main())
