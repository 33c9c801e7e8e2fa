"""Finding and loading shared libraries of CUDA, and putting others in their place."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from ....support.errors import MissingExtraError, RelaxishError

__all__ = ["LibraryError", "SharedLibrary", "check", "find", "load", "use_library", "wheel_folders"]

_T = TypeVar("_T")

#: Functions of a library by name: (result type, argument types).
Prototypes = Mapping[str, tuple[Any, tuple[Any, ...]]]


class LibraryError(RelaxishError):
    """A call of a library failed; ``code`` is the library's own number."""

    def __init__(self, what: str, code: int, name: str, detail: str = "") -> None:
        self.code = code
        super().__init__(f"{what} failed: {name} ({code})" + (f"; {detail}" if detail else ""))


@dataclass(frozen=True)
class SharedLibrary:
    """Search path of a library: file name without version, the wheel that ships it and the extra that installs it, and
    its functions. ``opens`` are the names of libraries that it opens itself, where only the linker's folders are
    searched.
    """

    name: str
    package: str
    extra: str
    prototypes: Prototypes
    opens: tuple[str, ...] = ()


_LOADED: dict[str, Any] = {}
_IN_PLACE: dict[str, Any] = {}


def wheel_folders() -> Iterator[Path]:
    """The folders of NVIDIA's wheels, newest CUDA first: ``nvidia/cu13``, then one for each package of older ones."""
    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(Path(root).glob("cu[0-9]*"), reverse=True)
        yield from sorted(Path(root).glob("*"))


def find(name: str) -> str | None:
    """The file of ``lib<name>``, from NVIDIA's wheels, else from where the linker looks; None if there is none."""
    pattern = f"{name}*.dll" if sys.platform == "win32" else f"lib{name}.so*"
    for folder in wheel_folders():
        files = sorted(folder.glob(f"lib/{pattern}"))
        if files:
            return str(files[-1])
    return ctypes.util.find_library(name)


def load(library: SharedLibrary) -> ctypes.CDLL:
    """The loaded library with its functions declared, or what :func:`use_library` has put in its place.

    Raises MissingExtraError if it is nowhere to be found.
    """
    stand_in = _IN_PLACE.get(library.name)
    if stand_in is not None:
        return stand_in
    made = _LOADED.get(library.name)
    if made is None:
        path = find(library.name)
        if path is None:
            raise MissingExtraError(library.extra, library.package, f"{library.name} from the CUDA libraries")
        for other in library.opens:
            # One that is open is found by its name alone. That one cannot be opened is the library's to say, if it needs it.
            where = find(other)
            if where is not None:
                with suppress(OSError):
                    ctypes.CDLL(where, mode=ctypes.RTLD_GLOBAL)
        made = ctypes.CDLL(path)
        for name, (result, arguments) in library.prototypes.items():
            function = getattr(made, name)
            function.restype, function.argtypes = result, arguments
        _LOADED[library.name] = made
    return made


@contextmanager
def use_library(name: str, stand_in: _T) -> Iterator[_T]:
    """Within the block ``stand_in`` is the library: any object with functions of the same names and arguments."""
    before = _IN_PLACE.get(name)
    _IN_PLACE[name] = stand_in
    try:
        yield stand_in
    finally:
        if before is None:
            del _IN_PLACE[name]
        else:
            _IN_PLACE[name] = before


def check(code: int, what: str, names: Mapping[int, str], detail: str = "") -> None:
    """Raise LibraryError unless ``code`` is zero."""
    if code:
        raise LibraryError(what, code, names.get(code, "unknown error"), detail)
