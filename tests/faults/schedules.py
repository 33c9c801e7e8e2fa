"""Random programs under random schedules: interpreter, compiler and trace replay must agree."""

from __future__ import annotations

import sys

from relaxish.testing.fuzz import fuzz


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Cases ``tried``, schedules that are ``wrong``, processes ``crashed``, cases without an end ``hung``."""
    report = fuzz(budget_s, first=seed * 1_000_000, max_failures=1000, on_failure=lambda f: print(f, file=sys.stderr))
    ends = {"crashed": report.ends["crashed"], "hung": report.ends["slow"]}
    wrong = len(report.failures) - sum(ends.values())
    return {"tried": report.cases, "wrong": wrong, **ends, "steps": sum(report.steps.values())}
