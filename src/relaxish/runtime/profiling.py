"""Reports of where a call spends its time, one row for each function called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .ndarray import NDArray


@dataclass(frozen=True)
class CallRecord:
    """One timed call."""

    name: str
    seconds: float
    device: str
    argument_shapes: str


class Report:
    """The calls of one run in order; ``str()`` and :meth:`table` aggregate them by name and shapes."""

    def __init__(self, calls: Sequence[CallRecord], total: float) -> None:
        self.calls = list(calls)
        self.total = total

    def rows(self, aggregate: bool = True, sort: bool = True) -> list[tuple[str, float, float, int, str, str]]:
        """(name, seconds, percent, count, device, argument shapes)."""
        merged: dict[Any, list[float]] = {}
        for i, call in enumerate(self.calls):
            key = (call.name, call.device, call.argument_shapes, None if aggregate else i)
            merged.setdefault(key, []).append(call.seconds)
        total = self.total or 1e-12
        rows = [(k[0], sum(v), 100 * sum(v) / total, len(v), k[1], k[2]) for k, v in merged.items()]
        return sorted(rows, key=lambda r: -r[1]) if sort else rows

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """A text table."""
        rows = self.rows(aggregate, sort)
        width = max([len(r[0]) for r in rows] + [8])
        lines = [
            f"{'Name':<{width}}  {'Duration (us)':>14}  {'Percent':>8}  {'Count':>6}  {'Device':<8}  Argument Shapes"
        ]
        lines += [f"{n:<{width}}  {s * 1e6:>14.2f}  {p:>8.2f}  {c:>6}  {d:<8}  {a}" for n, s, p, c, d, a in rows]
        if col_sums:
            spent = sum(r[1] for r in rows)
            lines.append("-" * (width + 44))
            share = 100 * spent / (self.total or 1e-12)
            lines.append(f"{'Sum':<{width}}  {spent * 1e6:>14.2f}  {share:>8.2f}  {len(self.calls):>6}")
            lines.append(f"{'Total':<{width}}  {self.total * 1e6:>14.2f}")
        return "\n".join(lines)

    def csv(self) -> str:
        """Comma separated rows, not aggregated."""
        lines = ["Name,Duration (us),Percent,Device,Argument Shapes"]
        total = self.total or 1e-12
        lines += [
            f'{c.name},{c.seconds * 1e6},{100 * c.seconds / total},{c.device},"{c.argument_shapes}"' for c in self.calls
        ]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The calls as JSON."""
        calls = [
            {"Name": c.name, "Duration (us)": c.seconds * 1e6, "Device": c.device, "Argument Shapes": c.argument_shapes}
            for c in self.calls
        ]
        return json.dumps({"calls": calls, "total_us": self.total * 1e6})

    __str__ = table


def shapes_of(args: Sequence[Any]) -> str:
    """Argument shapes in short form, ``float32[1, 3, 224, 224], float32[64]``."""
    return ", ".join(f"{a.dtype}{list(a.shape)}" for a in args if isinstance(a, NDArray))


class Timer:
    """Start and stop a clock on a device."""

    def __init__(self, device: Any = None) -> None:
        self.device = device
        self.elapsed = 0.0
        self._begin = 0.0

    def __enter__(self) -> Timer:
        import time

        self._begin = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        import time

        self.elapsed = time.perf_counter() - self._begin
