"""Source text of what is parsed, and where errors in it are."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

from ....ir.source import SourceName, Span
from ....support.diagnostics import fail
from ....support.errors import DiagnosticError

__all__ = ["Diagnostics", "Source", "findsource", "getsourcelines"]


class Source:
    """A dedented piece of source text with the place it came from.

    >>> Source("x = 1").as_ast().body[0].value.value
    1
    """

    def __init__(self, program: str | Callable[..., Any] | type) -> None:
        self._span_name: SourceName | None = None
        if isinstance(program, str):
            self.source_name = "<str>"
            self.start_line = 1
            self.source = textwrap.dedent(program)
            self.full_source = program
            self.start_column = _indent(program) - _indent(self.source)
            return
        self.source_name = inspect.getsourcefile(program) or "<unknown>"
        lines, self.start_line = getsourcelines(program)
        self.start_column = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
        self.source = "".join(_shifted(line, self.start_column) for line in lines)
        self.full_source = "".join(linecache.getlines(self.source_name)) or self.source

    def as_ast(self) -> ast.Module:
        """The syntax tree. Raises DiagnosticError on bad syntax."""
        try:
            return ast.parse(self.source)
        except SyntaxError as error:
            line, column = error.lineno or 1, error.offset or 1
            span = self._make(line, column - 1, line, column)
            raise fail(f"invalid syntax: {error.msg}", span, source=self.full_source) from None
        except (RecursionError, MemoryError, ValueError) as error:
            raise DiagnosticError(f"the script is nested too deeply or is not text: {error}") from None

    def _make(self, line: int, column: int, end_line: int, end_column: int) -> Span:
        if self._span_name is None:
            self._span_name = SourceName(self.source_name)
        return Span(
            self._span_name,
            self.start_line + line - 1,
            self.start_line + end_line - 1,
            self.start_column + column + 1,
            self.start_column + end_column + 1,
        )

    def span(self, node: ast.AST) -> Span | None:
        """Location of a syntax node."""
        line = getattr(node, "lineno", None)
        if line is None:
            return None
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        return self._make(line, column, end_line, column + 1 if end_column is None else end_column)

    def error(self, node: ast.AST, message: str | BaseException) -> DiagnosticError:
        """An error at a syntax node, ready to be raised."""
        text = str(message)
        if isinstance(message, BaseException) and not text:
            text = type(message).__name__
        if isinstance(message, KeyError):
            text = f"KeyError: {text}"
        return fail(text, self.span(node), source=self.full_source)


class Diagnostics:
    """Errors in one source."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def error(self, node: ast.AST, message: str | BaseException) -> None:
        """Raise DiagnosticError at a syntax node."""
        raise self.source.error(node, message)


def _shifted(line: str, columns: int) -> str:
    """A line moved to the left; comments may stand further left than the program does."""
    return line[min(columns, len(line) - len(line.lstrip(" \t"))) :]


def _indent(text: str) -> int:
    for line in text.splitlines():
        if line.strip():
            return len(line) - len(line.lstrip())
    return 0


def getsourcelines(program: type | Callable[..., Any]) -> tuple[list[str], int]:
    """The lines of a function or class, decorators included, and the number of the first."""
    if inspect.isclass(program):
        return _class_lines(program)
    lines, start = inspect.getsourcelines(program)
    return lines, max(start, 1)


def _class_lines(program: type) -> tuple[list[str], int]:
    """The source of a class; of several with one name, the one that holds its functions' first lines."""
    anchors = [v.__code__.co_firstlineno for v in vars(program).values() if inspect.isfunction(v)]
    filename = _class_file(program)
    source = linecache.getlines(filename) if filename else []
    if not source:
        return inspect.getsourcelines(program)
    name = program.__qualname__.rsplit(".", 1)[-1]
    best: Any = None
    for node in ast.walk(ast.parse("".join(source))):
        if isinstance(node, ast.ClassDef) and node.name == name:
            inside = all(node.lineno <= a <= (node.end_lineno or a) for a in anchors)
            if inside and (best is None or anchors or node.lineno > best.lineno):
                best = node
    if best is None:
        return inspect.getsourcelines(program)
    first = min([best.lineno, *[d.lineno for d in best.decorator_list]])
    return source[first - 1 : best.end_lineno], first


def _class_file(program: type) -> str | None:
    for value in vars(program).values():
        if inspect.isfunction(value):
            return value.__code__.co_filename
    try:
        return inspect.getsourcefile(program)
    except (TypeError, OSError):
        return None


def findsource(program: type | Callable[..., Any]) -> tuple[list[str], int]:
    """All lines of the file that defines a function or class, and the index of its first line there."""
    _, start = getsourcelines(program)
    return linecache.getlines(inspect.getsourcefile(program) or ""), start - 1
