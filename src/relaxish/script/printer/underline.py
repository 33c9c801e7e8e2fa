"""Line numbers, underlines and context of printed text."""

from __future__ import annotations

from collections.abc import Sequence

from .config import PrinterConfig

__all__ = ["decorate"]

Span = tuple[int, int]


def _merge(spans: Sequence[Span], exempt: Sequence[Span]) -> list[Span]:
    """Sorted, disjoint spans without the exempted stretches."""
    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    result = [(a, b) for a, b in merged]
    for lo, hi in exempt:
        pieces: list[Span] = []
        for a, b in result:
            if hi <= a or b <= lo:
                pieces.append((a, b))
                continue
            if a < lo:
                pieces.append((a, lo))
            if hi < b:
                pieces.append((hi, b))
        result = pieces
    return result


def _marks(line: str, start: int, spans: Sequence[Span]) -> str:
    """The underline of one line; leading and trailing blanks stay free."""
    first = len(line) - len(line.lstrip())
    last = len(line.rstrip())
    marks = [" "] * last
    for a, b in spans:
        for i in range(max(a - start, first), min(b - start, last)):
            marks[i] = "^"
    return "".join(marks).rstrip()


def decorate(text: str, config: PrinterConfig, spans: Sequence[Span], exempt: Sequence[Span]) -> str:
    """Add line numbers and underlines; far from any underline, keep only ``num_context_lines`` lines."""
    spans = _merge(spans, exempt)
    if not spans and not config.print_line_numbers:
        return text
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    width = len(str(len(lines))) + 1 if config.print_line_numbers else 0
    starts, position = [], 0
    for line in lines:
        starts.append(position)
        position += len(line) + 1
    marks = [_marks(line, start, spans) for line, start in zip(lines, starts)]
    context = config.num_context_lines
    marked = [i for i, m in enumerate(marks) if m]
    if context < 0 or not marked:
        shown = [True] * len(lines)
    else:
        shown = [False] * len(lines)
        for i in marked:
            for j in range(max(0, i - context), min(len(lines), i + context + 1)):
                shown[j] = True
    out: list[str] = []
    i = 0
    while i < len(lines):
        if not shown[i]:
            j = i
            while j < len(lines) and not shown[j]:
                j += 1
            # A note that replaces a single line would save nothing.
            if j - i >= 2:
                out.append(" " * width + f"(... {j - i} lines skipped ...)")
                i = j
                continue
        number = f"{i + 1} ".rjust(width) if width else ""
        out.append(number + lines[i])
        if marks[i]:
            out.append(" " * width + marks[i])
        i += 1
    return "\n".join(out) + "\n"
