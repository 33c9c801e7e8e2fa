"""Scope of a decorated function or class: the names it may refer to, and the place of its definition."""

from __future__ import annotations

from collections.abc import Callable
import inspect
import linecache
import sys
from typing import Any
from inspect import FrameInfo
from types import FrameType

__all__ = ["capture", "in_module_class", "inspect_class_capture", "inspect_function_capture", "is_defined_in_class"]


def _is_class_body(frame: FrameType) -> bool:
    return "__module__" in frame.f_locals and "__qualname__" in frame.f_locals


def inspect_function_capture(func: Callable[..., Any]) -> dict[str, Any]:
    """The globals of a function and the outer names that its body refers to.

    >>> def outer():
    ...     n = 3
    ...     def inner():
    ...         return n
    ...     return inner
    >>> inspect_function_capture(outer())["n"]
    3
    """
    names = dict(func.__globals__)
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or ()):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            # A name that is bound only after the definition, such as the module's own.
            names.pop(name, None)
    return names


def inspect_class_capture(cls: type) -> dict[str, Any]:
    """Variables that the functions of a class may refer to."""
    names: dict[str, Any] = {}
    for value in vars(cls).values():
        if inspect.isfunction(value):
            names.update(inspect_function_capture(value))
    return names


def _enclosing_locals(depth: int) -> dict[str, Any]:
    """Local names of the scopes around a definition, but not of callers beyond them."""
    frame: Any = sys._getframe(depth)
    found: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name != "<module>":
        for name, value in frame.f_locals.items():
            found.setdefault(name, value)
        if frame.f_code.co_flags & inspect.CO_NEWLOCALS and not _is_class_body(frame):
            break
        frame = frame.f_back
    return found


def capture(program: type | Callable[..., Any], depth: int) -> dict[str, Any]:
    """The names a decorated function or class may use: its closure, its globals, and the scopes around it."""
    names: dict[str, Any] = {}
    functions = [program] if inspect.isfunction(program) else [
        v for v in vars(program).values() if inspect.isfunction(v)
    ]  # fmt: skip
    if not functions:
        module = sys.modules.get(getattr(program, "__module__", ""))
        names.update(vars(module) if module is not None else {})
    for function in functions:
        names.update(function.__globals__)
    names.update(_enclosing_locals(depth + 1))
    for function in functions:
        captured = inspect_function_capture(function)
        for name in function.__code__.co_freevars:
            if name in captured:
                names[name] = captured[name]
            else:
                names.pop(name, None)
    return names


def _is_module_decorator(line: str) -> bool:
    line = line.strip()
    return line.startswith("@") and ("ir_module" in line or "rewriter" in line)


def in_module_class(depth: int) -> bool:
    """Whether the caller ``depth`` frames up runs the body of a class that becomes a module.

    Such a class is parsed as a whole by its own decorator; functions of any other class are parsed one by one.
    """
    frame = sys._getframe(depth)
    if not _is_class_body(frame):
        return False
    filename, number = frame.f_code.co_filename, frame.f_code.co_firstlineno
    # A class starts at its first decorator; further ones, and their arguments, follow up to the `class` line.
    while True:
        line = linecache.getline(filename, number)
        if not line or line.lstrip().startswith("class"):
            return False
        if _is_module_decorator(line):
            return True
        number += 1


def is_defined_in_class(frames: list[FrameInfo], obj: object) -> bool:
    """Whether, of ``inspect.stack()`` inside a decorator, the caller's caller defines a module class around it."""
    if len(frames) < 3 or not frames[2].code_context:
        return False
    line = frames[2].code_context[0].strip()
    if line.startswith("class"):
        line = linecache.getline(frames[2].filename, frames[2].lineno - 1)
    return _is_module_decorator(line)
