"""A sketch's sampling instructions as columns of a matrix, with sampling and mutation of whole populations."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...ir.expr import PrimExpr
from ...tir.schedule import Instruction, Trace
from ...tir.schedule.sampling import factor_tuples
from ...ir.plain import plain_float, plain_int

__all__ = ["Category", "DecisionTable", "Tile", "tile_table"]

Array = np.ndarray[Any, Any]
_LIMIT = 200_000


@lru_cache(maxsize=512)
def _tile_table(extent: int, n: int, limit: int) -> Array:
    tuples = factor_tuples(extent, n, limit)
    if not tuples or len(tuples) > _LIMIT:
        raise ValueError(f"{len(tuples)} factorisations of {extent}")
    return np.array(tuples, dtype=np.int64)


@lru_cache(maxsize=512)
def _partitioned_table(extent: int, n: int, position: int, inner: int) -> Array:
    """Factorisations whose factors from ``position`` on have a product that ``inner`` divides."""
    table = _tile_table(extent, n, 0)
    kept: Array = table[table[:, position:].prod(axis=1) % inner == 0]
    return kept if len(kept) else np.array([[extent] + [1] * (n - 1)], dtype=np.int64)


def tile_table(inst: Instruction, extent: int) -> Array:
    """The factorisations of ``extent`` that an instruction may sample, one a row. Raises ValueError for too many."""
    named = dict(zip(inst.kind.attrs, inst.attrs, strict=False))
    n = plain_int(named["n"])
    if inst.kind.name == "SamplePartitionedTile":
        return _partitioned_table(extent, n, plain_int(named["partition_pos"]), plain_int(named["innerpart_factor"]))
    return _tile_table(extent, n, plain_int(named["max_innermost_factor"]))


class Tile(NamedTuple):
    """A sampled factorisation of ``extent`` into ``count`` factors: columns ``at`` to ``at + count - 1``; ``limit`` of the
    innermost one, not positive for none."""

    inst: Instruction
    at: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    extent: int
    limit: int


class Category(NamedTuple):
    """A sampled choice: its column has the number of the choice."""

    inst: Instruction
    at: int
    values: list[int]
    probs: Array


class DecisionTable:
    """Columns of each sampling instruction. Tiles come first, then categories, then the parallel limit.

    ``fetches`` and ``threads`` are the categories that are vector lengths of shared copies, and extents of bound loops;
    ``options`` are all others on which the program depends.
    """

    def __init__(self, trace: Trace, parallel_limits: list[int]) -> None:
        self.trace = trace
        self.tiles: list[Tile] = []
        self.partitioned: dict[int, tuple[int, int]] = {}  # first column: position and divisor of the inner part
        self.categories: list[Category] = []
        self.locations: list[Instruction] = []
        self.parallel: Instruction | None = None
        self.unroll = -1
        self.vectorize = -1
        self.fetches: list[int] = []
        self.threads: list[int] = []
        self.options: list[int] = []
        at = 0
        for inst in trace.insts:
            named = dict(zip(inst.kind.attrs, inst.attrs, strict=False))
            if inst.kind.name == "SamplePerfectTile":
                n = int(named["n"])
                extent = int(np.prod([int(x) for x in trace.decisions[inst]]))
                limit = int(named["max_innermost_factor"])
                _tile_table(extent, n, limit)
                self.tiles.append(Tile(inst, at, n, extent, limit))
                at += n
            elif inst.kind.name == "SamplePartitionedTile":
                n = int(named["n"])
                extent = int(np.prod([int(x) for x in trace.decisions[inst]]))
                self.partitioned[at] = int(named["partition_pos"]), int(named["innerpart_factor"])
                _partitioned_table(extent, n, *self.partitioned[at])
                self.tiles.append(Tile(inst, at, n, extent, -1))
                at += n
            elif inst.kind.name == "SampleComputeLocation":
                self.locations.append(inst)
            elif inst.kind.name not in ("SampleCategorical", "Annotate") and inst.kind.name.startswith("Sample"):
                raise ValueError(f"the instruction {inst.kind.name} has no column form")
        self.num_tile_columns = at
        for inst in trace.insts:
            if inst.kind.name == "SampleCategorical":
                named = dict(zip(inst.kind.attrs, inst.attrs, strict=True))
                probs = np.array([plain_float(p) for p in named["probs"]])
                values = [plain_int(c) for c in named["candidates"]]
                self.categories.append(Category(inst, at, values, probs / probs.sum()))
                at += 1
        self.parallel_limits = np.array(parallel_limits or [-1], dtype=np.int64)
        self.parallel_column = at
        self.width = at + 1
        self._annotations(trace)
        self.signature = self._text(trace)

    def _annotations(self, trace: Trace) -> None:
        for inst in trace.insts:
            if inst.kind.name != "Annotate":
                continue
            key, value = inst.attrs[0], inst.inputs[1]
            if key == "meta_schedule.parallel":
                self.parallel = inst
            elif key == "meta_schedule.vectorize":
                self.vectorize = plain_int(value)
            elif str(key).startswith("meta_schedule.unroll_"):
                self.unroll = self._category(value)
            elif key == "meta_schedule.cooperative_fetch" and self._category(value) >= 0:
                self.fetches.append(self._category(value))
        if self.unroll == -2:
            raise ValueError("an unroll depth that is not a sampled category")
        bound = {i.inputs[0] for i in trace.insts if i.kind.name == "Bind" and "threadIdx" in str(i.attrs[0])}
        for inst in trace.insts:
            if inst.kind.name == "Split" and any(out in bound for out in inst.outputs):
                self.threads += [self._category(x) for x in inst.inputs[1:] if self._category(x) >= 0]
        self.threads = sorted(set(self.threads))
        self.options = [i for i in self.structural if i not in self.threads]

    def _category(self, value: PrimExpr) -> int:
        """Which category a value is, -2 for none."""
        return next((i for i, c in enumerate(self.categories) if c[0].outputs[0] is value), -2)

    @property
    def structural(self) -> list[int]:
        """Categories on which the program depends before its postprocs."""
        return [i for i in range(len(self.categories)) if i != self.unroll and i not in self.fetches]

    @staticmethod
    def _text(trace: Trace) -> str:
        insts, _ = trace.simplified(remove_postproc=True).as_json(remove_postproc=True)
        for inst in insts:
            if inst[0] == "Annotate" and inst[2] and inst[2][0] == "meta_schedule.parallel":
                inst[1] = [inst[1][0], 0]
        return json.dumps(insts)

    # ---- columns

    @property
    def tile_ranges(self) -> list[tuple[int, int]]:
        """First and past-the-last column of each tile."""
        return [(at, at + n) for _, at, n, _, _ in self.tiles]

    def unroll_values(self, matrix: Array) -> Array:
        """The unroll depth of each row."""
        if self.unroll < 0:
            return np.zeros(len(matrix))
        _, at, values, _ = self.categories[self.unroll]
        return np.array(values, dtype=float)[matrix[:, at]]

    def sample(
        self,
        rng: np.random.Generator,
        count: int,
        accept: Callable[[Array], Array] | None = None,
        deciding: Collection[int] = (),
    ) -> Array:
        """Random rows, every factorisation equally likely; of those the ones that ``accept`` flags, which looks at the
        columns ``deciding`` only."""
        matrix = np.zeros((count, self.width), dtype=np.int64)
        default = self.parallel_limits[-1] if self.parallel is None else _annotated(self.parallel)
        matrix[:, self.parallel_column] = default
        first = frozenset(deciding) if accept is not None else frozenset(range(self.width))
        self._fill(rng, matrix, first, True)
        if accept is not None:
            matrix = matrix[accept(matrix)]
            self._fill(rng, matrix, first, False)
        return matrix

    def _fill(self, rng: np.random.Generator, matrix: Array, columns: frozenset[int], inside: bool) -> None:
        """Random choices for the tiles and categories that have some of the columns, or for all others."""
        for _, at, n, extent, limit in self.tiles:
            if columns.isdisjoint(range(at, at + n)) != inside:
                table = self.choices(at, n, extent, limit)
                chosen = rng.integers(0, len(table), len(matrix), dtype=np.int32)
                matrix[:, at : at + n] = table.take(chosen, axis=0)
        for _, at, values, probs in self.categories:
            if (at in columns) == inside:
                # Most categories are equally likely; drawing those is several times as fast.
                alike = (probs == probs[0]).all()
                count = len(matrix)
                matrix[:, at] = (
                    rng.integers(0, len(values), count, dtype=np.int32)
                    if alike
                    else rng.choice(len(values), size=count, p=probs)
                )

    def choices(self, at: int, n: int, extent: int, limit: int) -> Array:
        """The factorisations that one tile may have, one a row."""
        if at in self.partitioned:
            return _partitioned_table(extent, n, *self.partitioned[at])
        return _tile_table(extent, n, limit)

    def place(self, matrix: Array) -> Array:
        """Rows as points, so that programs alike are near each other: logarithms of tile factors, options by number."""
        options = [self.categories[i][1] for i in self.options]
        tiles: Array = np.log2(matrix[:, : self.num_tile_columns])
        return np.concatenate([tiles, matrix[:, options].astype(tiles.dtype)], axis=1)

    def innermost(self, row: Array) -> tuple[int, ...]:
        """The innermost factors of the tiles and the options of a row."""
        return (*(int(row[at + n - 1]) for _, at, n, _, _ in self.tiles),
                *(int(row[self.categories[i][1]]) for i in self.options))  # fmt: skip

    def other_choice(self, rng: np.random.Generator, matrix: Array, category: int, chosen: Array) -> None:
        """Another choice of one category in the rows numbered ``chosen``."""
        _, at, values, _ = self.categories[category]
        if len(values) > 1 and len(chosen):
            matrix[chosen, at] = (matrix[chosen, at] + rng.integers(1, len(values), len(chosen))) % len(values)

    # ---- rows and traces

    def to_trace(self, row: Array, locations: tuple[int, ...]) -> Trace:
        """The trace a row stands for; without ``locations`` these are left to be sampled."""
        decisions: dict[Instruction, Any] = {}
        for inst, at, n, _, _ in self.tiles:
            decisions[inst] = [int(x) for x in row[at : at + n]]
        for inst, at, _, _ in self.categories:
            decisions[inst] = int(row[at])
        for inst, value in zip(self.locations, locations, strict=bool(locations)):
            decisions[inst] = int(value)
        insts = list(self.trace.insts)
        if self.parallel is not None and int(row[self.parallel_column]) != _annotated(self.parallel):
            changed = Instruction(
                self.parallel.kind,
                [self.parallel.inputs[0], int(row[self.parallel_column])],
                self.parallel.attrs,
                self.parallel.outputs,
            )
            insts[insts.index(self.parallel)] = changed
        return Trace(insts, decisions)

    def from_trace(self, trace: Trace) -> tuple[Array, tuple[int, ...]] | None:
        """The row of a trace of this sketch; None if it is of another, or leaves decisions to be sampled."""
        simple = trace.simplified(remove_postproc=True)
        if self._text(simple) != self.signature:
            return None
        return self._row(simple)

    def _row(self, simple: Trace) -> tuple[Array, tuple[int, ...]] | None:
        row = np.empty(self.width, dtype=np.int64)
        own = [i for i in simple.insts if i.kind.name.startswith("Sample")]
        mine = [i for i in self.trace.insts if i.kind.name.startswith("Sample")]
        if any(inst not in simple.decisions for inst in own):
            return None
        decided = {a: simple.decisions[b] for a, b in zip(mine, own, strict=True)}
        for inst, at, n, extent, _ in self.tiles:
            if int(np.prod(decided[inst])) != extent:
                return None
            row[at : at + n] = decided[inst]
        for inst, at, _, _ in self.categories:
            row[at] = decided[inst]
        row[self.parallel_column] = next(
            (
                _annotated(i)
                for i in simple.insts
                if i.kind.name == "Annotate" and i.attrs[0] == "meta_schedule.parallel"
            ),
            -1,
        )
        return row, tuple(int(decided[i]) for i in self.locations)


def _annotated(inst: Instruction) -> int:
    return plain_int(inst.inputs[1])
