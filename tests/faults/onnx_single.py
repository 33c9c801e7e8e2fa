"""Single ONNX operators with special values and odd shapes, judged by ONNX Runtime and the standard's reference."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Any

from relaxish.testing.fuzz.child import in_child
from relaxish.testing.fuzz.onnx_judges import check_operator
from relaxish.testing.fuzz.onnx_operators import operator_case, operator_names


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Cases ``tried``: ``right``, ``refused``, ``illegal`` (no judge runs them), ``wrong``, ``hung``, ``crashed``.

    An error that is none of this package's counts as ``crashed`` like a dead process.
    """
    end = time.monotonic() + budget_s
    rng = random.Random(seed)
    names = operator_names()
    rng.shuffle(names)
    figures: Counter[str] = Counter(tried=0, right=0, refused=0, illegal=0, wrong=0, crashed=0, hung=0)
    while time.monotonic() < end or not figures["tried"]:
        name, number = names[figures["tried"] % len(names)], rng.randrange(1 << 30)
        found: Any = in_child(lambda: _verdict(name, number), 60)  # noqa: B023
        status, reason = ("hung" if "SIGALRM" in found else "crashed", found) if isinstance(found, str) else found
        figures["tried"] += 1
        figures[status] += 1
        if status not in ("right", "illegal"):
            print(f"operator_case({name!r}, {number}): {status}: {reason}", file=sys.stderr, flush=True)
    return dict(figures)


def _verdict(name: str, number: int) -> tuple[str, str]:
    verdict = check_operator(operator_case(name, number))
    return verdict.status, verdict.reason
