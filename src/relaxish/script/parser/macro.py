"""Macros: functions whose bodies are parsed in place of their calls."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from .core import Parser, current_parser
from .scope import VarTable
from .source import Source

__all__ = ["ScriptMacro", "TIRMacro"]


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
        for node in self.source.parse().body:
            if isinstance(node, ast.FunctionDef) and node.name == self.__name__:
                return node
        raise ValueError(f"cannot find the definition of macro {self.__name__}")

    def parse_body(self, parser: Parser) -> Any:
        """Parse the body at the place of the call."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.func).bind(*args, **kwargs)
        bound.apply_defaults()
        parser = current_parser()
        with parser.with_source(self.source):
            if not self.hygienic:
                with parser.var_table.with_frame():
                    return self._run(parser, bound.arguments)
            saved, parser.var_table = parser.var_table, VarTable()
            try:
                with parser.var_table.with_frame():
                    for name, value in self.closure_vars.items():
                        parser.var_table.add(name, value)
                    if "range" in saved.values:
                        parser.var_table.add("range", saved.lookup("range"), allow_shadowing=True)
                    with parser.var_table.with_frame():
                        return self._run(parser, bound.arguments)
            finally:
                parser.var_table = saved

    def _run(self, parser: Parser, arguments: Any) -> Any:
        for name, value in arguments.items():
            parser.var_table.add(name, value)
        return self.parse_body(parser)


class TIRMacro(ScriptMacro):
    """A macro of tensor statements."""

    def parse_body(self, parser: Parser) -> Any:
        with parser.with_token("tir"):
            parser.visit_body(self.definition().body)
