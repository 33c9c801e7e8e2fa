"""Cases in child processes: one that kills or blocks its process is counted, and the next one runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from relaxish.testing.fuzz.batches import Ended, numbered

_KEYS = {"slow": "hung", "crashed": "crashed"}


def run_cases(
    attempt: Callable[[int], tuple[str, str]],
    keys: tuple[str, ...],
    budget_s: float,
    patience: int = 30,
    most: int = 500,
) -> dict[str, int]:
    """Call ``attempt(0)``, ``attempt(1)``, ... until the time is up, in children that take up to ``most`` each.

    An attempt gives the key of ``keys`` to count and, for the log, what happened (empty if nothing did). ``tried``,
    ``crashed`` and ``hung`` (longer than ``patience`` seconds) are counted here.
    """
    figures = Counter(dict.fromkeys(("tried", "crashed", "hung", *keys), 0))
    for number, gave in numbered(attempt, 0, budget_s, patience, most):
        key, told = (_KEYS[gave.status], gave.reason) if isinstance(gave, Ended) else gave
        assert key in figures, key
        figures["tried"] += 1
        figures[key] += 1
        if told:
            print(f"case {number}: {key}: {told}", file=sys.stderr, flush=True)
    return dict(figures)
