"""Tensor-core sketches run in emulation: random legal decisions of every sketch give the reference result.

    python benchmarks/cuda_emulation.py [--workloads gemm_f32 conv2d] [--count 1000] [--journal FILE] [--json FILE]

Workloads are half-precision products and a convolution, each tiled by the WMMA rule and by the rule for ``mma.sync``
with and without software pipeline. Decisions are drawn as the search draws them: at random, among those its validity
mask admits where a sketch has one. Every candidate is lowered as for a GPU and run on the CPU in check mode, so that races, accesses out of
bounds and reads before asynchronous copies are complete count as failures, too. With a journal a run that was cut off
goes on where it was. The exit status says whether all was right.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np

from relaxish import meta_schedule as ms
from relaxish import te, tir, topi
from relaxish.backend.emulator import EmulatedModule, EmulationError
from relaxish.ir.transform import PassContext
from relaxish.meta_schedule.postproc import VerifyGPUCode
from relaxish.meta_schedule.schedule_rule import MultiLevelTilingTensorCore, ReuseType
from relaxish.meta_schedule.search_strategy.sketch import VectorSketch
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.tir.schedule import ScheduleError, Trace
from relaxish.tir.tensor_intrin import mma_m16n8k8
from relaxish.tir.tensor_intrin.cuda import get_wmma_intrin_group
from relaxish.tir.transform.base import LoweringError

TARGET = Target("nvidia/nvidia-a100")
# Loops stay loops and common expressions stay where they are: neither changes what a candidate computes, and both
# take most of the time.
QUICK: dict[str, Any] = {
    "tir.UnrollLoop": {"explicit_unroll": False, "auto_max_step": 0, "auto_max_depth": 0, "auto_max_extent": 0},
    "tir.disable_cse_tir": True,
}
# Simplifying indices takes by far the most time, and does not change what they are. Every so many candidates have it
# done all the same.
SIMPLIFYING = ["tir.Simplify", "tir.RemoveNoOp", "tir.RenormalizeSplitPattern"]
SIMPLIFIED = 10
# Every so many candidates the postprocessor that the mask stands for is asked as well.
VERIFIED = 20


@dataclass(frozen=True)
class Workload:
    """A program, its inputs, what it must give, and how far off results may be."""

    func: Any
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    out_dtype: str
    tolerance: float


def _gemm(m: int, n: int, k: int, out_dtype: str, tolerance: float) -> Workload:
    rng = np.random.default_rng(1)
    a = te.placeholder((m, k), name="A", dtype="float16")
    b = te.placeholder((k, n), name="B", dtype="float16")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(out_dtype) * b[r, j].astype(out_dtype), axis=r), name="C")
    inputs = tuple(rng.uniform(-1, 1, shape).astype("float16") for shape in ((m, k), (k, n)))
    expected = inputs[0].astype("float64") @ inputs[1].astype("float64")
    return Workload(te.create_prim_func([a, b, c]), inputs, expected, out_dtype, tolerance)


def _conv2d() -> Workload:
    """A 3 x 3 convolution, channels last."""
    rng = np.random.default_rng(2)
    size, channels, filters = 16, 32, 32
    data = te.placeholder((1, size, size, channels), "float16", name="X")
    weight = te.placeholder((3, 3, channels, filters), "float16", name="W")
    made = topi.nn.conv2d_nhwc(data, weight, 1, 1, 1, "float32")
    func = te.create_prim_func([data, weight, made])
    x = rng.uniform(-1, 1, (1, size, size, channels)).astype("float16")
    w = rng.uniform(-1, 1, (3, 3, channels, filters)).astype("float16")
    padded = np.pad(x.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((1, size, size, filters))
    for i in range(3):
        for j in range(3):
            expected += padded[:, i : i + size, j : j + size] @ w[i, j].astype("float64")
    return Workload(func, (x, w), expected, "float32", 1e-3)


BAD = frozenset({"wrong", "fault", "error"})
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "gemm_f32": lambda: _gemm(128, 128, 128, "float32", 1e-3),
    "gemm_f16": lambda: _gemm(128, 128, 128, "float16", 0.1),
    "conv2d": _conv2d,
}


def rules(out_dtype: str) -> dict[str, list[Any]]:
    """The rules of each kind of sketch."""
    binds, lengths = ["blockIdx.y", "blockIdx.x", "threadIdx.y"], [1, 2, 3, 4, 8, 16]
    read = ReuseType("must", (4,), "shared.dyn")

    def rule(groups: list[Any], write: Any, pipeline: bool) -> Any:
        return MultiLevelTilingTensorCore(groups, "SSSRRSRS", binds, 4, lengths, read, write, pipeline)

    wmma = [get_wmma_intrin_group("shared.dyn", "shared.dyn", "float16", out_dtype, trans) for trans in (False, True)]
    mma = [mma_m16n8k8.get_mma_intrin_group("global", out_dtype)]
    others = ms.ScheduleRule.create("cuda")[1:]
    return {
        "wmma": [rule(wmma, ReuseType("must", (2,), "shared.dyn"), False), *others],
        "wmma_pipeline": [rule(wmma, ReuseType("must", (2,), "shared.dyn"), True), *others],
        "mma": [rule(mma, ReuseType("no", (), ""), False), *others],
        "mma_pipeline": [rule(mma, ReuseType("no", (), ""), True), *others],
    }


@dataclass
class Sketch:
    """A sketch with what makes candidates of it."""

    name: str
    workload: Workload
    trace: Any
    context: Any

    @functools.cached_property
    def _table(self) -> VectorSketch:
        return VectorSketch(self.context, self.trace)

    @functools.cached_property
    def rows(self) -> np.ndarray | None:
        """Legal decisions, none of them twice, in random order; None where the sketch has no mask."""
        variant = self._table.variant(())
        if variant is None:
            return None
        drawn = variant.sample(np.random.default_rng(0), 8192)
        _, first = np.unique(drawn, axis=0, return_index=True)
        return drawn[np.sort(first)]

    def draws(self) -> Iterator[tuple[str, int]]:
        """Names of decisions: rows of the matrix, or seeds of the sampling instructions."""
        kind, count = ("seed", 40000) if self.rows is None else ("row", len(self.rows))
        return ((kind, number) for number in range(1, count))

    def candidate(self, kind: str, number: int) -> Any:
        """The schedule with these decisions; None where they are not legal."""
        sch = tir.Schedule(self.workload.func, seed=number)
        trace, postprocs = Trace(self.trace.insts, {}), self.context.space_generator.postprocs
        if kind == "row":
            assert self.rows is not None
            trace = self._table.table.to_trace(self.rows[number], ())
            if number % VERIFIED:
                postprocs = [p for p in postprocs if not isinstance(p, VerifyGPUCode)]
        try:
            trace.apply_to_schedule(sch, remove_postproc=True)
            sch.enter_postproc()
            return sch if all(postproc.apply(sch) for postproc in postprocs) else None
        except ScheduleError:
            return None


def sketches(name: str) -> Iterator[Sketch]:
    """All tensor-core sketches of a workload by name."""
    return sketches_of(name, WORKLOADS[name]())


def sketches_of(name: str, workload: Workload) -> Iterator[Sketch]:
    """All tensor-core sketches of a workload."""
    for kind, made in rules(workload.out_dtype).items():
        space = ms.space_generator.PostOrderApply(sch_rules=made, postprocs="cuda-tensorcore", mutator_probs={})
        context = ms.TuneContext(mod=workload.func, target=TARGET, space_generator=space, task_name="t", rand_state=1)
        for number, found in enumerate(context.generate_design_space()):
            if "auto_tensorize" in found.mod["main"].script():
                yield Sketch(f"{name}/{kind}/{number}", workload, found.trace.simplified(remove_postproc=True), context)


def check(sketch: Sketch, kind: str, number: int) -> tuple[str, str]:
    """Run one candidate: ("ok" | "illegal" | "refused" | "wrong" | "fault" | "error", details)."""
    sch = sketch.candidate(kind, number)
    if sch is None:
        return "illegal", ""
    asynchronous = "pipeline" in sketch.name and number % 4 != 0
    plain = number % SIMPLIFIED != 1
    try:
        with PassContext(
            config={"tir.use_async_copy": asynchronous, **QUICK}, disabled_pass=SIMPLIFYING if plain else []
        ):
            module = EmulatedModule(sch.mod, TARGET)
    except LoweringError as error:
        return "refused", str(error).splitlines()[-1]
    except RelaxishError as error:
        return "error", f"{type(error).__name__}: {error}"
    out = np.full(sketch.workload.expected.shape, np.nan, sketch.workload.out_dtype)
    try:
        module.run("main", *sketch.workload.inputs, out)
    except EmulationError as error:
        return "fault", f"{type(error).__name__}: {error}"
    difference = float(np.abs(out.astype("float64") - sketch.workload.expected).max())
    if not difference <= sketch.workload.tolerance:
        return "wrong", f"off by {difference}"
    return "ok", ""


Known = dict[tuple[str, int], str]


def _known(journal: Path | None) -> dict[str, Known]:
    found: dict[str, Known] = collections.defaultdict(dict)
    if journal is not None and journal.exists():
        for line in journal.read_text().splitlines():
            record = json.loads(line)
            found[record["sketch"]][record["kind"], record["number"]] = record["outcome"]
    return found


def run(sketch: Sketch, count: int, known: Known, journal: Path | None) -> list[dict[str, Any]]:
    """Check candidates until ``count`` legal ones are known; returns the new failures."""
    outcomes = collections.Counter(known.values())
    failures: list[dict[str, Any]] = []
    started = time.perf_counter()
    for draw in sketch.draws():
        if outcomes.total() - outcomes["illegal"] - outcomes["refused"] >= count:
            break
        if draw in known:
            continue
        outcome, details = check(sketch, *draw)
        outcomes[outcome] += 1
        known[draw] = outcome
        record = dict(zip(("kind", "number"), draw, strict=True)) | {"outcome": outcome, "details": details}
        if outcome in BAD:
            failures.append(record)
            print(f"{sketch.name} {draw}: {outcome}\n{details}", flush=True)
        if journal is not None:
            with journal.open("a") as file:
                file.write(json.dumps({"sketch": sketch.name, **record}) + "\n")
    print(f"{sketch.name:32} {dict(outcomes)}  {time.perf_counter() - started:.0f} s", flush=True)
    return failures


def main() -> int:
    """Run the workloads asked for, all sketches in turns, so that a run that is cut off has seen something of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--sketches", nargs="+", help="only those whose name contains one of these")
    parser.add_argument("--count", type=int, default=1000, help="legal decisions of each sketch")
    parser.add_argument("--turn", type=int, default=50, help="legal decisions of a sketch before the next one's turn")
    parser.add_argument("--journal", type=Path, help="where each candidate's outcome is kept")
    parser.add_argument("--json", type=Path, default=common.RESULTS / "cuda_emulation.json")
    args = parser.parse_args()
    # Candidates are short-lived: what is there now, and most of what comes, is not worth looking through.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    known = _known(args.journal)
    chosen = [
        sketch
        for name in args.workloads
        for sketch in sketches(name)
        if not args.sketches or any(part in sketch.name for part in args.sketches)
    ]
    failures: dict[str, list[dict[str, Any]]] = {sketch.name: [] for sketch in chosen}
    for count in [*range(args.turn, args.count, args.turn), args.count]:
        for sketch in chosen:
            failures[sketch.name] += run(sketch, count, known[sketch.name], args.journal)
        results = {
            s.name: {"outcomes": dict(collections.Counter(known[s.name].values())), "failures": failures[s.name]}
            for s in chosen
        }
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(BAD & set(known[sketch.name].values()) for sketch in chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
