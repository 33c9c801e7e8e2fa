"""Running the cases of a fuzzer for a time: counting, looking at findings again, and reporting."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .batches import Ended, numbered

__all__ = ["Finding", "Kind", "Outcome", "Report", "fuzz", "run"]

_EXPLAIN_PATIENCE = 900.0
_PERIOD = 60.0


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case: its ``status``, and for a finding its description ``told`` and a regression ``test``."""

    status: str
    told: str = ""
    test: str = ""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A fuzzer: ``attempt`` runs a case, ``explain`` runs it alone and makes the finding small.

    ``patience`` is how many seconds a case may take, ``warm_up`` loads once what every child needs.
    """

    what: str
    attempt: Callable[[int], Outcome]
    explain: Callable[[int], Outcome]
    warm_up: Callable[[], None]
    patience: float = 120.0


@dataclass(frozen=True)
class Finding:
    """A case that failed, or had no end within its time (``slow``), or whose process died (``crashed``)."""

    number: int
    status: str
    told: str
    test: str = ""

    def __str__(self) -> str:
        return self.told


@dataclass
class Report:
    """Statistics of a fuzzing run: number of cases, outcomes, how often each step took effect, and the failures."""

    what: str = "cases"
    cases: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    failures: list[Finding] = field(default_factory=list)
    interrupted: bool = False
    next: int = 0

    def head(self) -> str:
        """One line of counts."""
        ends = ", ".join(f"{name} {count}" for name, count in self.ends.most_common())
        line = f"{self.cases} {self.what} ({ends}), {len(self.failures)} failures, next {self.next}"
        return f"{line}, interrupted" if self.interrupted else line

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {count}" for name, count in self.steps.most_common())
        parts = [self.head(), f"{sum(self.steps.values())} steps: {steps}" if steps else ""]
        return "\n\n".join([part for part in parts if part] + [str(f) for f in self.failures])


def run(
    kind: Kind,
    seconds: float,
    first: int = 0,
    max_failures: int = 1,
    on_failure: Callable[[Finding], None] | None = None,
    on_count: Callable[[Report], None] | None = None,
) -> Report:
    """Run cases ``first``, ``first + 1``, ... until the time is up or ``max_failures`` were found.

    ``on_count`` is told the state of things every minute. An interrupt (KeyboardInterrupt) ends the run with the report
    of what was done.
    """
    report = Report(kind.what, next=first)
    kind.warm_up()
    said = time.monotonic()
    try:
        with contextlib.closing(numbered(kind.attempt, first, seconds, kind.patience)) as cases:
            for number, gave in cases:
                finding = _finding(kind, number, gave, report)
                report.cases += 1
                report.next = number + 1
                if finding is not None:
                    report.failures.append(finding)
                    if on_failure is not None:
                        on_failure(finding)
                    if len(report.failures) >= max_failures:
                        break
                if on_count is not None and time.monotonic() - said >= _PERIOD:
                    said = time.monotonic()
                    on_count(report)
    except KeyboardInterrupt:
        report.interrupted = True
    return report


def _finding(kind: Kind, number: int, gave: Outcome | Ended, report: Report) -> Finding | None:
    """What is to be told of a case, None of one that ended well; it is counted by what it came to at last."""
    if isinstance(gave, Outcome) and not gave.told:
        report.ends[gave.status] += 1
        report.steps.update(gave.steps)
        return None
    status, told = gave.status, gave.reason if isinstance(gave, Ended) else gave.told
    # Once more, alone: a case may suffer from what others did to its process, or from a busy machine.
    patience = 2 * kind.patience if status == "slow" else _EXPLAIN_PATIENCE
    with contextlib.closing(numbered(kind.explain, number, 0.0, patience, most=1)) as alone:
        _, again = next(alone)
    if isinstance(again, Outcome):
        report.steps.update(again.steps)
        if again.told:
            report.ends[again.status] += 1
            return Finding(number, again.status, again.told, again.test)
        if status == "slow":
            report.ends["late"] += 1  # it has an end, and a good one: the machine was busy
            return None
        told = f"{told}\n(not when it runs alone: an earlier case of its process, or chance, has a part in it)"
    report.ends[status] += 1
    return Finding(number, status, f"{kind.what} number {number}, {status}: {told}", "")


def fuzz(
    seconds: float,
    first: int = 0,
    steps: int = 12,
    max_failures: int = 1,
    on_failure: Callable[[Finding], None] | None = None,
) -> Report:
    """Random programs under random schedules for ``seconds``; see :func:`run`.

    >>> report = fuzz(0.2)
    >>> report.failures
    []
    """
    from .kinds import schedules

    return run(schedules(steps), seconds, first, max_failures, on_failure)
