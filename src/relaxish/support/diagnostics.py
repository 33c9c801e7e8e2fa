"""Located messages with the offending source lines underlined.

A diagnostic renders as::

    error: undefined variable 'y'
      --> model.py:7:13
       |
     7 |     z = x + y
       |             ^ not defined in this scope
       |
       = help: did you mean 'x'?

Spans are anything with ``line``, ``column``, ``end_line``, ``end_column`` and ``source_name`` attributes.
"""

from __future__ import annotations

import enum
import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import DiagnosticError


Renderer = Callable[["DiagnosticContext"], Any]
_OVERRIDE: list[Renderer] = []


def override_renderer(render_func: Renderer | None) -> None:
    """Let ``render_func`` see every context that is rendered, before its errors are raised; None undoes it.

    >>> seen = []
    >>> override_renderer(lambda context: seen.extend(context.diagnostics))
    >>> error = fail("no such name")
    >>> override_renderer(None)
    >>> [d.message for d in seen]
    ['no such name']
    """
    _OVERRIDE[:] = [] if render_func is None else [render_func]


class SpanLike(Protocol):
    """Interface of a location for diagnostics."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def end_line(self) -> int: ...
    @property
    def end_column(self) -> int: ...


class Severity(enum.IntEnum):
    """Severity of a diagnostic; ``ERROR`` and ``BUG`` make :meth:`DiagnosticContext.render` raise."""

    HELP = 10
    NOTE = 20
    WARNING = 30
    ERROR = 40
    BUG = 50


@dataclass(frozen=True)
class Diagnostic:
    """One message: severity, text, where, a label at the caret, and further notes."""

    severity: Severity
    message: str
    span: SpanLike | None = None
    label: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def level(self) -> Severity:
        """Severity of the diagnostic."""
        return self.severity

    def render(self, source: str | None = None) -> str:
        """The message with its source lines; ``source`` overrides what is found on disk."""
        name = "internal error" if self.severity is Severity.BUG else self.severity.name.lower()
        lines = [f"{name}: {self.message}"]
        gutter = " "
        if self.span is not None:
            snippet, gutter = _snippet(self.span, source, self.label)
            lines += snippet
        lines += [f"{gutter} = {note}" for note in self.notes]
        return "\n".join(lines)


def source_name_of(span: Any) -> str:
    """The file name of a span, whether it is held as text or as an object with a ``name``."""
    name = getattr(span, "source_name", None)
    return str(getattr(name, "name", name) if name is not None else "<unknown>")


def _source_line(span: SpanLike, source: str | None, number: int) -> str | None:
    if source is not None:
        lines = source.splitlines()
        return lines[number - 1] if 1 <= number <= len(lines) else None
    text = linecache.getline(source_name_of(span), number)
    return text.rstrip("\n") if text else None


def _snippet(span: SpanLike, source: str | None, label: str) -> tuple[list[str], str]:
    width = len(str(max(span.end_line, span.line)))
    gutter = " " * (width + 1)
    out = [f"{gutter}--> {source_name_of(span)}:{span.line}:{span.column}"]
    first = _source_line(span, source, span.line)
    if first is None:
        return out, gutter
    out.append(f"{gutter} |")
    last_line = min(max(span.end_line, span.line), span.line + 7)
    for number in range(span.line, last_line + 1):
        text = _source_line(span, source, number)
        if text is None:
            break
        text = text.replace("\t", " ")
        begin = span.column - 1 if number == span.line else len(text) - len(text.lstrip())
        end = span.end_column - 1 if number == span.end_line else len(text)
        mark = "^" * max(1, end - begin)
        note = f" {label}" if label and number == last_line else ""
        out.append(f" {number:>{width}} | {text}")
        out.append(f"{gutter} | {' ' * max(0, begin)}{mark}{note}")
    return out, gutter


def render_all(diagnostics: Iterable[Diagnostic], source: str | None = None) -> str:
    """All messages, a blank line between them."""
    return "\n\n".join(d.render(source) for d in diagnostics)


class DiagnosticContext:
    """Collects diagnostics of one piece of work and raises them together.

    Collect with :meth:`error` and friends, then call :meth:`render`; it raises when there was an error.
    """

    def __init__(self, source: str | None = None) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def emit(self, diagnostic: Diagnostic) -> None:
        """Remember one diagnostic."""
        self.diagnostics.append(diagnostic)

    def error(self, message: str, span: SpanLike | None = None, label: str = "", notes: Sequence[str] = ()) -> None:
        """Remember an error."""
        self.emit(Diagnostic(Severity.ERROR, message, span, label, tuple(notes)))

    def warning(self, message: str, span: SpanLike | None = None, label: str = "", notes: Sequence[str] = ()) -> None:
        """Remember a warning."""
        self.emit(Diagnostic(Severity.WARNING, message, span, label, tuple(notes)))

    def render(self) -> str:
        """The text of all messages; raises :class:`DiagnosticError` if any of them is an error."""
        for renderer in _OVERRIDE:
            renderer(self)
        text = render_all(self.diagnostics, self.source)
        if any(d.severity >= Severity.ERROR for d in self.diagnostics):
            raise DiagnosticError(text, self.diagnostics)
        return text


def fail(
    message: str, span: SpanLike | None = None, *, label: str = "", notes: Sequence[str] = (), source: str | None = None
) -> DiagnosticError:
    """Build (not raise) a :class:`DiagnosticError` of one message; write ``raise fail(...)``."""
    context = DiagnosticContext(source)
    context.error(message, span, label, notes)
    for renderer in _OVERRIDE:
        renderer(context)
    return DiagnosticError(render_all(context.diagnostics, source), context.diagnostics)


DiagnosticLevel = Severity
