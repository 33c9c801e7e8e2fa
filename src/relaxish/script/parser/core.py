"""The parser: walks the syntax tree and drives the IR builder, dialect by dialect."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.node import Node
from ...support.errors import DiagnosticError
from ..ir_builder.base import IRBuilder
from .evaluator import OVERLOADS, Evaluator, find_overload
from .scope import VarTable
from .source import Source

__all__ = ["Parser", "current_parser", "dialect", "dispatch_token_of"]

_VISITORS: dict[tuple[str, str], Callable[[Parser, Any], Any]] = {}
_LOCAL = threading.local()
BindValue = Callable[["Parser", Any, str, Any], Any]


def dialect(token: str, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what a dialect does with kinds of syntax nodes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _VISITORS[(token, name)] = function
        return function

    return register


def current_parser() -> Parser:
    """The parser at work in this thread. Raises RuntimeError outside of parsing."""
    stack = getattr(_LOCAL, "stack", None)
    if not stack:
        raise RuntimeError("macros can only be called inside of the functions being parsed")
    found: Parser = stack[-1]
    return found


def dispatch_token_of(parser: Parser, node: ast.FunctionDef) -> str:
    """The dialect a function definition is decorated for."""
    if not node.decorator_list:
        raise parser.error(node, "Function must be decorated")
    decorator = node.decorator_list[-1]
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    found = getattr(parser.eval(decorator), "dispatch_token", None)
    if found is None:
        raise parser.error(decorator, "The parser does not understand the decorator")
    return str(found)


class Parser:
    """State of one parsing."""

    def __init__(self, source: Source, annotations: dict[str, dict[str, Any]]) -> None:
        self.source = source
        self.var_table = VarTable()
        self.tokens: list[str] = ["default"]
        self.annotations = annotations
        self.inside_function = False
        self.evaluator = Evaluator(self._lookup, self._failure, self._note)

    # Names and expressions.

    def _lookup(self, name: str) -> Any:
        return self.var_table.lookup(name)

    def _failure(self, node: Any, problem: Any) -> DiagnosticError:
        return self.error(node, problem)

    def _note(self, node: Any, value: Any) -> None:
        # Operands already have their own positions; a node made just now has none yet.
        if isinstance(value, PrimExpr) and value.span is None:
            value.span = self.source.span(node)
        elif isinstance(value, Node) and not isinstance(value, PrimExpr):
            if "span" in type(value)._specs and getattr(value, "span", True) is None:
                object.__setattr__(value, "span", self.source.span(node))

    def error(self, node: Any, problem: Any) -> DiagnosticError:
        """A located error, ready to be raised."""
        if isinstance(problem, DiagnosticError):
            return problem
        return self.source.error(node, problem)

    def eval(self, node: Any, extra: dict[str, Any] | None = None) -> Any:
        """The value of an expression."""
        evaluator = self.evaluator.nested(extra) if extra else self.evaluator
        return evaluator.eval(node)

    def assign(self, target: Any, value: Any, bind: BindValue, shadow: bool = False) -> None:
        """Bind the names in an assignment's target."""
        if isinstance(target, ast.Name):
            bound = self.guard(target, lambda: bind(self, target, target.id, value))
            self.guard(target, lambda: self.var_table.add(target.id, bound, shadow))
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, bind, shadow)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, bind, shadow)
        else:
            raise self.error(target, f"cannot assign to {type(target).__name__}")

    def _unpack(self, target: Any, value: Any, bind: BindValue, shadow: bool) -> None:
        values = self.guard(target, lambda: list(value))
        elements = target.elts
        star = next((i for i, e in enumerate(elements) if isinstance(e, ast.Starred)), None)
        if star is None:
            if len(values) != len(elements):
                raise self.error(target, f"cannot unpack {len(values)} values into {len(elements)} names")
        else:
            if len(values) < len(elements) - 1:
                raise self.error(target, f"not enough values to unpack: {len(values)}")
            after = len(elements) - star - 1
            middle = values[star : len(values) - after]
            values = [*values[:star], middle, *values[len(values) - after :]]
        for element, item in zip(elements, values):
            self.assign(element, item, bind, shadow)

    def guard(self, node: Any, action: Callable[[], Any]) -> Any:
        """Run an action; exceptions become errors at ``node``."""
        try:
            return action()
        except DiagnosticError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem

    # Statements.

    @contextmanager
    def with_token(self, token: str) -> Iterator[None]:
        """Parse in a dialect."""
        self.tokens.append(token)
        try:
            yield
        finally:
            self.tokens.pop()

    @contextmanager
    def with_source(self, source: Source) -> Iterator[None]:
        """Report positions in another source, for macros."""
        saved, self.source = self.source, source
        try:
            yield
        finally:
            self.source = saved

    def visit(self, node: Any) -> Any:
        """Parse one statement."""
        name = type(node).__name__
        visitor = _VISITORS.get((self.tokens[-1], name)) or _VISITORS.get(("default", name))
        if visitor is None:
            raise self.error(node, f"{name} statements are not supported")
        builder = IRBuilder.current()
        outer, builder.span = builder.span, self.source.span(node)
        try:
            return visitor(self, node)
        except DiagnosticError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem
        finally:
            builder.span = outer

    def visit_body(self, nodes: list[Any]) -> None:
        """Parse statements in order."""
        for node in nodes:
            self.visit(node)

    def visit_function(self, node: ast.FunctionDef, action: str = "FunctionDef") -> Any:
        """Parse (or, with ``declare``, only declare) a function in the dialect of its decorator."""
        token = dispatch_token_of(self, node)
        visitor = _VISITORS.get((token, action))
        if visitor is None:
            raise self.error(node, f"the parser has no rule for functions of {token!r}")
        try:
            return visitor(self, node)
        except DiagnosticError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem

    def parse(self, names: dict[str, Any]) -> None:
        """Parse the whole source under the given names."""
        tree = self.source.parse()
        stack = getattr(_LOCAL, "stack", None)
        if stack is None:
            stack = _LOCAL.stack = []
        stack.append(self)
        try:
            with self.var_table.with_frame():
                for name, value in names.items():
                    self.var_table.add(name, value)
                for node in tree.body:
                    self.visit(node)
        finally:
            stack.pop()


def decorator_option(parser: Parser, node: ast.FunctionDef, name: str, default: Any) -> Any:
    """A keyword of the decorator call, or ``default``."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            for keyword in decorator.keywords:
                if keyword.arg == name:
                    return parser.eval(keyword.value)
    return default


@dialect("default", "FunctionDef")
def _function(parser: Parser, node: Any) -> None:
    parser.visit_function(node)


@dialect("default", "Pass", "Import", "ImportFrom")
def _nothing(parser: Parser, node: Any) -> None:
    return None


@dialect("default", "Expr")
def _expression(parser: Parser, node: Any) -> None:
    parser.eval(node.value)


def _bind_plain(parser: Parser, node: Any, name: str, value: Any) -> Any:
    return value


@dialect("default", "Assign")
def _assign(parser: Parser, node: Any) -> None:
    value = parser.eval(node.value)
    for target in node.targets:
        parser.assign(target, value, _bind_plain)


__all__ += ["OVERLOADS", "decorator_option", "find_overload"]
