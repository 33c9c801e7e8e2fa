"""Running cases for a time, and reporting."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .cases import Failure, check_case, make_case
from .shrink import shrink

__all__ = ["Report", "fuzz"]


@dataclass
class Report:
    """How many cases ran, which steps took effect how often, and what failed."""

    cases: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {count}" for name, count in self.steps.most_common())
        head = f"{self.cases} cases, {sum(self.steps.values())} steps ({steps}), {len(self.failures)} failures"
        return "\n\n".join([head, *map(str, self.failures)])


def fuzz(
    seconds: float,
    first: int = 0,
    steps: int = 12,
    max_failures: int = 1,
    on_failure: Callable[[Failure], None] | None = None,
) -> Report:
    """Run cases ``first``, ``first + 1``, ... until the time is up or ``max_failures`` were found and shrunk.

    >>> report = fuzz(0.2)
    >>> report.failures
    []
    """
    report = Report()
    end = time.monotonic() + seconds
    number = first
    while time.monotonic() < end and len(report.failures) < max_failures:
        case, sch, failure = make_case(number, steps)
        number += 1
        report.cases += 1
        report.steps.update(case.steps)
        if failure is None and sch is not None:
            failure = check_case(case, sch)
        if failure is not None:
            failure = shrink(failure)
            report.failures.append(failure)
            if on_failure is not None:
                on_failure(failure)
    return report
