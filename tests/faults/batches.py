"""Cases in child processes: one that kills or blocks its process is counted, and the next one runs."""

from __future__ import annotations

import mmap
import signal
import sys
import time
from collections.abc import Callable

import numpy as np

from relaxish.testing.fuzz.child import in_child

_BATCH_SECONDS = 30


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
    names = ("tried", "crashed", "hung", *keys)
    # What a child has counted so far outlives it.
    shared = np.frombuffer(mmap.mmap(-1, 8 * (len(names) + 1)), "int64")
    end = time.monotonic() + budget_s

    def batch() -> None:
        stop = min(end, time.monotonic() + _BATCH_SECONDS)
        for count in range(most):
            if count and time.monotonic() > stop:
                break
            signal.alarm(patience)
            shared[1] += 1
            shared[0] += 1
            key, told = attempt(int(shared[0]) - 1)
            shared[1 + names.index(key)] += 1
            if told:
                print(f"case {shared[0] - 1}: {key}: {told}", file=sys.stderr, flush=True)

    while time.monotonic() < end or not shared[1]:
        before = int(shared[0])
        found = in_child(batch, patience)
        if isinstance(found, str):
            shared[1 + names.index("hung" if "SIGALRM" in found else "crashed")] += 1
            print(f"case {shared[0] - 1}: {found}", file=sys.stderr, flush=True)
            if shared[0] == before:
                break  # children do not even start
    return {name: int(shared[1 + k]) for k, name in enumerate(names)}
