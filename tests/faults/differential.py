"""Random ONNX graphs by every importer route and pipeline, against ONNX Runtime and 64-bit references."""

from __future__ import annotations

import sys
import time
from collections import Counter

from relaxish.testing.fuzz.differential import GraphFailure, check_graph, make_graph_case, shrink_graph


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Cases ``tried``, results ``wrong``, processes ``crashed``, other faults ``lost``; what peers refuse apart."""
    end = time.monotonic() + budget_s
    figures: Counter[str] = Counter(tried=0, ok=0, wrong=0, crashed=0, lost=0)
    number = seed * 1_000_000
    while time.monotonic() < end or not figures["tried"]:
        found = check_graph(make_graph_case(number))
        number += 1
        figures["tried"] += 1
        if isinstance(found, GraphFailure):
            figures[{"wrong": "wrong", "crash": "crashed"}.get(found.stage, "lost")] += 1
            print(shrink_graph(found), file=sys.stderr, flush=True)
        else:
            figures[found] += 1
    return dict(figures)
