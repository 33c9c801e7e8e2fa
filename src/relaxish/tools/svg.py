"""Small charts as inline SVG, with no external assets."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

PALETTE = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#475569", "#b45309")
_W, _H, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 300, 70, 40, 12, 12


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    span = high - low or 1.0
    step = 10.0 ** math.floor(math.log10(span / count))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= count:
            step *= factor
            break
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**p for p in powers for m in (1, 2, 5) if low * 0.999 <= m * 10.0**p <= high * 1.001]
    return (
        ticks
        if len(ticks) <= 9
        else [t for t in ticks if math.isclose(math.log10(t) % 1.0, 0.0, abs_tol=1e-6)] or ticks[::3]
    )


class Axes:
    """A plot area mapping data to pixels."""

    def __init__(
        self, xs: Sequence[float], ys: Sequence[float], *, x_label: str, y_label: str, log_y: bool = False
    ) -> None:
        self.x0, self.x1 = (min(xs), max(xs)) if xs else (0.0, 1.0)
        self.y0, self.y1 = (min(ys), max(ys)) if ys else (0.0, 1.0)
        self.log_y = log_y and self.y0 > 0
        if self.x1 == self.x0:
            self.x1 = self.x0 + 1
        if self.y1 == self.y0:
            self.y1 = self.y0 * 1.1 if self.y0 else 1.0
        self.parts: list[str] = []
        self._frame(x_label, y_label)

    def x(self, value: float) -> float:
        """Pixel of an x value."""
        return _LEFT + (value - self.x0) / (self.x1 - self.x0) * (_W - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Pixel of a y value."""
        low, high = (math.log(self.y0), math.log(self.y1)) if self.log_y else (self.y0, self.y1)
        here = math.log(value) if self.log_y else value
        return _H - _BOTTOM - (here - low) / (high - low) * (_H - _BOTTOM - _TOP)

    def _frame(self, x_label: str, y_label: str) -> None:
        bottom = _H - _BOTTOM
        for tick in _ticks(self.x0, self.x1):
            self.parts.append(f'<text x="{self.x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
        for tick in _log_ticks(self.y0, self.y1) if self.log_y else _ticks(self.y0, self.y1):
            y = self.y(tick)
            self.parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
        self.parts.append(
            f'<text x="{(_LEFT + _W) / 2}" y="{_H - 6}" text-anchor="middle">{html.escape(x_label)}</text>'
        )
        self.parts.append(
            f'<text transform="translate(14 {_H / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>'
        )

    def steps(self, points: Sequence[tuple[float, float]], color: str, title: str) -> None:
        """A curve that stays level between points."""
        if not points:
            return
        path = f"M{self.x(points[0][0]):.1f} {self.y(points[0][1]):.1f}"
        for x, y in points[1:]:
            path += f"H{self.x(x):.1f}V{self.y(y):.1f}"
        self.parts.append(f'<path class="curve" stroke="{color}" d="{path}"><title>{html.escape(title)}</title></path>')

    def dots(self, points: Sequence[tuple[float, float]], color: str) -> None:
        """Scattered points."""
        self.parts += [
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="2" fill="{color}" fill-opacity=".5"/>'
            for x, y in points
        ]

    def render(self) -> str:
        """The whole picture."""
        return f'<svg viewBox="0 0 {_W} {_H}" role="img">{"".join(self.parts)}</svg>'


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars: (label, value, text at the end)."""
    if not rows:
        return ""
    height = 22
    top = max(v for _, v, _ in rows) or 1.0
    parts = []
    for i, (label, value, text) in enumerate(rows):
        y = i * height
        width = value / top * 330
        parts.append(f'<text x="265" y="{y + 15}" text-anchor="end">{html.escape(label[:42])}</text>')
        parts.append(f'<rect x="272" y="{y + 3}" width="{width:.1f}" height="15" fill="{PALETTE[i % len(PALETTE)]}"/>')
        parts.append(f'<text x="{278 + width:.1f}" y="{y + 15}">{html.escape(text)}</text>')
    return f'<svg viewBox="0 0 {_W} {height * len(rows) + 4}" role="img">{"".join(parts)}</svg>'
