"""One structural variant of a sketch, compiled: from a matrix of decisions to matrices of features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arith.affine import Affine
from ..feature_extractor.columns import ColumnAccess, ColumnStore, Touched, store_features
from ..feature_extractor.feature_extractor import concrete_store
from ..feature_extractor.program import Program
from ..feature_extractor.repeated import Repeated
from ..postproc.postproc import Postproc
from .column_program import ColumnProgram
from .decisions import DecisionTable
from .device_sizes import DeviceEnvironment, DeviceFitter
from .fitting import Environment, Fitter, Formula, Unfit
from .parallel_fusion import Fusion, fuse_block
from .locations import FactMask, LocationMask
from .program_shape import BlockShape, Reading, columns, fit_forms, part_unlike

__all__ = ["CompiledVariant"]

Array = np.ndarray[Any, Any]


class _Block:
    """A block with its regions as formulas."""

    def __init__(self, shape: BlockShape, regions: list[list[Affine[Formula]]], dims: list[list[Formula]]) -> None:
        self.shape = shape
        self.regions = regions
        self.dims = dims


class _Store:
    """A store with its indices as formulas."""

    def __init__(
        self, info: Any, block: int, accesses: list[Any], index_forms: list[Affine[Formula]], depth: int
    ) -> None:
        self.info = info
        self.block = block
        self.accesses = accesses
        # Stores repeat their indices (C[i, j] = C[i, j] + ...): each distinct one is looked at once.
        self.index_forms: list[tuple[Affine[Formula], int]] = []
        for form in index_forms:
            known = next((i for i, (f, _) in enumerate(self.index_forms) if f == form), None)
            if known is None:
                self.index_forms.append((form, 1))
            else:
                self.index_forms[known] = (form, self.index_forms[known][1] + 1)
        self.depth = depth


class CompiledVariant(ColumnProgram):
    """Formulas for every number of the program and, from them, the effect of the postprocs and all features.

    ``mask`` says for which rows the compute locations are taken as they are; ``process(tiles, parallel, unroll)`` gives
    the program of one candidate after postprocs.
    """

    def __init__(
        self,
        readings: Sequence[Reading],
        examples: Array,
        table: DecisionTable,
        mask: LocationMask | None,
        postprocs: Sequence[Postproc],
        process: Callable[[Array, float, float], Program],
        tried: Sequence[Array],
        facts: Sequence[Mapping[int, bool]],
    ) -> None:
        first = readings[0]
        signature = first.signature()
        if any(r.signature() != signature for r in readings):
            raise Unfit("the loop structure changes with tile sizes")
        part_unlike(readings)
        options = {table.categories[i].at: len(table.categories[i].values) for i in table.structural}
        # The columns that formulas look at.
        self._seen = table.width if options else table.num_tile_columns
        self._environment = DeviceEnvironment if options else Environment

        def fitter_of(rows: Array) -> Fitter:
            tiles = table.tile_ranges
            return DeviceFitter(tiles, options, rows) if options else Fitter(tiles, rows[:, : self._seen])

        fitter, own = fitter_of(examples), fitter_of(np.array(tried))
        super().__init__(table, postprocs, fitter.tables, FactMask(own, facts))
        self._mask = mask
        self.extents = [
            fitter.fit([float(r.program.loops[i].extent) for r in readings]) for i in range(len(first.program.loops))
        ]
        self._fitter, self._readings = fitter, readings
        self.blocks = [self._fit_block(i) for i in range(len(first.blocks))]
        self.stores = [self._fit_store(i) for i in range(len(first.program.stores))]
        self.tables = {*fitter.tables, *own.tables, *(mask.tables if mask is not None else ())}
        self._process = process
        self._whole: dict[int, ColumnStore] = {}
        del self._fitter, self._readings

    def _loops(self, ids: Sequence[int]) -> list[list[Any]]:
        return [[r.program.loops[i] for i in ids] for r in self._readings]

    def _fit_block(self, index: int) -> _Block:
        shape = self._readings[0].blocks[index]
        loops = self._loops(shape.loops)
        sizes = [self.extents[i] for i in shape.loops]
        regions = [
            [
                fit_forms(self._fitter, [r.blocks[index].regions[i][d] for r in self._readings], loops, sizes)
                for d in range(len(region))
            ]
            for i, region in enumerate(shape.regions)
        ]
        dims = [
            [
                self._fitter.fit([float(r.blocks[index].shapes[i][d]) for r in self._readings])
                for d in range(len(region))
            ]
            for i, region in enumerate(shape.shapes)
        ]
        return _Block(shape, regions, dims)

    def _fit_store(self, index: int) -> _Store:
        info = self._readings[0].program.stores[index]
        every = [r.program.stores[index] for r in self._readings]
        loops = self._loops(info.loops)
        sizes = [self.extents[i] for i in info.loops]
        accesses = []
        for a, access in enumerate(info.accesses):
            indices = [
                [
                    fit_forms(self._fitter, [s.accesses[a].indices[m][d] for s in every], loops, sizes)
                    for d in range(len(forms))
                ]
                for m, forms in enumerate(access.indices)
            ]
            shape = [
                self._fitter.fit([float(s.accesses[a].shape()[d]) for s in every]) for d in range(len(access.shape()))
            ]
            accesses.append((access, indices, shape))
        forms = [
            fit_forms(self._fitter, [s.index_forms[i] for s in every], loops, sizes)
            for i in range(len(info.index_forms))
        ]
        names = [i for i, shape in enumerate(self._readings[0].blocks) if shape.name == info.block]
        if len(names) != 1 or self._readings[0].blocks[names[0]].loops != info.loops:
            raise Unfit("a store inside loops of its own block")
        depth = len(info.alloc_loops) if info.alloc_loops is not None else 0
        return _Store(info, names[0], accesses, forms, depth)

    # ---- postprocs, on columns

    def _plan(self, env: Environment, parallel: Array) -> list[Fusion]:
        """What becomes of the loops of each block."""
        if not self.loop_kinds:
            none = np.zeros(env.size, dtype=np.int8)
            return [Fusion(none, none) for _ in self.blocks]
        taken: dict[int, Array] = {}
        plans = []
        for block in self.blocks:
            loops = block.shape.loops
            extents = [self.extents[i](env) for i in loops]
            made = fuse_block(
                block.shape,
                list(zip(block.regions, block.dims, strict=True)),
                extents,
                env,
                taken,
                parallel,
                self.columns.vectorize,
            )
            plans.append(made)
            n = len(loops)
            for position, loop in enumerate(loops):
                mine = (position < made.num_parallel) | (position >= n - made.num_vector)
                if mine.any():
                    taken[loop] = taken[loop] | mine if loop in taken else mine
        return plans

    # ---- rows

    def possible(self, env: Environment) -> Array:
        """For which rows the compute locations are taken as they are."""
        return super().possible(env) if self._mask is None else self._mask(env)

    def environment(self, matrix: Array) -> Environment:
        """The decisions of many candidates, ready for formulas."""
        return self._environment(matrix[:, : self._seen])

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """At most ``count`` random valid rows."""
        rows = self.columns.sample(rng, count)
        if self._mask is None and not self._further and not self.tables:
            return rows
        rows = rows[self.valid(rows)]
        for _ in range(4):
            if 2 * len(rows) >= count:
                break
            more = self.columns.sample(rng, 2 * count)
            rows = np.concatenate([rows, more[self.valid(more)]])
        return rows[:count]

    # ---- features

    def feature_rows(self, matrix: Array) -> list[Repeated]:
        """One ``[candidates, 164]`` matrix for each stored buffer."""
        tiles, parallel = matrix[:, : self._seen], matrix[:, self.columns.parallel_column]
        unroll = self.columns.unroll_values(matrix) if self.loop_kinds else np.zeros(len(matrix))
        found = self._all_features(tiles, parallel.astype("float32"), unroll)
        return [Repeated(block) for block in found]

    def _all_features(self, tiles: Array, parallel: Array, unroll: Array) -> list[Array]:
        env = self._environment(tiles)
        plans = self._plan(env, parallel)
        fused = [i for i, plan in enumerate(plans) if plan.whole is not None]
        if not fused:
            return self._features(env, plans, unroll, frozenset())
        pattern = np.zeros(env.size, dtype=np.int64)
        for bit, index in enumerate(fused):
            pattern |= plans[index].whole.astype(np.int64) << bit  # type: ignore[union-attr]
        out: list[Array] = []
        for value in np.unique(pattern):
            rows = np.nonzero(pattern == value)[0]
            chosen = frozenset(index for bit, index in enumerate(fused) if value >> bit & 1)
            for index in chosen:
                self._learn_whole(index, tiles[rows[0]], float(parallel[rows[0]]), float(unroll[rows[0]]))
            everyone = len(rows) == env.size
            sub = env if everyone else self._environment(tiles[rows])
            mine = plans if everyone else [Fusion(p.num_parallel[rows], p.num_vector[rows]) for p in plans]
            parts = self._features(sub, mine, unroll[rows], chosen)
            if everyone:
                return parts
            if not out:
                out = [np.empty((env.size, part.shape[1]), dtype=np.float32) for part in parts]
            for whole, part in zip(out, parts, strict=True):
                whole[rows] = part
        return out

    def _learn_whole(self, block: int, tiles: Array, parallel: float, unroll: float) -> None:
        """The stores of a nest that is fused as a whole, read off one candidate: they are the same for all."""
        mine = [i for i, store in enumerate(self.stores) if store.block == block]
        if all(i in self._whole for i in mine):
            return
        if not all(self.extents[i].constant for i in self.blocks[block].shape.loops):
            raise Unfit("a tiled loop nest that is fused as a whole and cut again")
        program = self._process(tiles, parallel, unroll)
        if len(program.stores) != len(self.stores):
            raise Unfit("postprocs change the number of stores")
        for i in mine:
            column = concrete_store(program, program.stores[i], gpu=False)
            column.loop_ids = [-1 - loop for loop in column.loop_ids]
            self._whole[i] = column

    def _features(self, env: Environment, plans: list[Fusion], unroll: Array, whole: frozenset[int]) -> list[Array]:
        size = env.size
        unrolled: dict[int, Array] = {}
        outer: dict[int, Array] = {}
        for block, plan in zip(self.blocks, plans, strict=True):
            if not block.shape.loops:
                continue
            head = block.shape.loops[0]
            known = outer.get(head)
            outer[head] = plan.num_parallel if known is None else np.maximum(known, plan.num_parallel)
            if not block.shape.spatial:
                unrolled[head] = unroll
        touched, rows = Touched(), {}
        buffers: dict[Any, int] = {}
        for index, store in enumerate(self.stores):
            if store.block in whole:
                column = self._renumbered(self._whole[index], store, buffers)
            else:
                column = self._column(store, env, plans[store.block].num_vector, outer, unrolled, buffers)
            rows[id(store.info.buffer)] = store_features(column, touched, size)
        return list(rows.values())

    @staticmethod
    def _renumbered(column: ColumnStore, store: _Store, buffers: dict[Any, int]) -> ColumnStore:
        """Buffer numbers as in the program of the formulas."""
        for access, (info, _, _) in zip(column.accesses, store.accesses, strict=True):
            access.buffer = buffers.setdefault(id(info.buffer), len(buffers))
        return column

    def _column(
        self,
        store: _Store,
        env: Environment,
        num_vec: Array,
        outer: dict[int, Array],
        unrolled: dict[int, Array],
        buffers: dict[Any, int],
    ) -> ColumnStore:
        info = store.info
        extents = [self.extents[i](env) for i in info.loops]
        head = info.loops[0] if info.loops else -1
        accesses = []
        for access, indices, shape in store.accesses:
            forms = [[columns(form, env) for form in dims] for dims in indices]
            accesses.append(
                ColumnAccess(
                    buffers.setdefault(id(access.buffer), len(buffers)),
                    access.buffer.name,
                    access.itemsize,
                    access.kind,
                    [f(env) for f in shape],
                    forms,
                )
            )
        return ColumnStore(
            info.loops,
            extents,
            accesses,
            info.ops,
            [(columns(form, env), times) for form, times in store.index_forms],
            (math.prod(accesses[0].shape), accesses[0].itemsize, store.depth),
            unrolled.get(head, 0.0),
            outer.get(head, 0),
            num_vec,
            None,
        )
