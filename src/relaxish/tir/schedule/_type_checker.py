"""Checking of arguments against annotations, for functions that users call with values of their own."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, Union

__all__ = ["type_checked"]

F = TypeVar("F", bound=Callable[..., Any])
_CONTAINERS = (list, dict, tuple)


def type_checked(func: F) -> F:
    """Decorator: a call whose arguments do not fit the annotations raises TypeError.

    >>> @type_checked
    ... def total(values: list[int], start: int | None = None) -> int:
    ...     return sum(values, start or 0)
    >>> total([1, 2], 3)
    6
    >>> total([1, "2"])
    Traceback (most recent call last):
        ...
    TypeError: In "total", "values[1]" has to be of type "int", not "str"
    """
    signature = inspect.signature(func)

    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        hints = _hints(func)
        for name, parameter in signature.parameters.items():
            if parameter.annotation is inspect.Parameter.empty:
                continue
            fault = _fault(bound.arguments[name], name, hints.get(name, parameter.annotation))
            if fault:
                raise TypeError(f'In "{func.__qualname__}", {fault}')
        return func(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _hints(func: Callable[..., Any]) -> dict[str, Any]:
    """Annotations that were written as text, as types; as they are where names in them are unknown."""
    try:
        return typing.get_type_hints(func)
    except NameError:
        return {}


def _fault(value: object, name: str, kind: object) -> str | None:
    """What is wrong with a value, or None."""
    if kind is Any or isinstance(kind, (str, TypeVar)):
        return None
    if kind is None or kind is type(None):
        return None if value is None else _wrong(value, name, None)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return None if any(_fault(value, name, each) is None for each in inner) else _wrong(value, name, kind)
    if kind is Callable or origin is not None and _is_callable_type(origin):
        return None if callable(value) else _wrong(value, name, kind)
    if origin in _CONTAINERS:
        return _fault_inside(value, name, kind, origin, inner)
    plain = origin or kind
    return None if not isinstance(plain, type) or isinstance(value, plain) else _wrong(value, name, kind)


def _is_callable_type(origin: object) -> bool:
    import collections.abc

    return origin is collections.abc.Callable


def _fault_inside(value: object, name: str, kind: object, origin: type, inner: tuple[Any, ...]) -> str | None:
    """The fault of a container, or of the first of its elements that has one."""
    accepted: tuple[type, ...] = (list, tuple) if origin is list else (origin,)
    if not isinstance(value, accepted):
        return _wrong(value, name, kind)
    parts: list[tuple[Any, str, Any]] = []
    match value:
        case dict():
            parts = [(key, f"{name}.keys()", inner[0]) for key in value]
            parts += [(item, f"{name}[{key!r}]", inner[1]) for key, item in value.items()]
        case list() | tuple():
            each = inner[:1] * len(value) if origin is list or inner[-1:] == (Ellipsis,) else inner
            if len(each) != len(value):
                return _wrong(value, name, kind)
            parts = [(item, f"{name}[{i}]", own) for i, (item, own) in enumerate(zip(value, each, strict=True))]
    return next((fault for part in parts if (fault := _fault(*part))), None)


def _wrong(value: object, name: str, kind: object) -> str:
    return f'"{name}" has to be of type "{_spelled(kind)}", not "{_spelled(type(value))}"'


def _spelled(kind: object) -> str:
    if kind is None:
        return "None"
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return str(kind).replace("typing.", "")
