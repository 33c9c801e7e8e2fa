"""Random legal candidates of every CUDA sketch of many small programs are built, and some of them emulated.

    python benchmarks/cuda_build_sweep.py [--minutes 30] [--names softmax] [--count 2] [--emulate 1] [--compile 8]
                                          [--journal FILE] [--json FILE]

For each program of ``sweep_programs.py`` and each of several targets and rule sets, candidates are drawn from every
sketch: by the validity mask for every ``--masks``-th sketch, else as replayed traces that the postprocessors let pass.
Nothing may be raised by making and building a legal candidate. The first ``--emulate`` of a sketch run in emulation in
check mode, and must give what the program gives on the CPU before it was scheduled; every ``--compile``-th of those is
compiled for its target where NVRTC or nvcc is present. With a journal a run goes on where it was cut off.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import ml_dtypes
import numpy as np
from cuda_emulation import QUICK, SIMPLIFYING
from sweep_programs import PROGRAMS

import relaxish
from relaxish import meta_schedule as ms
from relaxish.backend.cuda.compile import nvrtc
from relaxish.backend.cuda.build import build_device
from relaxish.backend.cuda.codegen.printer import cuda_source
from relaxish.backend.emulator import EmulatedModule, EmulationError
from relaxish.ir import IRModule
from relaxish.ir.functor import post_order_visit
from relaxish.ir.transform import PassContext
from relaxish.meta_schedule.analysis.schedules import normalize_mod, schedule_for_tuning
from relaxish.meta_schedule.search_strategy.sketch import REFUSALS, VectorSketch
from relaxish.target import Target
from relaxish.tir import BufferStore
from relaxish.tir.schedule import ScheduleError, Trace

# (target, rules, every how many-th program, programs with products in narrow types only)
KINDS: dict[str, tuple[str, str, int, bool]] = {
    "cuda": ("nvidia/nvidia-a100", "cuda", 1, False),
    "tensor-core": ("nvidia/nvidia-a100", "cuda-tensorcore", 1, True),
    "hopper": ("nvidia/nvidia-h100", "from-target", 1, True),
    "v100": ("nvidia/nvidia-v100", "from-target", 7, False),
    "t4": ("nvidia/nvidia-t4", "from-target", 3, True),
    "4090": ("nvidia/geforce-rtx-4090", "from-target", 6, True),
}
BAD = ("error", "fault", "wrong", "mask")
_MASK_DRAWS, _ATTEMPTS = 256, 25
_TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1}


@dataclass
class Program:
    """A program, inputs drawn for it, and what it gives on the CPU."""

    name: str

    @functools.cached_property
    def func(self) -> Any:
        """The program before scheduling."""
        return PROGRAMS[self.name][1]()

    @functools.cached_property
    def arrays(self) -> list[np.ndarray]:
        """One array for each parameter; results hold no numbers yet."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        stored: set[Any] = set()
        post_order_visit(self.func.body, lambda n: stored.add(n.buffer) if isinstance(n, BufferStore) else None)
        self.results = [i for i, p in enumerate(self.func.params) if self.func.buffer_map[p] in stored]
        buffers = [self.func.buffer_map[p] for p in self.func.params]
        return [_drawn(rng, b, i in self.results) for i, b in enumerate(buffers)]

    @functools.cached_property
    def expected(self) -> list[np.ndarray]:
        """The arrays after a run on the CPU."""
        module = relaxish.build(IRModule({"main": self.func.with_attr("global_symbol", "main")}), target="llvm")
        arrays = [relaxish.nd.array(a) for a in self.arrays]
        module["main"](*arrays)
        return [a.numpy() for a in arrays]

    def difference(self, found: list[np.ndarray]) -> str:
        """How results differ from what is expected; empty where they do not."""
        narrow = max(_TOLERANCES.get(str(a.dtype), 2e-4) / 3 for a in self.arrays)
        for i in self.results:
            mine, right = found[i], self.expected[i]
            if mine.dtype.kind in "biu":
                if (mine != right).any():
                    return f"{(mine != right).sum()} of {mine.size} integers differ"
                continue
            mine, right = mine.astype("float64"), right.astype("float64")
            allowed = max(narrow, _TOLERANCES.get(str(found[i].dtype), 2e-4)) * max(1.0, np.abs(right).max(initial=0.0))
            bad = ~(np.abs(mine - right) <= allowed)
            if bad.any():
                return f"{bad.sum()} of {bad.size} are off by up to {np.nanmax(np.abs(mine - right)):.3g}"
        return ""


