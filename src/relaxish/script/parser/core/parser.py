"""The parser: walks the syntax tree and drives the IR builder, dialect by dialect."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from ....ir.expr import PrimExpr
from ....ir.node import Node
from ....support.errors import DiagnosticError
from ...ir_builder.base import IRBuilder
from . import dispatch
from .diagnostics import Diagnostics, Source
from .evaluator import Evaluator, unpack
from .text_evaluator import TextEvaluator
from .var_table import VarTable, VarTableFrame

__all__ = ["Parser", "VarTable", "VarTableFrame", "current_parser", "decorator_option", "evaluate_text"]

_LOCAL = threading.local()
_T = TypeVar("_T")
BindValue = Callable[["Parser", Any, str, Any], Any]


def current_parser() -> Parser:
    """The parser at work in this thread. Raises RuntimeError outside of parsing."""
    stack = getattr(_LOCAL, "stack", None)
    if not stack:
        raise RuntimeError("macros can only be called inside of the functions being parsed")
    found: Parser = stack[-1]
    return found


class Parser:
    """State of one parsing."""

    def __init__(self, source: Source, annotations: dict[str, dict[str, Any]], trusted: bool = True) -> None:
        self.diag = Diagnostics(source)
        self.var_table = VarTable()
        self.dispatch_tokens: list[str] = ["default"]
        self.function_annotations = annotations
        self.inside_function = False
        kind = Evaluator if trusted else TextEvaluator
        self.evaluator = kind(self._lookup, self.error, self.note)

    @property
    def source(self) -> Source:
        """Location of the parsed text."""
        return self.diag.source

    # Names and expressions.

    def _lookup(self, name: str) -> Any:
        return self.var_table.lookup(name)

    def note(self, node: ast.AST, value: object) -> None:
        """Give a value made just now the position of its expression."""
        # Operands already have their own positions; a node made just now has none yet.
        match value:
            case PrimExpr():
                if value.span is None:
                    value.span = self.source.span(node)
            case Node():
                if "span" in type(value)._specs and getattr(value, "span", True) is None:
                    object.__setattr__(value, "span", self.source.span(node))

    def error(self, node: ast.AST, problem: str | BaseException) -> DiagnosticError:
        """A located error, ready to be raised."""
        if isinstance(problem, DiagnosticError):
            return problem
        return self.source.error(node, problem)

    def report_error(self, node: ast.AST, err: str | BaseException) -> NoReturn:
        """Raise a located error."""
        raise self.error(node, err)

    def eval_expr(self, node: ast.AST, extra_vars: dict[str, Any] | None = None) -> Any:
        """The value of an expression."""
        evaluator = self.evaluator.nested(extra_vars) if extra_vars else self.evaluator
        return evaluator.eval(node)

    def eval_assign(
        self, target: ast.expr, source: object, bind_value: BindValue, allow_shadowing: bool = False
    ) -> None:
        """Bind the names in an assignment's target."""
        match target:
            case ast.Name():
                bound = self.guard(target, lambda: bind_value(self, target, target.id, source))
                self.guard(target, lambda: self.var_table.add(target.id, bound, allow_shadowing))
            case ast.Tuple() | ast.List():
                self._unpack(target, source, bind_value, allow_shadowing)
            case ast.Starred():
                self.eval_assign(target.value, source, bind_value, allow_shadowing)
            case _:
                raise self.error(target, f"cannot assign to {type(target).__name__}")

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, bind: BindValue, shadow: bool) -> None:
        elements = target.elts
        values = self.guard(target, lambda: unpack(value, elements))
        for element, item in zip(elements, values):
            self.eval_assign(element, item, bind, shadow)

    def guard(self, node: ast.AST, action: Callable[[], _T]) -> _T:
        """Run an action; exceptions become errors at ``node``."""
        try:
            return action()
        except DiagnosticError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem

    # Statements.

    @contextmanager
    def with_dispatch_token(self, token: str) -> Iterator[None]:
        """Parse in a dialect."""
        self.dispatch_tokens.append(token)
        try:
            yield
        finally:
            self.dispatch_tokens.pop()

    @contextmanager
    def with_diag_source(self, source: Source) -> Iterator[None]:
        """Report positions in another source, for macros."""
        saved, self.diag = self.diag, Diagnostics(source)
        try:
            yield
        finally:
            self.diag = saved

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Parse the body of a macro: Python code of whoever defined it, also where text uses it."""
        saved, self.evaluator = self.evaluator, Evaluator(self._lookup, self.error, self.note)
        try:
            yield
        finally:
            self.evaluator = saved

    def visit(self, node: ast.AST) -> object:
        """Parse one statement."""
        name = type(node).__name__
        visitor = dispatch.get(self.dispatch_tokens[-1], name) or dispatch.get("default", name)
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

    def get_dispatch_token(self, node: ast.AST) -> str:
        """The dialect a function definition is decorated for."""
        if not isinstance(node, ast.FunctionDef):
            raise self.error(node, "Only can get dispatch token for function.")
        if not node.decorator_list:
            raise self.error(node, "Function must be decorated")
        decorator = node.decorator_list[-1]
        # Options are read later, by the dialect; evaluating the call would run the decorator.
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        found = getattr(self.eval_expr(target), "dispatch_token", None)
        if found is None:
            raise self.error(node, "The parser does not understand the decorator")
        return str(found)

    def visit_function(self, node: ast.FunctionDef, action: str = "FunctionDef") -> object:
        """Parse (or, with ``tvm_declare_function``, only declare) a function in the dialect of its decorator."""
        token = self.get_dispatch_token(node)
        visitor = dispatch.get(token, action)
        if visitor is None:
            raise self.error(node, f"the parser has no rule for functions of {token!r}")
        try:
            return visitor(self, node)
        except DiagnosticError:
            raise
        except Exception as problem:
            raise self.error(node, problem) from problem

    def parse(self, extra_vars: dict[str, Any] | None = None) -> None:
        """Parse the whole source under the given names."""
        tree = self.source.as_ast()
        stack = getattr(_LOCAL, "stack", None)
        if stack is None:
            stack = _LOCAL.stack = []
        stack.append(self)
        try:
            with self.var_table.with_frame():
                for name, value in (extra_vars or {}).items():
                    self.var_table.add(name, value)
                for node in tree.body:
                    self.visit(node)
        finally:
            stack.pop()


def evaluate_text(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression given as a string, such as a size in an annotation.

    Within a program it may do what the program's own expressions may; anywhere else it is text from anywhere. Raises
    DiagnosticError.
    """

    def fail(_: ast.AST, problem: str | BaseException) -> DiagnosticError:
        return problem if isinstance(problem, DiagnosticError) else DiagnosticError(str(problem))

    try:
        tree = ast.parse(text, mode="eval")
    except (RecursionError, MemoryError, ValueError) as problem:
        raise DiagnosticError(f"the expression is nested too deeply or is not text: {problem}") from None
    stack = getattr(_LOCAL, "stack", None)
    kind: type[Evaluator] = type(stack[-1].evaluator) if stack else TextEvaluator
    return kind(names.__getitem__, fail, lambda *_: None).eval(tree.body)


def decorator_option(parser: Parser, node: ast.FunctionDef, name: str, default: object) -> object:
    """A keyword of the decorator call, or ``default``."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            for keyword in decorator.keywords:
                if keyword.arg == name:
                    return parser.eval_expr(keyword.value)
    return default


@dispatch.register("default", "FunctionDef")
def _function(parser: Parser, node: ast.FunctionDef) -> None:
    parser.visit_function(node)


@dispatch.register("default", "Pass", "Import", "ImportFrom", "Nonlocal", "Global")
def _nothing(parser: Parser, node: ast.AST) -> None:
    return None


@dispatch.register("default", "Expr")
def _expression(parser: Parser, node: ast.Expr) -> None:
    parser.eval_expr(node.value)


def _bind_plain(parser: Parser, node: ast.AST, name: str, value: _T) -> _T:
    return value


@dispatch.register("default", "Assign")
def _assign(parser: Parser, node: ast.Assign) -> None:
    value = parser.eval_expr(node.value)
    for target in node.targets:
        parser.eval_assign(target, value, _bind_plain)
