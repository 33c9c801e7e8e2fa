"""Identity of a function as text, for comparison in another process.

A function of the user's is its source, its defaults, and all that it and the functions inside it refer to: values as they
are, other functions of the user's in the same way. A module of the user's is the text of its file; what comes with Python
or was installed is its name and version.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import importlib.metadata
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...ir import IRModule, save_json
from ...script.parser.core.macro import ScriptMacro
from ...target import Target
from ...tir import PrimFunc
from ..jit import JITImpl

__all__ = ["OpaqueValueError", "identity_of"]

_PACKAGE = __name__.partition(".")[0]
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
# Classes of other packages whose values are told apart by their text.
_BY_TEXT = frozenset({"torch.dtype", "torch.device", "torch.Size"})


class OpaqueValueError(Exception):
    """Something that a function refers to has no form that another process could compare; says what."""


def identity_of(value: Any) -> Any:
    """Plain data (lists, texts, numbers) that is equal in two processes where a function, class or value is the same.

    Raises OpaqueValueError for objects, and for functions whose source is not in a file.
    """
    try:
        return _Walk().of(value, "it")
    except RecursionError:
        raise OpaqueValueError("it refers to a value that contains itself") from None


class _Walk:
    """One value with all that it refers to; what comes again (functions may call each other) is a number."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # numbers of objects are theirs only as long as they live

    def of(self, value: Any, name: str) -> Any:
        if value is None or value is ... or isinstance(value, (str, int, float, bool, bytes, complex)):
            return [type(value).__name__, repr(value)]
        known = self._known(value, name)
        if known is not None:
            return known
        match value:
            case list() | tuple():
                return [type(value).__name__, *(self.of(v, name) for v in value)]
            case set() | frozenset():
                return [type(value).__name__, *sorted((self.of(v, name) for v in value), key=repr)]
            case Mapping():
                return ["mapping", *([self.of(k, name), self.of(v, name)] for k, v in value.items())]
        if id(value) in self.seen:
            return ["again", self.seen[id(value)]]
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        match value:
            case ModuleType():
                return self._module(value, name)
            case JITImpl():
                return ["jit", value.options.key(), self.of(value.func, name)]
            case ScriptMacro():
                return ["macro", value.hygienic, self.of(value.func, name)]
            case functools.partial():
                return ["partial", self.of(value.func, name), self.of(value.args, name), self.of(value.keywords, name)]
            case FunctionType():
                return self._function(value, name)
            case MethodType():
                return ["method", self.of(value.__self__, name), self.of(value.__func__, name)]
            case type():
                return self._class(value, name)
        if callable(value) and hasattr(value, "__wrapped__"):  # functools.lru_cache, say
            return ["wrapped", self.of(type(value), name), self.of(value.__wrapped__, name)]
        if dataclasses.is_dataclass(value):
            fields = [[f.name, self.of(getattr(value, f.name), f"{name}.{f.name}")] for f in dataclasses.fields(value)]
            return ["dataclass", self.of(type(value), name), fields]
        raise OpaqueValueError(f"{name} is an object of class {type(value).__module__}.{type(value).__qualname__}")

    def _known(self, value: Any, name: str) -> Any:
        """Values that have a form of their own."""
        match value:
            case enum.Enum():
                return ["enum", type(value).__qualname__, value.name]
            case np.dtype() | np.generic():
                return [type(value).__name__, str(value)]
            case np.ndarray() if not value.dtype.hasobject:
                data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
                return ["array", str(value.dtype), list(value.shape), data]
            case Target():
                return ["target", value.export()]
            case PrimFunc() | IRModule():
                return ["program", hashlib.sha256(save_json(value).encode()).hexdigest()]
            case BuiltinFunctionType():
                owner = value.__self__
                if owner is not None and not isinstance(owner, ModuleType):
                    return ["method", self.of(owner, name), value.__name__]
                return ["builtin", value.__module__, value.__qualname__]
        if f"{type(value).__module__}.{type(value).__qualname__}" in _BY_TEXT:
            return [type(value).__name__, str(value)]
        return None

    # ---- code

    def _installed(self, module: str | None) -> list[str] | None:
        """Name and version of the package that a module belongs to; None for modules of the user's."""
        top = (module or "").partition(".")[0]
        if top in sys.stdlib_module_names and top != "__main__":
            return ["python", ".".join(map(str, sys.version_info[:3]))]
        if top == _PACKAGE:
            return [top]
        return _version(top)

    def _module(self, module: ModuleType, name: str) -> list[Any]:
        installed = self._installed(module.__name__)
        if installed is not None:
            return ["module", module.__name__, *installed]
        path = getattr(module, "__file__", None)
        if path is None:
            raise OpaqueValueError(f"{name} is the module {module.__name__}, which has no file")
        parts = [
            [k, self.of(v, f"{module.__name__}.{k}")]
            for k, v in sorted(vars(module).items())
            if not k.startswith("__") and isinstance(v, (ModuleType, FunctionType, type)) and _from_elsewhere(v, module)
        ]
        return ["module", module.__name__, hashlib.sha256(Path(path).read_bytes()).hexdigest(), parts]

    def _function(self, function: FunctionType, name: str) -> Any:
        installed = self._installed(function.__module__)
        if installed is not None and not function.__closure__:
            return ["function", function.__module__, function.__qualname__, *installed]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        values = [[k, self.of(v, k)] for k, v in _referred(function)]
        source: list[Any] = list(installed) if installed is not None else [_source(function, name)]
        if function.__name__ == "<lambda>":  # there may be others in its lines
            code = function.__code__
            constants = [self.of(c, name) for c in code.co_consts if not isinstance(c, CodeType)]
            source += [code.co_code.hex(), constants]
        return ["function", function.__qualname__, *source, self.of(defaults, name), values]

    def _class(self, kind: type, name: str) -> Any:
        installed = self._installed(kind.__module__)
        if installed is not None:
            return ["class", kind.__module__, kind.__qualname__, *installed]
        bases = [self.of(base, name) for base in kind.__bases__]
        methods = [[k, self.of(v, k)] for k, v in _methods(kind)]
        return ["class", kind.__qualname__, _source(kind, name), bases, methods]


def _source(thing: Callable[..., Any], name: str) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError) as err:
        raise OpaqueValueError(f"the source of {name} is not known: {err}") from None


def _methods(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for key, value in vars(kind).items():
        found = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        # Functions that dataclasses and the like write have no source; what they come from has.
        if isinstance(found, FunctionType) and not inspect.unwrap(found).__code__.co_filename.startswith("<"):
            yield key, found


def _referred(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names of a function that come from around it, with their values; those of functions inside it as well."""
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet assigned
            yield name, None
    for name in sorted(_globals_of(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _globals_of(code: CodeType) -> set[str]:
    found = {str(i.argval) for i in dis.get_instructions(code) if i.opname in _GLOBALS}
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found |= _globals_of(const)
    return found


def _from_elsewhere(value: Any, module: ModuleType) -> bool:
    """Whether the text of a module does not say what a value in it is."""
    return isinstance(value, ModuleType) or value.__module__ != module.__name__


@functools.cache
def _version(package: str) -> list[str] | None:
    """Name and version of an installed package; None for the user's own files."""
    module = sys.modules.get(package)
    path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    if path is None or not any(place and Path(path).is_relative_to(place) for place in places):
        return None
    version = getattr(module, "__version__", None)
    if version is None:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None
    return [package, str(version)]
