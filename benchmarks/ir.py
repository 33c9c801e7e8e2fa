"""Speed of the tensor-program level: schedule primitives, trace replay, simplifier, structural hash.

    python benchmarks/ir.py

The program is a conv2d with padding, bias and ReLU (NHWC, 1x56x56x64, 3x3), tiled and fused as the search does it for a
CPU.  Every primitive of its trace is timed by itself, over many replays; the bar is a median of 1 ms for each kind of
primitive and 25 ms for the whole trace.  Counts of simplifier rules come with the times, since they do not depend on
the machine.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import common

PRIMITIVE_BAR_MS = 1.0
REPLAY_BAR_MS = 25.0
SPATIAL_TILES = ((1, 1, 1, 1), (7, 2, 2, 2), (2, 7, 4, 1), (2, 2, 1, 16))
REDUCTION_TILES = ((3, 1), (1, 3), (16, 4))


def conv2d() -> Any:
    """The program: padding, convolution, bias, ReLU."""
    from relaxish import te, topi

    data = te.placeholder((1, 56, 56, 64), name="data")
    weight = te.placeholder((3, 3, 64, 64), name="weight")
    bias = te.placeholder((64,), name="bias")
    conv = topi.nn.conv2d_nhwc(data, weight, (1, 1), (1, 1), (1, 1))
    biased = te.compute(conv.shape, lambda n, h, w, c: conv[n, h, w, c] + bias[c], name="biased")
    relu = te.compute(biased.shape, lambda *i: te.max(biased(*i), 0.0), name="relu")
    return te.create_prim_func([data, weight, bias, relu])


def tile(func: Any, seed: int = 1) -> Any:
    """A schedule with two tile levels in each spatial axis and two in each reduction, padding and epilogue fused."""
    from relaxish.tir.schedule import Schedule

    sch = Schedule(func, seed=seed)
    pad, conv, biased, relu = sch.get_child_blocks(sch.get_block("root"))
    sch.compute_inline(biased)
    sch.annotate(conv, "meta_schedule.tiling_structure", "SSRSRS")
    loops = sch.get_loops(conv)
    spatial = [_split(sch, x, sizes) for x, sizes in zip(loops[:4], SPATIAL_TILES, strict=True)]
    reduction = [_split(sch, x, sizes) for x, sizes in zip(loops[4:], REDUCTION_TILES, strict=True)]
    sch.reorder(
        *[s[0] for s in spatial], *[s[1] for s in spatial], *[r[0] for r in reduction],
        *[s[2] for s in spatial], *[r[1] for r in reduction], *[s[3] for s in spatial],
    )  # fmt: skip
    cache = sch.cache_write(conv, 0, "global")
    sch.reverse_compute_at(cache, spatial[3][1], preserve_unit_loops=True)
    sch.reverse_compute_inline(relu)
    place = sch.sample_compute_location(pad, decision=5)
    sch.compute_at(pad, place, preserve_unit_loops=True)
    outer = sch.fuse(*sch.get_loops(conv)[:4])
    sch.parallel(outer)
    sch.vectorize(sch.get_loops(conv)[-1])
    unroll = sch.sample_categorical([0, 16, 64, 512], [0.25, 0.25, 0.25, 0.25])
    sch.annotate(outer, "pragma_auto_unroll_max_step", unroll)
    sch.decompose_reduction(conv, sch.get_loops(conv)[5])
    return sch


def _split(sch: Any, loop: Any, sizes: Sequence[int]) -> list[Any]:
    return list(sch.split(loop, sch.sample_perfect_tile(loop, len(sizes), 16, decision=list(sizes))))


def time_primitives(func: Any, trace: Any, rounds: int = 40) -> tuple[dict[str, float], float]:
    """Median milliseconds of each kind of primitive, the slowest of its places in the trace, and of the replay."""
    from relaxish.tir.schedule import Schedule

    steps: dict[tuple[int, str], list[float]] = defaultdict(list)
    totals = []
    run = Schedule._run

    def timed(self: Any, kind: Any, *args: Any) -> Any:
        start = time.perf_counter()
        out = run(self, kind, *args)
        steps[(len(steps_done), kind.name)].append(time.perf_counter() - start)
        steps_done.append(None)
        return out

    gc.collect()
    for _ in range(rounds):
        sch = Schedule(func)
        start = time.perf_counter()
        trace.apply_to_schedule(sch)
        totals.append(time.perf_counter() - start)
    for _ in range(rounds):
        steps_done: list[None] = []
        sch = Schedule(func)
        Schedule._run = timed  # type: ignore[method-assign]
        try:
            trace.apply_to_schedule(sch)
        finally:
            Schedule._run = run  # type: ignore[method-assign]
    worst: dict[str, float] = {}
    for (_, name), seconds in steps.items():
        worst[name] = max(worst.get(name, 0.0), statistics.median(seconds) * 1e3)
    return worst, statistics.median(totals) * 1e3


def _median_us(run: Any, rounds: int = 30) -> float:
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def simplifier_cases() -> dict[str, tuple[Any, Any]]:
    """Name to (expression, variable ranges)."""
    from relaxish import tir
    from relaxish.ir.expr import Range

    i, j, k = (tir.Var(name, "int32") for name in "ijk")
    ranges = {i: Range(0, 56), j: Range(0, 8), k: Range(0, 64)}
    fused = (i * 8 + j) * 64 + k
    return {
        "div and mod of a fused index": (tir.floordiv(fused, 64) * 64 + tir.floormod(fused, 64), ranges),
        "halo predicate": (tir.all(i * 8 + j - 1 >= 0, i * 8 + j - 1 < 447, k < 64), ranges),
        "nested split": (tir.floormod(tir.floordiv(fused, 8), 8) + tir.floordiv(k, 8) * 8, ranges),
    }


def rows() -> list[dict[str, Any]]:
    """Measure everything."""
    from relaxish.arith import Analyzer
    from relaxish.ir import load_json, save_json, structural_equal, structural_hash

    func = conv2d()
    sch = tile(func)
    trace = sch.trace
    primitives, replay = time_primitives(func, trace)
    out = [
        {"what": f"primitive {name}", "value": value, "unit": "ms", "bar": PRIMITIVE_BAR_MS}
        for name, value in sorted(primitives.items(), key=lambda item: -item[1])
    ]
    out.append(
        {"what": f"replay of {len(trace.insts)} instructions", "value": replay, "unit": "ms", "bar": REPLAY_BAR_MS}
    )
    for name, (expr, ranges) in simplifier_cases().items():
        analyzer = Analyzer()
        analyzer.bind_map(ranges)

        def run(analyzer: Any = analyzer, expr: Any = expr, ranges: Any = ranges) -> None:
            analyzer._forget()
            analyzer.simplify(expr)

        analyzer.reset_rewrite_simplify_stats()
        analyzer.rewrite_simplify(expr)
        out.append({"what": f"simplify: {name}", "value": _median_us(run), "unit": "us"})
    mod = sch.mod
    twin = load_json(save_json(mod))
    out.append(
        {"what": "structural hash of the module", "value": _median_us(lambda: structural_hash(mod)), "unit": "us"}
    )
    out.append(
        {
            "what": "structural equality of two copies",
            "value": _median_us(lambda: structural_equal(mod, twin)),
            "unit": "us",
        }
    )
    return out


def main() -> None:
    """Measure on one core and save."""
    common.pin(1)
    common.save("ir_1core", rows())


if __name__ == "__main__":
    main()
