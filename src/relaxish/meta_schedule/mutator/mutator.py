"""Mutators: small random changes of a trace's decisions."""

from __future__ import annotations

import bisect
import itertools
import operator
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from collections.abc import Sequence

from ...tir.schedule.rv import BlockRV
from ...ir.module import IRModule
from ...support.entry_points import load
from ...tir import PrimFunc
from ...tir.schedule import Instruction, Schedule, Trace
from ..analysis import blocks as ba
from ..analysis.schedules import schedule_for_tuning
from ..utils import MethodNotDefinedError, Part
from ...ir.plain import plain, plain_float, plain_int

if TYPE_CHECKING:
    from ..search_strategy.decisions import DecisionTable
    from ..task import Task

__all__ = [
    "MutateComputeLocation",
    "MutateParallel",
    "MutateThreadBinding",
    "MutateTileSize",
    "MutateUnroll",
    "Mutator",
    "PyMutator",
    "divisors_above_one",
]

Array = np.ndarray[Any, Any]


class Mutator(Part["Task"]):
    """Subclass and define ``apply(trace) -> Trace | None``; None means there was nothing to change.

    The search keeps its candidates as rows of decisions. A mutator that also defines :meth:`on_columns` changes
    thousands of them at once; of one that does not, the search takes a few rows of every generation through ``apply``.
    """

    #: Whether the change is another compute location: then rows move on to another program structure as they are.
    moves_blocks = False

    def apply(self, trace: Trace, rand: random.Random | None = None) -> Trace | None:
        """A changed copy of the trace."""
        raise MethodNotDefinedError(self, "apply")

    def on_columns(self, columns: DecisionTable, rng: np.random.Generator, rows: Array) -> bool:
        """Change ``rows[candidate, column]`` in place; ``columns`` says what the columns are. False: not defined."""
        return False

    @staticmethod
    def create(kind: str) -> dict[Mutator, float]:
        """The default mutators of a kind of target, with their probabilities."""
        made: dict[Mutator, float] = load("tuning.mutators")(kind)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


PyMutator = Mutator


def divisors_above_one(n: int) -> list[int]:
    """Divisors of ``n`` except 1, ascending."""
    return [d for d in range(2, n + 1) if n % d == 0]


def _rng(rand: random.Random | int | None) -> random.Random:
    return rand if isinstance(rand, random.Random) else random.Random(rand)


class MutateTileSize(Mutator):
    """Moves a factor from one tile to another, or picks another vector length for cooperative fetching."""

    def apply(self, trace: Trace, rand: random.Random | None = None) -> Trace | None:
        rng = _rng(rand)
        tiles, vectors = [], []
        fetch = {
            inst.inputs[1]
            for inst in trace.insts
            if inst.kind.name == "Annotate"
            and inst.attrs[0] == "meta_schedule.cooperative_fetch"
            and len(inst.inputs) > 1
        }
        for inst, decision in trace.decisions.items():
            if inst.kind.name == "SamplePerfectTile" and len(decision) > 1 and any(x > 1 for x in decision):
                tiles.append(inst)
            elif inst.kind.name == "SampleCategorical" and inst.outputs[0] in fetch:
                vectors.append(inst)
        if not tiles and not vectors:
            return None
        pick = rng.randrange(len(tiles) + len(vectors))
        if pick >= len(tiles):
            return _other_category(trace, vectors[pick - len(tiles)], rng)
        inst = tiles[pick]
        made = self._move(list(trace.decisions[inst]), int(_attr(inst, "max_innermost_factor", -1)), rng)
        return None if made is None else trace.with_decision(inst, made, remove_postproc=True)

    def on_columns(self, columns: DecisionTable, rng: np.random.Generator, rows: Array) -> bool:
        """Sampled options of the program's form count as vector lengths do."""
        tiles = [t for t in columns.tiles if t.count > 1 and t.extent > 1]
        others = [*columns.fetches, *(i for i in columns.options if len(columns.categories[i].values) > 1)]
        if not (tiles or others) or not len(rows):
            return True
        which = rng.integers(0, len(tiles) + len(others), len(rows))
        for index, category in enumerate(others, len(tiles)):
            columns.other_choice(rng, rows, category, np.nonzero(which == index)[0])
        for index, tile in enumerate(tiles):
            chosen = np.nonzero(which == index)[0]
            if not chosen.size:
                continue
            own = slice(tile.at, tile.at + tile.count)
            if tile.at in columns.partitioned:
                choices = columns.choices(*tile[1:])
                rows[chosen, own] = choices[rng.integers(0, len(choices), chosen.size)]
            else:
                rows[chosen, own] = _moved_factors(rng, rows[chosen, own], tile.extent, tile.limit)
        return True

    @staticmethod
    def _move(tiles: list[int], limit: int, rng: random.Random) -> list[int] | None:
        n = len(tiles)
        for _ in range(16):
            x = rng.choice([i for i in range(n) if tiles[i] > 1])
            y = rng.randrange(n - 1)
            y += y >= x
            room = limit // tiles[y] if y == n - 1 and limit > 0 else tiles[x]
            factors = [d for d in divisors_above_one(tiles[x]) if d <= room]
            if factors:
                factor = rng.choice(factors)
                tiles[x] //= factor
                tiles[y] *= factor
                return tiles
        return None


