"""Loading by name: hooks of low layers that upper layers fill, and public names with their real places.

Folders are layers, and a layer names no module above it. Where it needs one (the printer, the operators, the driver),
it loads a *hook*, and the root package says which module that is. The public API puts names where users of the field
look for them (``relaxish.relax.transform``, ``relaxish.tir.build``); the root package says where they really are.
Nobody else writes these tables.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, CodeType
from typing import Any

__all__ = [
    "alias_package",
    "available",
    "declare",
    "install",
    "lazy_package",
    "load",
    "module_name",
    "names",
    "public_name",
]

# Hook -> real place, "module" or "module:name".
_HOOKS: dict[str, str] = {}
# Public path -> real place, by package and name. The name "*" stands for all others.
_NAMES: dict[str, dict[str, str]] = {}
# Other paths of modules, for import statements; the longest prefix wins.
_MODULES: dict[str, str] = {}


def declare(hooks: Mapping[str, str], public_names: Mapping[str, str]) -> None:
    """Fill the tables; the root package alone does.

    ``hooks`` is hook -> real place, ``public_names`` is public path -> real place: ``"relaxish.driver:build"`` for what a
    module defines, a module's path for a module, which can be imported under its public path as well. A public path
    that ends in ``.*`` stands for all names of the module that it is mapped to.
    """
    _HOOKS.update(hooks)
    for path, place in public_names.items():
        package, _, name = path.rpartition(".")
        _NAMES.setdefault(package, {})[name] = place
        if ":" not in place and name != "*" and path != place:
            _MODULES[path] = place


def module_name(hook: str) -> str:
    """The module of a hook, for commands that run it. Raises KeyError for a hook that nobody declared."""
    return _HOOKS[hook].partition(":")[0]


def available(hook: str) -> bool:
    """Whether the hook is known and its module is installed: a deployed program may have the run time alone."""
    try:
        return hook in _HOOKS and importlib.util.find_spec(module_name(hook)) is not None
    except ModuleNotFoundError:  # the folder it is in is missing
        return False


def load(hook: str) -> Any:
    """Object behind a hook; importing its module fills the tables of the layer that asks. Raises KeyError, ImportError."""
    module, _, attribute = _HOOKS[hook].partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def public_name(package: str, name: str) -> Any:
    """A lazily loaded attribute of ``package``. Raises AttributeError if it has none of that name."""
    table = _NAMES.get(package, {})
    place = table.get(name)
    if place is None:
        if "*" not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(table["*"]), name)
    module, _, attribute = place.partition(":")
    # By its public path, so that the import system knows the module under both.
    found = importlib.import_module(module if attribute else f"{package}.{name}")
    return getattr(found, attribute) if attribute else found


def names(package: str) -> list[str]:
    """Names that :func:`public_name` resolves, for ``dir()``."""
    return sorted(name for name in _NAMES.get(package, ()) if name != "*")


def lazy_package(namespace: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for the package with these globals; what is looked up once is kept there.

    >>> __getattr__, __dir__ = lazy_package(globals())  # doctest: +SKIP
    """
    package: str = namespace["__name__"]

    def load(name: str) -> Any:
        value = public_name(package, name)
        if name in _NAMES[package]:
            namespace[name] = value
        return value

    def directory() -> list[str]:
        return sorted({*namespace, *names(package)})

    return load, directory


def _real_name(fullname: str) -> str | None:
    head = fullname
    while head:
        if head in _MODULES:
            return _MODULES[head] + fullname[len(head) :]
        head = head.rpartition(".")[0]
    return None


class _AliasLoader(importlib.abc.Loader):
    """Hands out the real module under its alias, so both names are one object."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.spec, self.name = module.__spec__, module.__name__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Importing set the alias's spec on the shared module; give it back its own. The name it is asked by here may be
        # an alias, too.
        module.__spec__ = self.spec
        module.__loader__ = self.spec.loader if self.spec is not None else None
        module.__package__ = self.spec.parent if self.spec is not None else None
        module.__name__ = self.name

    def get_code(self, fullname: str) -> CodeType | None:
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
        inside = any(alias.startswith(f"{fullname}.") for alias in _MODULES)
        is_package = inside or found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, _AliasLoader(real), is_package=is_package)


def alias_package(name: str, real: str | None) -> None:
    """Let modules of the package ``real`` be imported as modules of ``name``, too; None ends that.

    They are the very modules: ``name.sub is real.sub``. What has been imported stays so.
    """
    if real is None:
        _MODULES.pop(name, None)
    else:
        _MODULES[name] = real


def install() -> None:
    """Make the aliases importable; called once by the root package."""
    if not any(isinstance(f, _AliasFinder) for f in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())  # before the path finder, which would load a submodule twice