def _drawn(rng: np.random.Generator, buffer: Any, result: bool) -> np.ndarray:
    shape, dtype = tuple(int(s) for s in buffer.shape), str(buffer.dtype)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    if result:
        return np.full(shape, np.nan if "float" in dtype else 0, kind)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        low, high = (0, 1 << 32) if dtype == "uint32" else (0, 7) if buffer.name == "I" else (-8, 8)
        return rng.integers(low, high, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(kind)


@dataclass
class Sketch:
    """A sketch of a program for a target."""

    label: str
    kind: str
    program: Program
    context: Any
    trace: Any
    text: str

    @property
    def sort(self) -> str:
        """What makes it special: the rule that made it."""
        marks = {"hopper": "hopper.", "wmma": "wmma_sync", "mma": "mma_sync_m16n8k8", "rfactor": "_rf"}
        found = [name for name, mark in marks.items() if mark in self.text]
        tiled = any(inst.kind.name == "SamplePerfectTile" for inst in self.trace.insts)
        return f"{self.kind} {'+'.join(found) or ('tiles' if tiled else 'threads')}"

    def draws(self, masks: int) -> Iterator[tuple[str, int, Any]]:
        """(how it was drawn, number, trace) of candidates."""
        rows = self._rows() if masks and zlib.crc32(self.label.encode()) % masks == 0 else None
        if rows is None:
            yield from (("seed", i, Trace(self.trace.insts, {})) for i in range(1, _ATTEMPTS))
        else:
            sketch, matrix = rows
            yield from (("row", i, sketch.table.to_trace(row, ())) for i, row in enumerate(matrix, 1))

    def _rows(self) -> tuple[VectorSketch, np.ndarray] | None:
        try:
            sketch = VectorSketch(self.context, self.trace)
            variant = None if sketch.table.locations else sketch.variant(())
        except REFUSALS:
            return None
        if variant is None:
            return None
        rng = np.random.default_rng(7)
        rows = np.unique(variant.sample(rng, _MASK_DRAWS), axis=0)
        return sketch, rng.permutation(rows)

    def candidate(self, trace: Any, seed: int) -> Any:
        """The schedule; None where a primitive or a postprocessor refuses it."""
        sch = schedule_for_tuning(normalize_mod(self.program.func), seed)
        try:
            trace.apply_to_schedule(sch, remove_postproc=True)
            sch.enter_postproc()
            return sch if all(p.apply(sch) for p in self.context.space_generator.postprocs) else None
        except ScheduleError:
            return None


def sketches(kind: str, name: str) -> Iterator[Sketch]:
    """All sketches of a program for a target; of those that other kinds have as well, none twice."""
    target, rules, _, narrow = KINDS[kind]
    program = Program(name)
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=rules, mutator_probs={})
    context = ms.TuneContext(program.func, target=Target(target), space_generator=space, task_name="t", rand_state=1)
    for index, found in enumerate(context.generate_design_space()):
        trace = found.trace.simplified(remove_postproc=True)
        made = Sketch(f"{kind}/{name}/{index}", kind, program, context, trace, found.mod.script())
        if not narrow or made.sort.split()[1] not in ("tiles", "threads", "rfactor"):
            yield made


def check(sketch: Sketch, sch: Any, number: int, emulate: bool, compiled: bool) -> tuple[str, str]:
    """Build a candidate: ("ok" | "fault" | "wrong", details)."""
    target = sketch.context.target
    if not emulate:
        build_device(sch.mod, target)
        return "ok", ""
    with PassContext(config=QUICK, disabled_pass=SIMPLIFYING if number % 3 else []):
        module = EmulatedModule(sch.mod, target)
    source, arch = cuda_source(module.device), str(target.attrs["arch"])
    if compiled and nvrtc.available() and int(arch[3:5]) in nvrtc.supported_architectures():
        nvrtc.compile_cubin(source, arch)
    arrays = [a.copy() for a in sketch.program.arrays]
    try:
        module.run("main", *arrays)
    except EmulationError as error:
        return "fault", f"{type(error).__name__}: {error}"
    details = sketch.program.difference(arrays)
    return ("wrong" if details else "ok"), details