@lru_cache(maxsize=512)
def _divisor_table(extent: int) -> tuple[Array, Array]:
    """Row ``v``: divisors of ``v`` above 1, padded with a huge number; and how many there are."""
    values = [d for d in range(1, extent + 1) if extent % d == 0]
    rows = [[d for d in values if d > 1 and v % d == 0] for v in values]
    width = max(1, max(len(r) for r in rows))
    table = np.full((extent + 1, width), 1 << 40, dtype=np.int64)
    count = np.zeros(extent + 1, dtype=np.int64)
    for v, row in zip(values, rows, strict=True):
        table[v, : len(row)] = row
        count[v] = len(row)
    return table, count


def _moved_factors(rng: np.random.Generator, part: Array, extent: int, limit: int) -> Array:
    """Factorisations of ``extent``, one a row, in each of which a factor moves from one place to another."""
    n = part.shape[1]
    x = np.argmax(np.where(part > 1, rng.random(part.shape), -1.0), axis=1)
    y = (x + rng.integers(1, n, len(part))) % n
    each = np.arange(len(part))
    table, count = _divisor_table(extent)
    source = part[each, x]
    options = count[source]
    if limit > 0:
        room = np.where(y == n - 1, limit // part[each, y], 1 << 39)
        options = np.minimum(options, (table[source] <= room[:, None]).sum(axis=1))
    pick = (rng.random(len(part)) * options).astype(np.int64)
    factor = np.where(options > 0, table[source, np.minimum(pick, table.shape[1] - 1)], 1)
    part[each, x] //= factor
    part[each, y] *= factor
    return part


def _attr(inst: Instruction, name: str, default: Any) -> Any:
    named = dict(zip(inst.kind.attrs, inst.attrs, strict=True))
    value = named.get(name, default)
    return default if value is None else plain(value)


def _other_category(trace: Trace, inst: Instruction, rng: random.Random) -> Trace | None:
    probs = [plain_float(p) for p in _attr(inst, "probs", [])]
    current = int(trace.decisions[inst])
    choices = [i for i in range(len(probs)) if i != current]
    if not choices:
        return None
    chosen = rng.choices(choices, [probs[i] for i in choices])[0]
    return trace.with_decision(inst, chosen, remove_postproc=True)


class MutateUnroll(Mutator):
    """Picks another unroll depth."""

    def apply(self, trace: Trace, rand: random.Random | None = None) -> Trace | None:
        rng = _rng(rand)
        steps = {
            inst.inputs[1]
            for inst in trace.insts
            if inst.kind.name == "Annotate"
            and str(inst.attrs[0]).startswith("meta_schedule.unroll_")
            and len(inst.inputs) > 1
            and not isinstance(inst.inputs[1], (int, str))
        }
        insts = [i for i in trace.decisions if i.kind.name == "SampleCategorical" and i.outputs[0] in steps]
        return _other_category(trace, rng.choice(insts), rng) if insts else None

    def on_columns(self, columns: DecisionTable, rng: np.random.Generator, rows: Array) -> bool:
        if columns.unroll >= 0:
            columns.other_choice(rng, rows, columns.unroll, np.arange(len(rows)))
        return True


class MutateComputeLocation(Mutator):
    """Moves one sampled block somewhere else."""

    moves_blocks = True

    def __init__(self) -> None:
        self._mod: Any = None

    def _initialize_with_tune_context(self, context: Task) -> None:
        self._mod = context.mod

    def apply(self, trace: Trace, rand: random.Random | None = None) -> Trace | None:
        rng = _rng(rand)
        found: list[tuple[Instruction, list[int]]] = []

        def watch(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> object:
            if inst.kind.name == "SampleComputeLocation" and decision is not None:
                others = [x for x in compute_locations(sch, inputs[0]) if x != decision]
                if others:
                    found.append((inst, others))
            return decision

        if not any(i.kind.name == "SampleComputeLocation" for i in trace.decisions):
            return None
        sch = schedule_for_tuning(self._mod)
        trace.apply_to_schedule(sch, remove_postproc=True, decision_provider=watch)
        if not found:
            return None
        inst, others = rng.choice(found)
        return trace.with_decision(inst, rng.choice(others), remove_postproc=True)


def compute_locations(sch: Schedule, block: BlockRV) -> list[int]:
    """Legal decisions of a sampled compute location: loop indices, -1 for inlining, -2 for the root."""
    from ...tir.schedule.primitives.compute_at import compute_locations as legal

    return [int(x) for x in legal(sch.state, sch.sref(block))[1]]


class MutateParallel(Mutator):
    """Changes how many outer loops run in parallel."""

    def __init__(self, max_jobs_per_core: int) -> None:
        self.max_jobs_per_core = max_jobs_per_core
        self._max_parallel_extent = -1
        self._mod: Any = None

    def _initialize_with_tune_context(self, context: Task) -> None:
        from ..schedule_rule.schedule_rule import target_cores

        self._max_parallel_extent = target_cores(context) * self.max_jobs_per_core
        self._mod = context.mod

    def apply(self, trace: Trace, rand: random.Random | None = None) -> Trace | None:
        rng = _rng(rand)
        marks = [i for i in trace.insts if i.kind.name == "Annotate" and i.attrs[0] == "meta_schedule.parallel"]
        if not marks:
            return None
        inst = rng.choice(marks)
        sch = schedule_for_tuning(self._mod)
        trace.apply_to_schedule(sch, remove_postproc=True)
        nests = [list(itertools.accumulate(extents, operator.mul)) for extents in _parallel_nests(sch.mod)]
        limits = sorted({p for products in nests for p in products if p <= self._max_parallel_extent})
        plans = {_fused_loops(nests, limit): limit for limit in limits}
        plans.pop(_fused_loops(nests, plain_int(inst.inputs[1])), None)
        if not plans:
            return None
        return with_annotation(trace, inst, rng.choice(list(plans.values())))

    def on_columns(self, columns: DecisionTable, rng: np.random.Generator, rows: Array) -> bool:
        if columns.parallel is not None and len(rows):
            rows[:, columns.parallel_column] = rng.choice(columns.parallel_limits, len(rows))
        return True


def _parallel_nests(mod: IRModule) -> list[list[int]]:
    nests = []
    for func in mod.functions.values():
        if not isinstance(func, PrimFunc):
            continue
        root = next((p.realize.block for p in ba.places(func) if p.scope is None), None)
        for place in ba.places(func):
            if place.scope is not root or not place.loops:
                continue
            extents = []
            for loop in place.loops:
                if not ba.is_parallel(place, loop) or ba.has_annotation_or_binding(loop):
                    break
                extents.append(ba.int_extent(loop) or 1)
                if not ba.is_single_statement(loop.body):
                    break
            nests.append(extents)
    return nests


def parallel_limits(mod: IRModule, top: int) -> list[int]:
    """Limits worth trying: the products of outer extents that stay below ``top``, 1 and ``top`` itself."""
    limits = {1, top}
    for extents in _parallel_nests(mod):
        product = 1
        for extent in extents:
            product *= extent
            if product > top:
                break
            limits.add(product)
    return sorted(limits)


def _fused_loops(nests: list[list[int]], limit: int) -> tuple[int, ...]:
    """How many loops of each nest make as many iterations as ``limit``; products of extents are given."""
    counts = []
    for products in nests:
        below = bisect.bisect_right(products, limit)
        below -= below > 0 and products[below - 1] == limit
        counts.append(min(below + 1, len(products)))
    return tuple(counts)


def with_annotation(trace: Trace, inst: Instruction, value: int) -> Trace:
    """A copy of the trace in which one annotation has another value."""
    made = Instruction(inst.kind, [inst.inputs[0], value], inst.attrs, inst.outputs)
    insts = [made if i is inst else i for i in trace._kept(True)]
    known = set(insts)
    return Trace(insts, {k: v for k, v in trace.decisions.items() if k in known})


class MutateThreadBinding(Mutator):
    """Picks another extent for a loop that is split and bound to a thread axis."""

    def apply(self, trace: Trace, rand: random.Random | None = None) -> Trace | None:
        rng = _rng(rand)
        sampled = {i.outputs[0]: i for i in trace.decisions if i.kind.name == "SampleCategorical"}
        bound = {i.inputs[0] for i in trace.insts if i.kind.name == "Bind" and "threadIdx" in str(i.attrs[0])}
        insts = []
        for inst in trace.insts:
            if inst.kind.name == "Split" and any(out in bound for out in inst.outputs):
                insts += [sampled[x] for x in inst.inputs[1:] if x in sampled]
        return _other_category(trace, rng.choice(insts), rng) if insts else None

    def on_columns(self, columns: DecisionTable, rng: np.random.Generator, rows: Array) -> bool:
        if columns.threads and len(rows):
            which = rng.integers(0, len(columns.threads), len(rows))
            for index, category in enumerate(columns.threads):
                columns.other_choice(rng, rows, category, np.nonzero(which == index)[0])
        return True
