"""Random torch programs with views, masks and writes in place, exported, imported and compared with torch."""

from __future__ import annotations

import importlib.util

from faults.batches import run_cases


def _attempt(number: int) -> tuple[str, str]:
    from relaxish.testing.fuzz.torch_programs import Refused, check_program, make_program

    try:
        failure = check_program(make_program(number))
    except Refused:
        return "refused", ""
    if failure is None:
        return "ok", ""
    return "wrong" if failure.stage == "wrong" else "lost", str(failure)


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Programs ``tried``: ``ok``, ``refused`` with a reason, ``wrong``, ``crashed``, ``hung``, other faults ``lost``.

    Without torch all are ``skipped``.
    """
    if importlib.util.find_spec("torch") is None:
        return {"tried": 1, "skipped": 1}
    import torch  # noqa: F401  (once, not in every child)

    from relaxish.frontend.torch import from_exported_program  # noqa: F401

    first = 10_000_000 + seed * 1_000_000
    keys = ("ok", "refused", "wrong", "lost")
    return run_cases(lambda number: _attempt(first + number), keys, budget_s, patience=120)