class Journal:
    """What became of each candidate, kept in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.records: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, **record: Any) -> None:
        """Keep a record."""
        self.records.append(record)
        if record["outcome"] in BAD:
            print(record["sketch"], record["drawn"], record["number"], record["outcome"], record["details"], flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def known(self, program: str) -> bool:
        """Whether a program was looked at for a kind."""
        return any(r["sketch"].startswith(program + "/") for r in self.records)

    def summary(self) -> dict[str, Any]:
        """Outcomes by sort of sketch, and everything that is bad."""
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for r in self.records:
            counts[r["sort"]][r["outcome"]] += 1
            counts[r["sort"]]["emulated"] += int(r["emulated"])
        bad = [r for r in self.records if r["outcome"] in BAD]
        return {"sketches": {k: dict(v) for k, v in sorted(counts.items())}, "failures": bad}


def run(sketch: Sketch, args: argparse.Namespace, journal: Journal) -> None:
    """Check ``args.count`` legal candidates of a sketch."""
    legal = 0
    for drawn, number, trace in sketch.draws(args.masks):
        if legal == args.count:
            return
        emulated, outcome, details = False, "illegal", ""
        try:
            sch = sketch.candidate(trace, number)
            if sch is not None:
                emulated = legal < args.emulate
                legal += 1
                compiled = bool(args.compile) and zlib.crc32(f"{sketch.label}{number}".encode()) % args.compile == 0
                outcome, details = check(sketch, sch, number, emulated, compiled)
            elif drawn == "row":
                outcome = "mask"
        except Exception as error:  # whatever is raised is what this looks for
            outcome, details = "error", f"{type(error).__name__}: {error}"[:1000]
        journal.add(
            sketch=sketch.label, sort=sketch.sort, drawn=drawn, number=number, outcome=outcome, details=details,
            emulated=emulated,
        )  # fmt: skip


def _jobs(names: list[str] | None) -> list[tuple[str, str]]:
    """Programs and kinds in an order that sees something of all families early."""
    jobs = []
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for index, (name, (family, _)) in enumerate(PROGRAMS.items()):
        products = any(t in family for t in ("float16", "int8"))
        for kind, (_, _, every, narrow) in KINDS.items():
            if index % every or (narrow and not products) or (names and not any(n in name for n in names)):
                continue
            jobs.append((seen[kind, family], kind, name))
            seen[kind, family] += 1
    return [(kind, name) for _, kind, name in sorted(jobs)]


def main() -> int:
    """Look at programs one after the other until time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--names", nargs="+", help="only programs whose name contains one of these")
    parser.add_argument("--count", type=int, default=2, help="legal candidates of each sketch")
    parser.add_argument("--emulate", type=int, default=1, help="how many of them to emulate")
    parser.add_argument("--compile", type=int, default=8, help="every how many-th of those to compile; 0 for none")
    parser.add_argument("--masks", type=int, default=5, help="every how many-th sketch to draw by its mask; 0 for none")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--json", type=Path, default=common.RESULTS / "cuda_build_sweep.json")
    args = parser.parse_args()
    journal, end = Journal(args.journal), time.time() + 60 * args.minutes
    for kind, name in _jobs(args.names):
        if time.time() > end:
            break
        if journal.known(f"{kind}/{name}"):
            continue
        try:
            for sketch in sketches(kind, name):
                run(sketch, args, journal)
        except Exception as error:  # no program may end the making of sketches
            journal.add(
                sketch=f"{kind}/{name}/-", sort=f"{kind} space", drawn="", number=0, outcome="error",
                details=f"{type(error).__name__}: {error}"[:1000], emulated=False,
            )  # fmt: skip
        args.json.write_text(json.dumps(journal.summary(), indent=1) + "\n")
    for sort, counts in journal.summary()["sketches"].items():
        print(f"{sort:28} {counts}")
    return 1 if journal.summary()["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
