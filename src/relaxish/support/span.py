"""Source locations: which file, which lines, which columns (both 1-based; ends are exclusive in columns)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceSpan:
    """A half-open region of a source text."""

    source_name: str
    line: int
    end_line: int
    column: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source_name}:{self.line}:{self.column}"

    def merge(self, other: SourceSpan) -> SourceSpan:
        """The smallest span covering both; both must come from the same source."""
        start = min((self.line, self.column), (other.line, other.column))
        end = max((self.end_line, self.end_column), (other.end_line, other.end_column))
        return SourceSpan(self.source_name, start[0], end[0], start[1], end[1])
