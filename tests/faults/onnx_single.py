"""Single ONNX operators with special values and odd shapes, judged by ONNX Runtime and the standard's reference."""

from __future__ import annotations

import random

from faults.batches import run_cases
from relaxish.testing.fuzz.onnx_judges import check_operator
from relaxish.testing.fuzz.onnx_operators import operator_case, operator_names


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Cases ``tried``: ``right``, ``refused``, ``illegal`` (no judge runs them), ``wrong``, ``hung``, ``crashed``.

    An error that is none of this package's counts as ``crashed`` like a dead process.
    """
    names = operator_names()
    random.Random(seed).shuffle(names)

    def one(number: int) -> tuple[str, str]:
        name, case = names[number % len(names)], random.Random(f"{seed} {number}").randrange(1 << 30)
        verdict = check_operator(operator_case(name, case))
        if verdict.status in ("right", "illegal"):
            return verdict.status, ""
        return verdict.status, f"operator_case({name!r}, {case}): {verdict.reason}"

    return run_cases(one, ("right", "refused", "illegal", "wrong"), budget_s, patience=60)
