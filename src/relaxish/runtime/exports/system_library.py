"""The system library: functions that modules built for it leave in this process, found by name.

A module that carries the attribute ``system_lib_prefix`` (or is built with ``system_lib=True``) registers what it
defines when it is built or loaded; ``system_lib("prefix_")["add"]`` then finds ``prefix_add``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..kernels.kernel import MissingFunctionError
from ..kernels.module import Module

if TYPE_CHECKING:
    from ..vm.executable import VMExecutable

__all__ = ["SystemLibrary", "register_symbols", "system_lib"]

_LOCK = threading.Lock()
_SYMBOLS: dict[str, Callable[..., Any]] = {}
_LIBRARIES: dict[str, SystemLibrary] = {}


def register_symbols(module: Module | VMExecutable) -> None:
    """Put all kernels of a module, or of an executable, into the system library; later ones replace earlier ones.

    Exported and loaded again they register themselves.
    """
    module.in_system_lib = True
    found = {name: module.get_function(name, True) for name in module.kernels}
    with _LOCK:
        _SYMBOLS.update(found)


class SystemLibrary(Module):
    """The registered functions whose names begin with a prefix, which look-ups leave out."""

    def __init__(self, prefix: str) -> None:
        super().__init__({}, None, type_key="library")
        self.prefix = prefix

    def _symbol(self, name: str) -> Callable[..., Any] | None:
        with _LOCK:
            return _SYMBOLS.get(self.prefix + name) or _SYMBOLS.get(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function ``prefix + name``, else ``name``. Raises MissingFunctionError if there is neither."""
        found = self._symbol(name)
        if found is None:
            raise MissingFunctionError(f"Module has no function '{name}' (no symbol '{self.prefix}{name}')")
        return found

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether such a function is registered."""
        return self._symbol(name) is not None


def system_lib(symbol_prefix: str = "") -> SystemLibrary:
    """The functions registered under names with a prefix; the same object each time."""
    with _LOCK:
        if symbol_prefix not in _LIBRARIES:
            _LIBRARIES[symbol_prefix] = SystemLibrary(symbol_prefix)
        return _LIBRARIES[symbol_prefix]
