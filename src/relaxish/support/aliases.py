"""Public names that live elsewhere: other module paths and lazily loaded attributes.

The public API puts ``transform`` and ``op`` under ``relax``; here folders are layers, and those two stand above
``relax``.  The root package fills the tables below; packages look their missing attributes up here.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["MODULE_ALIASES", "attribute", "install", "lazy_package", "register_attributes"]

# Alias module path -> real module path; longest prefix wins.
MODULE_ALIASES: dict[str, str] = {}

#: Modules that register functions, by the first part of the functions' names; loaded when such a name is asked for.
FUNCTION_MODULES: dict[str, str] = {}
# Package -> {attribute: (module, name or "" for the module itself)}.
_ATTRIBUTES: dict[str, dict[str, tuple[str, str]]] = {}


def register_attributes(package: str, table: dict[str, str]) -> None:
    """Say where missing attributes of ``package`` are found: ``{"build": "relaxish.driver:build"}``."""
    entries = _ATTRIBUTES.setdefault(package, {})
    for name, place in table.items():
        module, _, attr = place.partition(":")
        entries[name] = (module, attr)


def attribute(package: str, name: str) -> Any:
    """A lazily loaded attribute of ``package``. Raises AttributeError if it has none of that name."""
    place = _ATTRIBUTES.get(package, {}).get(name)
    if place is None:
        alias = MODULE_ALIASES.get(f"{package}.{name}")
        if alias is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")
    module = importlib.import_module(place[0])
    return getattr(module, place[1]) if place[1] else module


def load_functions(name: str) -> bool:
    """Import the module that registers functions like ``name``; whether there is one."""
    module = FUNCTION_MODULES.get(name.partition(".")[0])
    if module is not None:
        importlib.import_module(module)
    return module is not None


def names(package: str) -> list[str]:
    """Names that :func:`attribute` resolves, for ``dir()``."""
    return sorted(_ATTRIBUTES.get(package, ()))


def lazy_package(namespace: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for the package with these globals; what is looked up once is kept there.

    >>> __getattr__, __dir__ = lazy_package(globals())  # doctest: +SKIP
    """
    package: str = namespace["__name__"]

    def load(name: str) -> Any:
        value = attribute(package, name)
        namespace[name] = value
        return value

    def directory() -> list[str]:
        return sorted({*namespace, *names(package)})

    return load, directory


def _real_name(fullname: str) -> str | None:
    head = fullname
    while head:
        if head in MODULE_ALIASES:
            return MODULE_ALIASES[head] + fullname[len(head) :]
        head = head.rpartition(".")[0]
    return None


class _AliasLoader(importlib.abc.Loader):
    """Hands out the real module under its alias, so both names are one object."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Importing set the alias's spec on the shared module; give it back its own.
        module.__spec__ = self.spec
        module.__loader__ = self.spec.loader if self.spec is not None else None
        module.__package__ = self.spec.parent if self.spec is not None else None
        module.__name__ = self.real

    def get_code(self, fullname: str) -> Any:
        """The real module's code, for ``python -m <alias>``."""
        spec = importlib.util.find_spec(self.real)
        loader: Any = None if spec is None else spec.loader
        return None if loader is None else loader.get_code(self.real)


class _AliasFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        real = _real_name(fullname)
        found = None if real is None else importlib.util.find_spec(real)
        if real is None or found is None:
            return None
        inside = any(alias.startswith(f"{fullname}.") for alias in MODULE_ALIASES)
        is_package = inside or found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, _AliasLoader(real), is_package=is_package)


def install() -> None:
    """Make the aliases importable; called once by the root package."""
    if not any(isinstance(f, _AliasFinder) for f in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())  # before the path finder, which would load a submodule twice
