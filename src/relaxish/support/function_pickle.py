"""Pickle that also carries functions a worker process cannot import: lambdas, closures, functions of a script.

Users pass their own build and run functions to the tuner, often defined in the script itself. Importing that script
in a worker would run it again, so such functions travel by value: code object, defaults, closure cells and the
globals they mention. Everything else is ordinary pickle.
"""

from __future__ import annotations

from .sequences import of_kind
import dis
import importlib
import io
import marshal
import pickle
import sys
import types
from typing import Any

_BUILTINS = "__builtins__"


def dumps(value: Any) -> bytes:
    """Pickle ``value``; functions that cannot be imported by name go by value."""
    out = io.BytesIO()
    _Pickler(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


loads = pickle.loads


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        match obj:
            case types.FunctionType() if not _importable(obj):
                return _reduce_function(obj)
            case types.ModuleType():
                return importlib.import_module, (obj.__name__,)
            case types.CellType():
                return _reduce_cell(obj)
            case type() if obj.__module__ == "__main__" and not _importable(obj):
                return _reduce_class(obj)
        return NotImplemented


def _importable(obj: Any) -> bool:
    module = getattr(obj, "__module__", None)
    if module is None or module == "__main__" or "<locals>" in obj.__qualname__:
        return False
    found: Any = sys.modules.get(module)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


def _mentioned_globals(code: types.CodeType) -> set[str]:
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in of_kind(code.co_consts, types.CodeType):
        names |= _mentioned_globals(constant)
    return names


def _reduce_function(func: types.FunctionType) -> tuple[Any, ...]:
    used = {name: func.__globals__[name] for name in _mentioned_globals(func.__code__) if name in func.__globals__}
    used.pop(func.__name__, None)
    recursive = func.__globals__.get(func.__name__) is func
    state = {
        "globals": used,
        "defaults": func.__defaults__,
        "kwdefaults": func.__kwdefaults__,
        "closure": func.__closure__,
        "dict": dict(func.__dict__),
        "recursive": recursive,
    }
    shell = (
        marshal.dumps(func.__code__),
        func.__name__,
        func.__qualname__,
        func.__module__,
        len(func.__closure__ or ()),
    )
    return _make_function, shell, state, None, None, _fill_function


def _make_function(code: bytes, name: str, qualname: str, module: str, cells: int) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in range(cells))
    scope: dict[str, Any] = {"__name__": module, _BUILTINS: __builtins__}
    func = types.FunctionType(marshal.loads(code), scope, name, None, closure or None)
    func.__qualname__ = qualname
    return func


def _fill_function(func: types.FunctionType, state: dict[str, Any]) -> None:
    # Two steps (make, then fill) so that functions may refer to each other in a cycle.
    func.__globals__.update(state["globals"])
    if state["recursive"]:
        func.__globals__[func.__name__] = func
    func.__defaults__ = state["defaults"]
    func.__kwdefaults__ = state["kwdefaults"]
    func.__dict__.update(state["dict"])
    for cell, filled in zip(func.__closure__ or (), state["closure"] or (), strict=True):
        try:
            cell.cell_contents = filled.cell_contents
        except ValueError:
            continue


def _reduce_cell(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return _make_cell, (), (cell.cell_contents,), None, None, _fill_cell
    except ValueError:
        return _make_cell, ()


def _make_cell() -> types.CellType:
    return types.CellType()


def _fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    cell.cell_contents = state[0]


def _reduce_class(cls: type) -> tuple[Any, ...]:
    skip = {"__dict__", "__weakref__", "__module__", "__doc__"}
    slots = cls.__dict__.get("__slots__", ())
    skip |= {slots} if isinstance(slots, str) else set(slots)
    body = {k: v for k, v in cls.__dict__.items() if k not in skip and not isinstance(v, types.GetSetDescriptorType)}
    return _make_class, (type(cls), cls.__name__, cls.__bases__, cls.__doc__), body, None, None, _fill_class


def _make_class(meta: type, name: str, bases: tuple[type, ...], doc: str | None) -> type:
    # A class of the main program that comes back to it is the one it was.
    own = getattr(sys.modules.get("__main__"), name, None)
    if isinstance(own, type) and own.__module__ == "__main__":
        return own
    made: type = meta(name, bases, {"__module__": "__main__", "__doc__": doc})
    return made


def _fill_class(cls: type, body: dict[str, Any]) -> None:
    if getattr(sys.modules.get("__main__"), cls.__name__, None) is cls:
        return
    for key, value in body.items():
        if key != "__slots__":
            setattr(cls, key, value)
