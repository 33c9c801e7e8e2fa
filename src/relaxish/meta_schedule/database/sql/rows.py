"""Records as rows: what the columns of a measurement hold, from the plain data of a record and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....ir import IRModule
from ...analysis.shapes import shape_of
from ..database import INVALID_SECONDS

__all__ = [
    "Measurement", "columns_of_program", "compact_text", "digest_of", "key_of_trace", "ranking_seconds",
]  # fmt: skip

_LONGEST_ERROR = 2000


def compact_text(value: object) -> str:
    """A value as JSON text without spaces, keys in order; ValueError for what is no JSON (NaN, say)."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)


def digest_of(text: str) -> str:
    """The name of a text, 32 characters."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def key_of_trace(instructions: str, decisions: str) -> int:
    """Key of a trace: a signed 64-bit number, as databases have them."""
    digest = hashlib.sha256(f"{instructions}\n{decisions}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def ranking_seconds(run_secs: Sequence[float] | None, valid: bool | None, failed: bool) -> float | None:
    """Seconds by which a measurement is ranked; None where it may not win."""
    if not run_secs or valid is False or (failed and valid is None):
        return None
    if not all(0 <= t < INVALID_SECONDS for t in run_secs):
        return None
    return math.fsum(run_secs) / len(run_secs)


def columns_of_program(mod: IRModule) -> dict[str, str]:
    """The text of a program, and the columns by which similar ones are found: digest of the structure, sizes (JSON)."""
    structure, sizes = shape_of(mod)
    return {"script": mod.script(), "structure": structure and digest_of(structure), "sizes": compact_text(sizes)}


def _times(value: object) -> list[float] | None:
    """Finite times as plain numbers; ValueError for anything else."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise ValueError("the times of a record are a list of numbers")
    times = [float(t) for t in value]
    if not all(map(math.isfinite, times)):
        raise ValueError("the times of a record are finite numbers")
    return times


def _real(value: object) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None  # type: ignore[arg-type]


@dataclass
class Measurement:
    """One record in plain data, as lines of journals have it: traces, targets and arguments as JSON values.

    ``notes`` holds what is optional: ``hardware``, ``error``, ``stage``, ``status``, ``valid``, ``predicted``, ``time``,
    ``again``.
    """

    trace: Sequence[Any]
    run_secs: list[float] | None
    target: Mapping[str, Any] | None
    args_info: Sequence[Any] | None
    notes: dict[str, Any]

    @staticmethod
    def of(data: Sequence[Any], notes: Mapping[str, Any]) -> Measurement:
        """From ``[trace, run_secs, target, args_info]`` and notes. Raises ValueError or TypeError for what is none."""
        trace, run_secs, target, args_info = data
        if not isinstance(trace, (list, tuple)) or len(trace) != 2:
            raise ValueError("a trace is a pair of instructions and decisions")
        valid = notes.get("valid")
        kept = {
            "hardware": str(notes.get("hardware") or ""),
            "error": str(notes["error"])[-_LONGEST_ERROR:] if notes.get("error") else None,
            "stage": notes.get("stage"),
            "status": notes.get("status"),
            "valid": valid if isinstance(valid, bool) else None,
            "predicted": _real(notes.get("predicted")),
            "time": _real(notes.get("time")),
            "again": bool(notes.get("again")),
        }
        return Measurement(trace, _times(run_secs), target, args_info, kept)

    @property
    def instructions(self) -> str:
        """The trace's instructions as text."""
        return compact_text(self.trace[0])

    @property
    def decisions(self) -> str:
        """The trace's decisions as text."""
        return compact_text(self.trace[1])

    @property
    def speaks_of_others(self) -> bool:
        """Whether its verdict holds for every measurement of its trace, and not just for itself."""
        return self.notes["valid"] is not None and (self.notes["again"] or not self.notes["error"])

    def columns(self, valid: bool | None) -> dict[str, Any]:
        """The columns that need no other table; ``valid`` is the verdict on it."""
        notes = self.notes
        ranked = ranking_seconds(self.run_secs, valid, bool(notes["error"])) if self.trace[0] else None
        return {
            "run_secs": None if self.run_secs is None else compact_text(self.run_secs),
            "seconds": ranked,
            "args_info": None if self.args_info is None else compact_text(self.args_info),
            "valid": valid,
            **{name: notes[name] for name in ("error", "stage", "status", "predicted", "time")},
        }
