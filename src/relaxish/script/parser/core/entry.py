"""Entry points: parse decorated functions and classes, or text."""

from __future__ import annotations

import inspect
import sys
from typing import Any
from collections.abc import Callable

from ....ir.module import IRModule
from ....relax.analysis import find_ill_formed
from ....relax.expr import Function
from ....support.errors import DiagnosticError
from ....tir import PrimFunc
from ....tir.analysis import verify_well_formed
from ...ir_builder.base import IRBuilder
from .parser import Parser
from .text_evaluator import check_text
from .diagnostics import Source

__all__ = ["from_source", "parse", "scan_macro"]


def _default_names() -> dict[str, Any]:
    from ... import ir, relax, tir

    # The root package is the value of a name in scripts, not something this layer uses.
    root = sys.modules["relaxish"]
    return {
        "relaxish": root, "tvm": root, "I": ir, "ir": ir, "T": tir, "tir": tir, "R": relax, "relax": relax,
    }  # fmt: skip


def _annotations(program: str | type | Callable[..., Any]) -> dict[str, dict[str, Any]]:
    if inspect.isfunction(program):
        return {program.__name__: dict(getattr(program, "__annotations__", {}))}
    if inspect.isclass(program):
        found: dict[str, dict[str, Any]] = {}
        for name, value in vars(program).items():
            if inspect.isfunction(value):
                found[name] = dict(value.__annotations__)
        return found
    return {}


def scan_macro(program: Callable[..., Any], extra_vars: dict[str, Any] | None = None) -> tuple[Source, dict[str, Any]]:
    """The source of a macro and the names its body may use."""
    return Source(program), extra_vars or _default_names()


def parse(
    program: str | type | Callable[..., Any],
    extra_vars: dict[str, Any] | None = None,
    check_well_formed: bool = True,
    *,
    trusted: bool = False,
) -> Any:
    """Parse a function, class or text into a function or module; ``extra_vars`` are the names it may use.

    Functions and classes are code of whoever wrote them, and may compute with all of Python. Text is data, from which
    nothing can be done but to make a program (see :mod:`.text_evaluator`), unless it is said to be ``trusted``.
    Raises DiagnosticError for what cannot be parsed, or is not allowed.
    """
    if isinstance(program, str):
        check_text(program)
    source = Source(program)
    parser = Parser(source, _annotations(program), trusted or not isinstance(program, str))
    names = _default_names() if extra_vars is None else dict(extra_vars)
    with IRBuilder() as builder:
        parser.parse(names)
    try:
        result = builder.get()
    except IndexError:
        raise DiagnosticError("There is no function and no module in this program.") from None
    if check_well_formed:
        _check(result, parser, source)
    if not isinstance(program, str):
        result.__name__ = program.__name__
    return result


from_source = parse


def _check(result: Function | IRModule | PrimFunc, parser: Parser, source: Source) -> None:
    problems = [*_tensor_problems(result), *_graph_problems(result)]
    if problems:
        raise parser.error(
            source.as_ast().body[0],
            "Program is not well-formed. If this is deliberate, consider setting check_well_formed in the "
            "top-level decorator to False. " + "; ".join(problems),
        )


def _tensor_problems(result: Function | IRModule | PrimFunc) -> list[str]:
    if not isinstance(result, (IRModule, PrimFunc)):
        return []
    try:
        verify_well_formed(result, assert_mode=True)
    except ValueError as error:
        return [str(error)]
    return []


def _graph_problems(result: Function | IRModule | PrimFunc) -> list[str]:
    return [] if isinstance(result, PrimFunc) else find_ill_formed(result)
