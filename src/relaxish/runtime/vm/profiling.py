"""Reports of where a call spends its time, one row for each function called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...support.untrusted import malformed, parse_json
from .benchmark import HostTimer
from ..device import Device
from ..arrays.ndarray import NDArray


@dataclass(frozen=True)
class CallRecord:
    """One timed call."""

    name: str
    seconds: float
    device: str
    argument_shapes: str


@dataclass(frozen=True)
class Duration:
    """A time span."""

    microseconds: float


@dataclass(frozen=True)
class Percent:
    """A share of the whole."""

    percent: float


@dataclass(frozen=True)
class Count:
    """Counter of events in a report."""

    value: int


@dataclass(frozen=True)
class Ratio:
    """A quotient of two amounts."""

    ratio: float


_METRICS: tuple[tuple[str, type, str], ...] = (
    ("microseconds", Duration, "microseconds"),
    ("percent", Percent, "percent"),
    ("count", Count, "value"),
    ("ratio", Ratio, "ratio"),
)


def _plain(value: object) -> object:
    for key, kind, attribute in _METRICS:
        if isinstance(value, kind):
            return {key: getattr(value, attribute)}
    return {"string": value} if isinstance(value, str) else value


def _metric(data: object) -> object:
    if not isinstance(data, dict):
        return data
    for key, kind, _ in _METRICS:
        if key in data:
            return kind(data[key])
    return data.get("string", data)


def _shown(value: object) -> str:
    for _, kind, attribute in _METRICS:
        if isinstance(value, kind):
            number = getattr(value, attribute)
            return f"{number:,.2f}" if isinstance(number, float) else f"{number:,}"
    return str(value)


def _number(value: object) -> float:
    for _, kind, attribute in _METRICS:
        if isinstance(value, kind):
            return float(getattr(value, attribute))
    return 0.0


class Report:
    """The calls of one run.

    ``calls`` is one mapping of metric names to values for each call ("Name", "Duration (us)", "Percent", "Device",
    "Count", "Argument Shapes"), ``device_metrics`` the totals of each device. ``str()`` and :meth:`table` aggregate
    calls by name and shapes.
    """

    def __init__(
        self,
        calls: Sequence[Mapping[str, Any]],
        device_metrics: Mapping[str, Mapping[str, Any]],
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        self.calls = [dict(c) for c in calls]
        self.device_metrics = {name: dict(m) for name, m in device_metrics.items()}
        self.configuration = dict(configuration or {})

    @staticmethod
    def of_calls(records: Sequence[CallRecord], total: float) -> Report:
        """A report of timed calls within ``total`` seconds."""
        whole = total or 1e-12
        calls = [
            {
                "Name": r.name,
                "Argument Shapes": r.argument_shapes,
                "Duration (us)": Duration(r.seconds * 1e6),
                "Percent": Percent(100 * r.seconds / whole),
                "Device": r.device,
                "Count": Count(1),
            }
            for r in records
        ]
        device = records[0].device if records else "cpu(0)"
        totals = {device: {"Duration (us)": Duration(total * 1e6), "Percent": Percent(100.0), "Device": device}}
        return Report(calls, totals, {"Executor": "VM"})

    @property
    def total(self) -> float:
        """Seconds of the whole run."""
        return sum(_number(m.get("Duration (us)")) for m in self.device_metrics.values()) / 1e6

    def rows(self, aggregate: bool = True, sort: bool = True) -> list[tuple[str, float, float, int, str, str]]:
        """(name, seconds, percent, count, device, argument shapes)."""
        merged: dict[Any, list[float]] = {}
        for i, call in enumerate(self.calls):
            key = (call["Name"], call.get("Device", ""), call.get("Argument Shapes", ""), None if aggregate else i)
            merged.setdefault(key, []).append(_number(call["Duration (us)"]) / 1e6)
        total = self.total or 1e-12
        rows = [(k[0], sum(v), 100 * sum(v) / total, len(v), k[1], k[2]) for k, v in merged.items()]
        return sorted(rows, key=lambda r: -r[1]) if sort else rows

    def table(
        self, sort: bool = True, aggregate: bool = True, col_sums: bool = True, *, compute_col_sums: bool = True
    ) -> str:
        """A text table."""
        rows = self.rows(aggregate, sort)
        width = max([len(r[0]) for r in rows] + [8])
        lines = [
            f"{'Name':<{width}}  {'Duration (us)':>14}  {'Percent':>8}  {'Count':>6}  {'Device':<8}  Argument Shapes"
        ]
        lines += [f"{n:<{width}}  {s * 1e6:>14.2f}  {p:>8.2f}  {c:>6}  {d:<8}  {a}" for n, s, p, c, d, a in rows]
        if col_sums and compute_col_sums:
            spent = sum(r[1] for r in rows)
            lines.append("-" * (width + 44))
            share = 100 * spent / (self.total or 1e-12)
            lines.append(f"{'Sum':<{width}}  {spent * 1e6:>14.2f}  {share:>8.2f}  {len(self.calls):>6}")
            lines.append(f"{'Total':<{width}}  {self.total * 1e6:>14.2f}")
        if self.configuration:
            lines += ["", "Configuration", "-------------"]
            lines += [f"{name}: {_shown(value)}" for name, value in self.configuration.items()]
        return "\n".join(lines)

    def csv(self) -> str:
        """Comma separated rows, not aggregated."""
        header = list(dict.fromkeys(name for call in self.calls for name in call))
        lines = [",".join(header)]
        for call in self.calls:
            cells = [call.get(name, "") for name in header]
            texts = [str(_number(c)) if not isinstance(c, str) else c for c in cells]
            lines.append(",".join(f'"{t}"' if "," in t else t for t in texts))
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """Calls, device metrics and configuration as JSON; :meth:`from_json` reads it."""
        data = {
            "calls": [{k: _plain(v) for k, v in call.items()} for call in self.calls],
            "device_metrics": {d: {k: _plain(v) for k, v in m.items()} for d, m in self.device_metrics.items()},
            "configuration": {k: _plain(v) for k, v in self.configuration.items()},
        }
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Inverse of :meth:`json`. Raises MalformedDataError for anything else."""
        with malformed("a report in JSON"):
            data = parse_json(text, "a report in JSON")
            return cls(
                [{k: _metric(v) for k, v in call.items()} for call in data["calls"]],
                {d: {k: _metric(v) for k, v in m.items()} for d, m in data["device_metrics"].items()},
                {k: _metric(v) for k, v in data.get("configuration", {}).items()},
            )

    def __str__(self) -> str:
        return self.table()


def shapes_of(args: Sequence[Any]) -> str:
    """Argument shapes in short form, ``float32[1, 3, 224, 224], float32[64]``."""
    return ", ".join(f"{a.dtype}{list(a.shape)}" for a in args if isinstance(a, NDArray))


class Timer:
    """Start and stop a clock: the device's own where it has one, else the host's.

    >>> from relaxish import runtime
    >>> with runtime.Timer(runtime.cpu()) as timer:
    ...     total = sum(range(1000))
    >>> timer.elapsed > 0
    True
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device
        self.elapsed = 0.0
        self._clock: Any = None

    def __enter__(self) -> Timer:
        device = self.device
        self._clock = (device.api.timer(device.device_id) if device is not None else None) or HostTimer()
        self._clock.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.elapsed = self._clock.stop()
        self._clock.close()
