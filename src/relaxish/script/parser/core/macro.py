"""Macros: functions whose bodies are parsed in place of their calls."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .diagnostics import Source
from .parser import Parser, current_parser
from .var_table import VarTable

__all__ = ["ScriptMacro"]


class ScriptMacro:
    """A macro; hygienic ones see the names where they were defined, others those where they are used."""

    def __init__(self, function: Callable[..., Any], names: dict[str, Any], hygienic: bool) -> None:
        self.func = function
        self.closure_vars = names
        self.hygienic = hygienic
        self.source = Source(function)
        self.__name__ = function.__name__

    def definition(self) -> ast.FunctionDef:
        """The syntax tree of the macro."""
        for node in self.source.as_ast().body:
            if isinstance(node, ast.FunctionDef) and node.name == self.__name__:
                return node
        raise ValueError(f"cannot find the definition of macro {self.__name__}")

    def parse_body(self, parser: Parser) -> object:
        """Parse the body at the place of the call."""
        raise NotImplementedError

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        # In a class, a macro is a method: its first parameter is the object.
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.func).bind(*args, **kwargs)
        bound.apply_defaults()
        parser = current_parser()
        with parser.with_diag_source(self.source), parser.trusting():
            if not self.hygienic:
                with parser.var_table.with_frame():
                    return self._run(parser, bound.arguments)
            saved, parser.var_table = parser.var_table, VarTable()
            try:
                with parser.var_table.with_frame():
                    for name, value in self.closure_vars.items():
                        parser.var_table.add(name, value)
                    if "range" in saved.name2value:
                        parser.var_table.add("range", saved.lookup("range"), allow_shadowing=True)
                    with parser.var_table.with_frame():
                        return self._run(parser, bound.arguments)
            finally:
                parser.var_table = saved

    def _run(self, parser: Parser, arguments: Mapping[str, Any]) -> object:
        for name, value in arguments.items():
            parser.var_table.add(name, value)
        return self.parse_body(parser)
