"""Random torch programs with views, masks and writes in place, exported, imported and compared with torch."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from typing import Any

from relaxish.testing.fuzz.child import in_child

_PATIENCE = 120


def _attempt(number: int) -> tuple[str, str]:
    """("ok", ""), ("refused", why), or the stage that failed and the program."""
    from relaxish.testing.fuzz.torch_programs import Refused, check_program, make_program

    try:
        failure = check_program(make_program(number))
    except Refused as error:
        return "refused", str(error)
    return ("ok", "") if failure is None else (failure.stage, str(failure))


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Programs ``tried``: ``ok``, ``refused`` with a reason, ``wrong``, ``crashed``, ``hung``, other faults ``lost``.

    Without torch all are ``skipped``.
    """
    if importlib.util.find_spec("torch") is None:
        return {"tried": 1, "skipped": 1}
    import torch  # noqa: F401  (once, not in every child)

    from relaxish.frontend.torch import from_exported_program  # noqa: F401

    end = time.monotonic() + budget_s
    figures: Counter[str] = Counter(tried=0, ok=0, refused=0, wrong=0, crashed=0, hung=0, lost=0)
    number = 10_000_000 + seed * 1_000_000
    while time.monotonic() < end or not figures["tried"]:
        found: Any = in_child(lambda n=number: _attempt(n), _PATIENCE)  # type: ignore[misc]
        figures["tried"] += 1
        if isinstance(found, str):
            figures["hung" if "SIGALRM" in found else "crashed"] += 1
            print(f"torch program {number}: {found}", file=sys.stderr, flush=True)
        else:
            figures[found[0] if found[0] in figures else "lost"] += 1
            if found[0] not in ("ok", "refused"):
                print(found[1], file=sys.stderr, flush=True)
        number += 1
    return dict(figures)
