"""What a candidate for a GPU costs once the search has chosen it, on one core: to make its program, to verify it (which
the mask of a sketch stands for), and to lower it and print its kernels (what a compiler then takes is not part of it).

    python benchmarks/candidates.py [--count 9] [--only "cuda conv2d f16 wmma"]
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import search


def _seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    begin = time.perf_counter()
    made = run()
    return time.perf_counter() - begin, made


def _candidates(context: Any, count: int) -> list[Any]:
    """Traces that the masks of the sketches admit, of each sketch in turn."""
    from relaxish.meta_schedule.search_strategy.sketch import VectorSketch

    found = []
    for space in context.generate_design_space():
        sketch = VectorSketch(context, space.trace.simplified(True))
        variant = sketch.variant(())
        if variant is not None:
            rows = variant.sample(np.random.default_rng(0), count)
            found.append([sketch.table.to_trace(row, ()) for row in rows])
    return [trace for group in zip(*found, strict=False) for trace in group][:count]


def measure(name: str, context: Any, count: int) -> dict[str, Any]:
    """One row: medians over some candidates."""
    from relaxish.backend.cuda.build import build_device
    from relaxish.meta_schedule.postproc import VerifyGPUCode
    from relaxish.meta_schedule.search_strategy.replay import apply_trace

    traces = _candidates(context, count + 1)
    verifier = next(p for p in context.space_generator.postprocs if isinstance(p, VerifyGPUCode))
    spent: dict[str, list[float]] = {"make s": [], "verify s": [], "lower s": []}
    agreed = 0
    for position, trace in enumerate(traces):
        making, sch = _seconds(functools.partial(apply_trace, context, trace, 1, None, (VerifyGPUCode,)))
        if sch is None:
            continue
        verifying, fine = _seconds(functools.partial(verifier.apply, sch))
        lowering, _ = _seconds(functools.partial(build_device, sch.mod, context.target))
        if position:  # the first one loads what all need
            for column, seconds in zip(spent.values(), (making, verifying, lowering), strict=True):
                column.append(seconds)
        agreed += bool(fine)
    medians = {column: statistics.median(values) for column, values in spent.items()}
    return {"workload": name, "candidates": len(traces), "verifier agrees": agreed, **medians}


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=9)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    common.pin(1)
    rows = [
        measure(name, search.gpu_context(rules, make()), options.count)
        for name, (rules, make) in search.gpu_workloads().items()
        if not options.only or name in options.only.split(",")
    ]
    common.save("candidates", rows)


if __name__ == "__main__":
    main()
