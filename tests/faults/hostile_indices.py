"""Operators that index and divide by data, called with good and with absurd values; every access is checked in turn.

NumPy says what is due, a result or an error. Half of the cases run under ``RELAXISH_CHECK=2``, where compiled code
watches each load and store: a report is a fault, for the guards should have stopped the access before.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from relaxish.support import config
from relaxish.testing.fuzz.child import in_child
from relaxish.testing.fuzz.hostile import make_hostile_case, run_hostile_case


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Models ``tried`` (12 calls each): ``ok``, ``checked`` at level 2, ``wrong`` calls, ``crashed`` and ``hung``."""
    end = time.monotonic() + budget_s
    figures: Counter[str] = Counter(tried=0, ok=0, checked=0, wrong=0, crashed=0, hung=0)
    while time.monotonic() < end or not figures["tried"]:
        number = 50_000_000 + seed * 1_000_000 + figures["tried"]
        level = 2 if figures["tried"] % 2 else 0
        found: Any = in_child(lambda: _attempt(number, level), 120)  # noqa: B023
        figures["tried"] += 1
        figures["checked"] += level == 2
        if isinstance(found, str):
            figures["hung" if "SIGALRM" in found else "crashed"] += 1
        figures["wrong"] += len(found) if isinstance(found, list) else 0
        figures["ok"] += found == []
        if found:
            name = make_hostile_case(number).name
            print(f"hostile case {number} ({name}, level {level}): {found}", file=sys.stderr, flush=True)
    return dict(figures)


def _attempt(number: int, level: int) -> list[str]:
    with config.CHECK.override(level):
        return run_hostile_case(number)
