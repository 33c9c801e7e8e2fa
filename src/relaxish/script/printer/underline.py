"""Line numbers, underlines and context of printed text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .config import PrinterConfig

__all__ = ["decorate"]

Span = tuple[int, int]
# Leaving out a single line would save nothing, because the note takes a line as well.
_FEWEST_TO_SKIP = 2


def _visible(spans: Sequence[Span], exempt: Sequence[Span]) -> list[Span]:
    """The union of the spans without the exempted stretches, sorted; stretches that touch are one."""
    edges = [(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans]
    weight = len(spans) + 1
    edges += [(start, -weight) for start, _ in exempt] + [(end, weight) for _, end in exempt]
    edges.sort()
    found: list[Span] = []
    depth = 0
    for (place, change), (following, _) in zip(edges, edges[1:]):
        depth += change
        if depth > 0 and place < following:
            if found and found[-1][1] == place:
                found[-1] = (found[-1][0], following)
            else:
                found.append((place, following))
    return found


class _Page:
    """The text by lines; a blank line between functions belongs to the line before it."""

    def __init__(self, text: str, starts: Sequence[int], config: PrinterConfig, spans: list[Span]) -> None:
        self.text, self.starts, self.config, self.spans = text, starts, config, spans
        self.count = len(starts) - 1 if starts[-1] == len(text) else len(starts)
        self.width = len(str(self.count)) + 1 if config.print_line_numbers else 0

    def line(self, index: int) -> Span:
        """Start of a line, and start of the next one."""
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        return self.starts[index], end

    def _marks(self, start: int, end: int) -> str:
        """The row of carets below a line, or nothing."""
        row: list[str] = []
        for first, last in self.spans:
            if first >= end or last <= start:
                continue
            for place in range(start, min(last, end)):
                if not self.text[place].isprintable():
                    continue
                column = sum(self.text[p].isprintable() for p in range(start, place))
                row.extend(" " * (column + 1 - len(row)))
                if place >= first:
                    row[column] = "^"
        return "".join(row)

    def show(self, first: int, last: int) -> str:
        """The lines of a range, numbered and underlined as asked for."""
        out: list[str] = []
        for index in range(first, last):
            start, end = self.line(index)
            number = f"{index + 1} ".rjust(self.width) if self.width else ""
            out.append(number + self.text[start:end])
            marks = self._marks(start, end)
            if marks:
                out.append(" " * self.width + marks + "\n")
        return "".join(out)

    def chunks(self) -> list[list[int]]:
        """Ranges of lines near underlines; ranges with next to nothing between them are one."""
        context = self.config.num_context_lines
        if context < 0:
            context = self.count
        found: list[list[int]] = []
        for first, last in self.spans:
            low = max(0, bisect_right(self.starts, first) - 1 - context)
            high = min(self.count, bisect_right(self.starts, last - 1) + context)
            if found and low < found[-1][1] + _FEWEST_TO_SKIP:
                found[-1][1] = high
            else:
                found.append([low, high])
        if found[0][0] < _FEWEST_TO_SKIP:
            found[0][0] = 0
        if self.count - found[-1][1] < _FEWEST_TO_SKIP:
            found[-1][1] = self.count
        return found


def _cut(lines: int) -> str:
    return f"(... {lines} lines skipped ...)\n" if lines else ""


def decorate(
    text: str, starts: Sequence[int], config: PrinterConfig, spans: Sequence[Span], exempt: Sequence[Span]
) -> str:
    """Add line numbers and underlines; far from any underline, keep only ``num_context_lines`` lines."""
    visible = _visible(spans, exempt)
    if not visible and not config.print_line_numbers:
        return text
    text = text.rstrip(" ")
    if text and not text.endswith("\n"):
        text += "\n"
    page = _Page(text, starts, config, visible)
    if not visible:
        return page.show(0, page.count)
    out: list[str] = []
    done = 0
    for first, last in page.chunks():
        out += [_cut(first - done), page.show(first, last)]
        done = last
    return "".join([*out, _cut(page.count - done)])
