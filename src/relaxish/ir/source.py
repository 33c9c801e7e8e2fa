"""Source positions carried by nodes."""

from __future__ import annotations

from .node import Node, field

__all__ = ["SourceName", "Span"]


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
