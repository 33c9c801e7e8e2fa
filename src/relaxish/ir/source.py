"""Source positions carried by nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .node import Node, field

__all__ = ["Reason", "SequentialSpan", "SourceName", "Span"]


class SourceName(Node):
    """The name of a source: a file path or ``<string>``."""

    name: str = field(role="attr")


class Span(Node):
    """A stretch of source text, lines and columns counted from 1."""

    source_name: SourceName = field(role="attr")
    line: int = field(role="attr")
    end_line: int = field(role="attr")
    column: int = field(role="attr")
    end_column: int = field(role="attr")


class Reason(Span):
    """Why the compiler put in what no source has, in words that an error may repeat. It has no lines."""

    def __init__(self, text: str) -> None:
        self.source_name = SourceName(text)
        self.line = self.end_line = self.column = self.end_column = 0

    @classmethod
    def _make(cls, **fields: Any) -> Reason:
        return cls(fields["source_name"].name)

    @property
    def text(self) -> str:
        """The words."""
        return self.source_name.name


class SequentialSpan(Span):
    """Several stretches of source that made one node, in order; as a span it covers them all."""

    spans: tuple[Span, ...] = field(role="attr", default=())

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        if not self.spans:
            raise ValueError("a sequential span needs at least one span")
        first, last = self.spans[0], self.spans[-1]
        self.source_name = first.source_name
        self.line, self.column = first.line, first.column
        self.end_line, self.end_column = last.end_line, last.end_column

    @classmethod
    def _make(cls, **fields: Any) -> SequentialSpan:
        return cls(fields["spans"])
