"""One structural variant of a sketch, compiled: from a matrix of decisions to matrices of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..feature_extractor.columns import ColumnAccess, ColumnStore, Touched, store_features
from .fitting import Environment, Fitter, Unfit
from .skeleton import BlockShape, FittedForm, Reading, fit_forms

__all__ = ["CompiledVariant"]

Array = np.ndarray[Any, Any]


class _Block:
    """A block with its regions as formulas."""

    def __init__(self, shape: BlockShape, regions: list[list[FittedForm]]) -> None:
        self.shape = shape
        self.regions = regions


class _Store:
    """A store with its indices as formulas."""

    def __init__(self, info: Any, block: int, accesses: list[Any], index_forms: list[FittedForm], depth: int) -> None:
        self.info = info
        self.block = block
        self.accesses = accesses
        self.index_forms = index_forms
        self.depth = depth


class CompiledVariant:
    """Formulas for every number of the program and, from them, the effect of the postprocs and all features.

    ``vectorize`` is the longest vector loop; the limits on parallel loops and the unroll depths come as columns.
    """

    def __init__(self, readings: Sequence[Reading], examples: Array, tiles: Sequence[tuple[int, int]], vectorize: int,
                 gpu: bool = False) -> None:
        first = readings[0]
        signature = first.signature()
        if any(r.signature() != signature for r in readings):
            raise Unfit("the loop structure changes with tile sizes")
        fitter = Fitter(tiles, examples)
        self.vectorize = vectorize
        self.gpu = gpu
        self.extents = [fitter.fit([float(r.program.loops[i].extent) for r in readings])
                        for i in range(len(first.program.loops))]
        self._fitter, self._readings = fitter, readings
        self.blocks = [self._fit_block(i) for i in range(len(first.blocks))]
        self.stores = [self._fit_store(i) for i in range(len(first.program.stores))]
        del self._fitter, self._readings

    def _loops(self, ids: Sequence[int]) -> list[list[Any]]:
        return [[r.program.loops[i] for i in ids] for r in self._readings]

    def _fit_block(self, index: int) -> _Block:
        shape = self._readings[0].blocks[index]
        loops = self._loops(shape.loops)
        regions = [[fit_forms(self._fitter, [r.blocks[index].regions[i][d] for r in self._readings], loops)
                    for d in range(len(region))] for i, region in enumerate(shape.regions)]
        return _Block(shape, regions)

    def _fit_store(self, index: int) -> _Store:
        info = self._readings[0].program.stores[index]
        every = [r.program.stores[index] for r in self._readings]
        loops = self._loops(info.loops)
        accesses = []
        for a, access in enumerate(info.accesses):
            indices = [[fit_forms(self._fitter, [s.accesses[a].indices[m][d] for s in every], loops)
                        for d in range(len(forms))] for m, forms in enumerate(access.indices)]
            accesses.append((access, indices))
        forms = [fit_forms(self._fitter, [s.index_forms[i] for s in every], loops)
                 for i in range(len(info.index_forms))]
        block = next((b for b, shape in enumerate(self._readings[0].blocks) if shape.loops == info.loops
                      and self._readings[0].program.blocks.get(shape.name) == info.loops), -1)
        if block == -1:
            raise Unfit("a store inside loops of its own block")
        names = [b.name for b in self._readings[0].blocks if b.loops == info.loops]
        if len(names) > 1:
            raise Unfit("two blocks under exactly the same loops")
        depth = len(info.alloc_loops) if info.alloc_loops is not None else 0
        return _Store(info, block, accesses, forms, depth)

    # ---- postprocs, on columns

    def _plan(self, env: Environment, parallel: Array) -> tuple[list[tuple[Array, Array]], dict[int, Array]]:
        """Per block, how many outer loops run in parallel as one and how many inner ones are one vector loop."""
        size = env.size
        taken: dict[int, Array] = {}
        counts = []
        for block in self.blocks:
            shape = block.shape
            n = len(shape.loops)
            extents = [np.broadcast_to(np.asarray(self.extents[i](env), dtype=float), (size,)) for i in shape.loops]
            fusible = np.full(size, n)
            for region, dims in zip(block.regions, shape.shapes, strict=True):
                fusible = np.minimum(fusible, _fusible(self._strides(env, region, dims, extents), extents, size))
            busy = [taken.get(i, np.zeros(size, dtype=bool)) for i in shape.loops]
            num_par = _outer(shape, extents, busy, parallel, size)
            num_vec = _inner(shape, extents, busy, self.vectorize, fusible, size)
            both = (num_par > 0) & (num_vec > 0) & (num_par + num_vec > n)
            if both.any():
                free = all(shape.data_parallel) and all(shape.single)
                if free and (both & (fusible == n) & ~np.any(busy, axis=0)).any():
                    raise Unfit("a loop nest that is fused as a whole and cut again")
                num_par = np.where(both, np.minimum(num_par, n - num_vec), num_par)
            for position, loop in enumerate(shape.loops):
                mine = (position < num_par) | (position >= n - num_vec)
                taken[loop] = taken.get(loop, np.zeros(size, dtype=bool)) | mine
            counts.append((np.maximum(num_par, 0), np.maximum(num_vec, 0)))
        return counts, taken

    @staticmethod
    def _strides(env: Environment, region: list[FittedForm], dims: list[int], extents: list[Array]) -> list[Array]:
        forms = [form.columns(env) for form in region]
        out = []
        for position in range(len(extents)):
            stride: Any = np.zeros(env.size)
            buffer_stride = 1.0
            for form, dim in zip(reversed(forms), reversed(dims), strict=True):
                step = form.coefficient(position)
                stride = np.where(stride == 0, step * buffer_stride, stride)
                buffer_stride *= dim
            out.append(stride)
        return out

    # ---- features

    def features(self, tiles: Array, parallel: Array, unroll: Array) -> list[Array]:
        """One ``[candidates, 164]`` matrix for each stored buffer."""
        env = Environment(tiles)
        size = env.size
        counts, _ = self._plan(env, parallel)
        unrolled: dict[int, Array] = {}
        outer: dict[int, Array] = {}
        for block, (num_par, _) in zip(self.blocks, counts, strict=True):
            if not block.shape.loops:
                continue
            head = block.shape.loops[0]
            outer[head] = np.maximum(outer.get(head, np.zeros(size, dtype=int)), num_par)
            if not block.shape.spatial:
                unrolled[head] = unroll
        touched, rows = Touched(), {}
        buffers: dict[int, int] = {}
        for store in self.stores:
            column = self._column(store, env, counts[store.block][1], outer, unrolled, buffers)
            rows[id(store.info.buffer)] = store_features(column, touched, size)
        return list(rows.values())

    def _column(self, store: _Store, env: Environment, num_vec: Array, outer: dict[int, Array],
                unrolled: dict[int, Array], buffers: dict[int, int]) -> ColumnStore:
        info = store.info
        extents = [np.broadcast_to(np.asarray(self.extents[i](env), dtype=float), (env.size,)) for i in info.loops]
        head = info.loops[0] if info.loops else -1
        num_par = outer.get(head, np.zeros(env.size, dtype=int))
        accesses = []
        for access, indices in store.accesses:
            forms = [[form.columns(env) for form in dims] for dims in indices]
            accesses.append(ColumnAccess(buffers.setdefault(id(access.buffer), len(buffers)), access.buffer.name,
                                         access.itemsize, access.kind, [float(x) for x in access.shape()], forms))
        n = len(extents)
        ones = np.ones(env.size)
        par, vec = ones.copy(), ones.copy()
        for position, extent in enumerate(extents):
            par = np.where(position < num_par, par * extent, par)
            vec = np.where(position >= n - num_vec, vec * extent, vec)
        has_par, has_vec = num_par > 0, num_vec > 0
        kinds = {"parallel": (has_par * 1.0, np.where(has_par, par, 0.0), np.where(has_par, par, 0.0)),
                 "vectorized": (has_vec * 1.0, np.where(has_vec, vec, 0.0), np.where(has_vec, vec, 0.0))}
        shape = accesses[0].shape
        return ColumnStore(
            info.loops, list(extents), accesses, info.ops, [f.columns(env) for f in store.index_forms],
            (float(np.prod(shape)), accesses[0].itemsize, store.depth), unrolled.get(head, np.zeros(env.size)),
            num_par, num_vec, kinds, self.gpu)


def _fusible(strides: list[Array], extents: list[Array], size: int) -> Array:
    """How many innermost loops walk one access contiguously (see the postproc of the same logic)."""
    count = np.zeros(size, dtype=int)
    alive = np.ones(size, dtype=bool)
    started = np.zeros(size, dtype=bool)
    expected = np.zeros(size)
    for stride, extent in zip(reversed(strides), reversed(extents), strict=True):
        used = stride != 0
        bad = used & ~started & (stride != 1) & (count != 0)
        bad |= used & started & (stride != expected)
        alive = alive & ~bad
        count = count + alive
        expected = np.where(alive & used, stride * extent, expected)
        started = started | (alive & used)
    return count


def _outer(shape: BlockShape, extents: list[Array], busy: list[Array], limit: Array, size: int) -> Array:
    count, product = np.zeros(size, dtype=int), np.ones(size)
    alive = np.ones(size, dtype=bool)
    for position, extent in enumerate(extents):
        if not shape.data_parallel[position]:
            break
        alive = alive & ~busy[position]
        count = count + alive
        product = np.where(alive, product * extent, product)
        alive = alive & (product <= limit)
        if not shape.single[position]:
            break
    return np.where((product == 1) | (limit < 0), -1, count)


def _inner(shape: BlockShape, extents: list[Array], busy: list[Array], limit: int, fusible: Array, size: int) -> Array:
    count, product = np.zeros(size, dtype=int), np.ones(size)
    alive = np.ones(size, dtype=bool)
    for position in range(len(extents) - 1, -1, -1):
        if not shape.data_parallel[position] or not shape.single[position]:
            break
        extent = extents[position]
        alive = alive & ~busy[position] & (count < fusible) & (product * extent <= limit)
        count = count + alive
        product = np.where(alive, product * extent, product)
    return np.where((product == 1) | (limit < 0), -1, count)


