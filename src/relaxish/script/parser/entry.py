"""Entry points: parse decorated functions and classes, or text."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from ...ir.module import IRModule
from ...relax.analysis import find_ill_formed
from ...tir import PrimFunc
from ...tir.analysis import verify_well_formed
from ..ir_builder.base import IRBuilder
from .core import Parser
from .source import Source

__all__ = ["capture", "from_source", "in_class_body", "parse"]


def _default_names() -> dict[str, Any]:
    from .. import ir, relax, tir

    # The root package is the value of a name in scripts, not something this layer uses.
    root = sys.modules["relaxish"]
    return {
        "relaxish": root, "tvm": root, "I": ir, "ir": ir, "T": tir, "tir": tir, "R": relax, "relax": relax,
    }  # fmt: skip


def _annotations(program: Any) -> dict[str, dict[str, Any]]:
    if inspect.isfunction(program):
        return {program.__name__: dict(getattr(program, "__annotations__", {}))}
    if inspect.isclass(program):
        found: dict[str, dict[str, Any]] = {}
        for name, value in vars(program).items():
            if inspect.isfunction(value):
                found[name] = dict(value.__annotations__)
        return found
    return {}


def parse(
    program: Any,
    extra_vars: dict[str, Any] | None = None,
    check_well_formed: bool = True,
) -> Any:
    """Parse a function, class or text into a function or module; ``extra_vars`` are the names it may use."""
    source = Source(program)
    parser = Parser(source, _annotations(program))
    names = _default_names() if extra_vars is None else dict(extra_vars)
    with IRBuilder() as builder:
        parser.parse(names)
    result = builder.get()
    if check_well_formed:
        _check(result, parser, source)
    return result


from_source = parse


def _check(result: Any, parser: Parser, source: Source) -> None:
    problems = [*_tensor_problems(result), *_graph_problems(result)]
    if problems:
        raise parser.error(
            source.parse().body[0],
            "Program is not well-formed. If this is deliberate, consider setting check_well_formed in the "
            "top-level decorator to False. " + "; ".join(problems),
        )


def _tensor_problems(result: Any) -> list[str]:
    if not isinstance(result, (IRModule, PrimFunc)):
        return []
    try:
        verify_well_formed(result, assert_mode=True)
    except ValueError as error:
        return [str(error)]
    return []


def _graph_problems(result: Any) -> list[str]:
    return [] if isinstance(result, PrimFunc) else find_ill_formed(result)


def capture(program: Any, depth: int) -> dict[str, Any]:
    """The names a decorated function or class may use: its closure, its globals, and the scope around it."""
    names: dict[str, Any] = {}
    frame: Any = sys._getframe(depth)
    locals_around: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name != "<module>" and len(locals_around) < 10_000:
        for name, value in frame.f_locals.items():
            locals_around.setdefault(name, value)
        # Only the scopes that enclose the definition count, not those of callers beyond it.
        if frame.f_code.co_flags & inspect.CO_NEWLOCALS and not _is_class_body(frame):
            break
        frame = frame.f_back
    functions = [program] if inspect.isfunction(program) else [
        v for v in vars(program).values() if inspect.isfunction(v)
    ]  # fmt: skip
    for function in functions:
        names.update(function.__globals__)
    if not functions:
        module = sys.modules.get(getattr(program, "__module__", ""))
        names.update(vars(module) if module is not None else {})
    names.update(locals_around)
    for function in functions:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                # A name that is bound only after the definition, such as the module's own.
                names.pop(name, None)
    return names


def _is_class_body(frame: Any) -> bool:
    return "__module__" in frame.f_locals and "__qualname__" in frame.f_locals


def in_class_body(depth: int) -> bool:
    """Whether the caller ``depth`` frames up runs the body of a class."""
    return _is_class_body(sys._getframe(depth))

