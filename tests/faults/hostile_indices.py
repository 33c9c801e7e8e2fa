"""Operators that index and divide by data, called with good and with absurd values; every access is checked in turn.

NumPy says what is due, a result or an error. Half of the cases run under ``RELAXISH_CHECK=2``, where compiled code
watches each load and store: a report is a fault, for the guards should have stopped the access before.
"""

from __future__ import annotations

from faults.batches import run_cases
from relaxish.support import config
from relaxish.testing.fuzz.hostile import make_hostile_case, run_hostile_case


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Models ``tried`` (12 calls each): ``plain`` or ``checked`` and right, ``wrong``, ``lost``, ``crashed``, ``hung``.

    ``lost`` are errors where the model is built.
    """

    def one(number: int) -> tuple[str, str]:
        case, level = 50_000_000 + seed * 1_000_000 + number, 2 * (number % 2)
        try:
            with config.CHECK.override(level):
                found = run_hostile_case(case)
        except Exception as error:  # whatever it is, the model is a good one
            return "lost", f"hostile case {case}, level {level}: {type(error).__name__}: {error}"
        if found:
            return "wrong", f"hostile case {case} ({make_hostile_case(case).name}), level {level}: {found}"
        return "checked" if level else "plain", ""

    return run_cases(one, ("plain", "checked", "wrong", "lost"), budget_s, patience=120)
