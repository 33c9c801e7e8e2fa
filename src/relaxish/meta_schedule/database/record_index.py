"""Index of a database file: offsets of its records and their ranking, without parsing their traces.

Traces are most of a file and are needed of a few records only. A line as this package writes it is taken apart from its
end: notes, times and target are short. Lines of other writers are parsed as a whole. Whatever was guessed here is seen
again when a record is made from its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import math
import re
from array import array
from dataclasses import dataclass
from typing import Any

from .lines import record_fields

__all__ = ["Entry", "RecordIndex", "entry_of"]

_START = re.compile(rb"\[(\d{1,9}),\[(?=\[\[)")
_DECODER = json.JSONDecoder()
UNKNOWN, WRONG, RIGHT = -1, 0, 1
# What stands in a file must be a number that could be a time; beyond this it is the mark of a failure.
_MOST_SECONDS = 1e10


@dataclass(slots=True)
class Entry:
    """Index entry of a line, without the trace: ``line`` is the number of its workload's line, ``seconds`` infinite for
    a failed measurement, ``shared`` whether the verdict is on the trace and not just on this measurement, ``key`` (on
    request) names trace and target, ``after`` is the end of the records it speaks of."""

    line: int
    workload: str
    seconds: float
    verdict: int
    again: bool
    hardware: str
    device: bool
    shared: bool
    key: tuple[int, int] | None
    after: int | None


def key_of(trace: bytes, target: bytes) -> tuple[int, int]:
    """Key of verdicts: the hashes of trace and target, each as compact JSON text."""
    return hash(trace), hash(target)


def compact(value: object) -> bytes:
    """A value as JSON text, the way the journal writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def entry_of(line: bytes, with_key: bool = False) -> Entry | None:
    """The entry of a record line; None for a line that is none. Never raises."""
    try:
        return _quick(line, with_key) or _slow(line)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError):
        return None


def _quick(line: bytes, with_key: bool) -> Entry | None:
    start = _START.match(line)
    if start is None or not line.endswith(b"}]"):
        return None
    notes_at = line.rfind(b'],{"')
    target_at = line.rfind(b'],{"', 0, notes_at)
    times_at = line.rfind(b",[", 0, target_at)
    if target_at < 0 or times_at < start.end() or line[times_at - 1] != 0x5D:
        return None
    try:
        notes = json.loads(line[notes_at + 2 : -1])
        times = json.loads(line[times_at + 1 : target_at + 1])
        tail = line[target_at + 2 : notes_at].decode()
        target, end = _DECODER.raw_decode(tail)
    except ValueError:
        return None
    if not isinstance(notes, dict) or not isinstance(target, dict):
        return None
    key = key_of(line[start.end() : times_at], tail[:end].encode()) if with_key else None
    return _entry(int(start[1]), notes, times, target, key)


def _slow(line: bytes) -> Entry | None:
    parsed = json.loads(line)
    fields = record_fields(parsed)
    if fields is None or not isinstance(fields.get("trace"), list):
        return None
    number = parsed[0] if isinstance(parsed, list) else -1
    key = key_of(compact(fields["trace"]), compact(fields.get("target")))
    return _entry(number, fields, fields.get("run_secs"), fields.get("target"), key)


def _is_verdict(notes: dict[str, Any]) -> bool:
    """Whether a line says something about every measurement of its trace, not just about its own."""
    return isinstance(notes.get("valid"), bool) and (bool(notes.get("again")) or not notes.get("error"))


def _entry(
    line: int,
    notes: dict[str, Any],
    times: Sequence[float] | None,
    target: Mapping[str, int | str | Sequence[str]] | None,
    key: tuple[int, int] | None,
) -> Entry | None:
    workload, hardware = notes.get("workload", ""), notes.get("hardware", "")
    if not isinstance(workload, str) or not isinstance(hardware, str):
        return None
    if times is not None and not (
        isinstance(times, list) and all(isinstance(t, (int, float)) and not isinstance(t, bool) for t in times)
    ):
        return None
    valid = notes.get("valid")
    verdict = UNKNOWN if not isinstance(valid, bool) else RIGHT if valid else WRONG
    times = times or []
    good = bool(times) and all(0 <= t < _MOST_SECONDS for t in times) and not (notes.get("error") and verdict != RIGHT)
    seconds = math.fsum(times) / len(times) if good else math.inf
    device = isinstance(target, dict) and "gpu" in (target.get("keys") or ())
    again, after = bool(notes.get("again")), notes.get("after")
    after = after if isinstance(after, int) and 0 <= after < 1 << 62 else None
    return Entry(line, workload, seconds, verdict, again, hardware, device, _is_verdict(notes), key, after)


class RecordIndex:
    """Places and ranking figures of records, 50 bytes each.

    ``files`` says in which file a line is: 0 is that of the records, 1 that of the verdicts. ``positions`` orders them
    all: where a line of the former begins, where the former ended when a line of the latter was written.
    """

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.files = array("b")
        self.lengths = array("q")
        self.seconds = array("d")
        self.verdicts = array("b")
        self.machines = array("h")
        self.owners = array("l")
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, entry: Entry, owner: int, offset: int, length: int, file: int = 0) -> int:
        """Take in an entry; its number."""
        self.offsets.append(offset)
        self.files.append(file)
        self.positions.append(offset if not file else (1 << 62) if entry.after is None else entry.after)
        self.lengths.append(length)
        self.seconds.append(entry.seconds)
        self.verdicts.append(entry.verdict)
        self.owners.append(owner)
        # Results for devices depend little on the machine around them.
        self.machines.append(self._machine("" if entry.device else entry.hardware))
        return len(self.offsets) - 1

    def _machine(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            # Beyond what the column holds, machines share a number that is nobody's.
            number = self._numbers[name] = min(len(self.names), 32767)
            self.names.append(name)
        return number

    def hardware(self, number: int) -> str:
        """Hardware on which the record was measured; empty where unknown or irrelevant."""
        return self.names[self.machines[number]]
