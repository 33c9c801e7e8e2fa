"""Tuning time by named sections, timed by the code that runs inside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

__all__ = ["Profiler"]

_ACTIVE: list[Profiler] = []


class Profiler:
    """Collects section times while it is the innermost active profiler.

    >>> with Profiler() as profiler:
    ...     with Profiler.timeit("Work"):
    ...         pass
    >>> sorted(profiler.get())
    ['Total', 'Work']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._begin = 0.0

    def __enter__(self) -> Profiler:
        self._begin = time.perf_counter()
        _ACTIVE.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _ACTIVE.remove(self)
        self.add("Total", time.perf_counter() - self._begin)

    def add(self, name: str, seconds: float) -> None:
        """Book ``seconds`` on a section."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + 1

    def get(self) -> dict[str, float]:
        """Seconds by section."""
        return dict(self._seconds)

    def table(self) -> str:
        """The sections as text, longest first, with their share of the total."""
        total = self._seconds.get("Total") or sum(self._seconds.values()) or 1.0
        rows = sorted(self._seconds.items(), key=lambda item: -item[1])
        width = max([len(name) for name, _ in rows] + [4])
        lines = [f"{'Name':<{width}} | {'Time (min)':>10} | {'Percentage':>10} | {'Count':>6}"]
        lines.append("-" * len(lines[0]))
        lines += [f"{n:<{width}} | {s / 60:>10.4f} | {100 * s / total:>9.2f}% | {self._counts[n]:>6}" for n, s in rows]
        return "\n".join(lines)

    @staticmethod
    def current() -> Profiler | None:
        """The innermost active profiler."""
        return _ACTIVE[-1] if _ACTIVE else None

    @staticmethod
    @contextlib.contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Time a block under ``name``; costs nothing when no profiler is active."""
        profiler = Profiler.current()
        if profiler is None:
            yield
            return
        begin = time.perf_counter()
        try:
            yield
        finally:
            profiler.add(name, time.perf_counter() - begin)
