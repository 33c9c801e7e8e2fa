"""Global functions by name, as ``register_func("my.printer")`` and ``get_global_func("my.printer")`` know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..support import entry_points
from ..support.errors import AlreadyRegisteredError

# Any callable is a packed function here; ``isinstance(f, PackedFunc)`` asks just that.
PackedFunc: Any = Callable

F = TypeVar("F", bound=Callable[..., Any])
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


@overload
def register_func(func_name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...
@overload
def register_func(func_name: str, f: F, override: bool = False) -> F: ...
@overload
def register_func(func_name: F) -> F: ...


def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Callable[..., Any]:
    """Register a function globally; usable as a decorator with or without a name."""
    if callable(func_name):
        return register_func(func_name.__name__, func_name)
    if not isinstance(func_name, str):
        raise ValueError("expect string function name")

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in _FUNCTIONS and not override:
            raise AlreadyRegisteredError(f"Global PackedFunc {func_name} is already registered")
        _FUNCTIONS[func_name] = func
        return func

    return register if f is None else register(f)


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """The function registered under ``name``; ``None`` or ``ValueError`` when there is none."""
    found = _FUNCTIONS.get(name)
    if found is None and entry_points.available(family := f"functions.{name.partition('.')[0]}"):
        entry_points.load(family)
        found = _FUNCTIONS.get(name)
    if found is None and not allow_missing:
        raise ValueError(f"Cannot find global function {name}")
    return found


def list_global_func_names() -> list[str]:
    """All registered names."""
    return list(_FUNCTIONS)


def remove_global_func(name: str) -> None:
    """Forget a function."""
    _FUNCTIONS.pop(name, None)
