"""A sketch for a GPU, compiled: from a matrix of decisions to features, and to whether a GPU can launch the program.

The program is read before its postprocs; what these do is worked out on columns: threads share the copying of tiles
(``RewriteCooperativeFetch``), loops get their unroll pragma, reductions lose their initialisation, which no feature sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arith.affine import affine, remainder
from ...target import Target
from ..feature_extractor.columns import ColumnAccess, ColumnStore, Touched, store_features
from ..feature_extractor.repeated import Repeated
from ..postproc.postproc import Postproc
from .column_program import ColumnProgram
from .decisions import DecisionTable
from .device_estimate import DeviceEstimate
from .affine_digits import JointPlace, Leaf, Nest, Split
from .device_index import FittedIndex, fit_index
from .device_limits import DeviceLimits
from .device_reading import DeviceReading, Fetch
from .device_sizes import DeviceEnvironment, DeviceFitter, Lookup, Size
from .fitting import Unfit
from .locations import FactMask

__all__ = ["DeviceVariant", "FittedStore"]

Array = np.ndarray[Any, Any]
_DRAWS, _LEAST_DRAW = 24, 4096


@dataclass
class FittedStore:
    """A store: its accesses as positions into a list of distinct indices."""

    info: Any
    fetch: Fetch | None
    accesses: list[tuple[Any, list[list[int]], list[Size]]]
    distinct: list[FittedIndex]
    counted: list[tuple[int, int]]
    depth: int

    @property
    def accesses_info(self) -> list[Any]:
        """The accesses as the program has them."""
        return [access for access, _, _ in self.accesses]


@dataclass
class _Kernel:
    """The stores of one kernel, and the columns that its features depend on."""

    stores: list[FittedStore]
    columns: list[int]

    def distinct(self, matrix: Array) -> tuple[Array, Array] | None:
        """Rows that stand for all others, and which one stands for each; None where most differ."""
        weights = np.random.default_rng(2).integers(1, 1 << 62, len(self.columns))
        _, first, index = np.unique(matrix[:, self.columns] @ weights, return_index=True, return_inverse=True)
        return (first, index) if 2 * len(first) <= len(matrix) else None


@dataclass
class Shares:
    """Sharing of a copy: the vector length (1 where copies stay scalar) and the loops that replace the copying loop."""

    wide: Any
    lanes: Any
    split: Split


class DeviceVariant(ColumnProgram):
    """Formulas for every number of the program; from them the effect of the postprocs, features and validity."""

    def __init__(
        self,
        readings: Sequence[DeviceReading],
        examples: Array,
        table: DecisionTable,
        target: Target,
        postprocs: Sequence[Postproc],
        tried: Sequence[Array],
        facts: Sequence[Mapping[int, bool]],
    ) -> None:
        first = readings[0]
        if any(r.signature() != first.signature() for r in readings):
            raise Unfit("the loop structure changes with the decisions")
        self.warp = int(target.attrs.get("thread_warp_size", -1))
        categories = {table.categories[i][1]: len(table.categories[i][2]) for i in table.structural}
        self.fitter = DeviceFitter(table.tile_ranges, categories, examples)
        self.fitter.parting = any(not all(seen.values()) for seen in facts)
        own = DeviceFitter(table.tile_ranges, categories, np.array(tried))
        super().__init__(table, postprocs, self.fitter.tables, FactMask(own, facts))
        self._readings = readings
        self.tags = [loop.tag for loop in first.loops]
        # Loops of intrinsics' own copies are in no formula.
        needed = {i for store in first.stores for i in store.loops} | {fetch.loop for fetch in first.fetches}
        if first.tiles is not None:
            needed |= {*first.tiles.outer, first.tiles.steps}
        needed |= {
            i for block in first.blocks for i in block.loops if first.loops[i].tag.startswith(("threadIdx", "vthread"))
        }
        self.parts = {i: self._fit_parts(i) for i in sorted(needed)}
        self.fetches = {fetch.block: fetch for fetch in first.fetches} if self.shared_copies else {}
        self.blocks = first.blocks
        self.stores = [self._fit_store(i) for i in range(len(first.stores))]
        heads = [block.loops[0] for block in first.blocks if not block.spatial and block.loops]
        self._unrolled = set(heads) if self.loop_kinds else set()
        self.limits = DeviceLimits(self, first, target)
        self.deciding = self.limits.columns(examples)
        self._estimate = DeviceEstimate(self, list(readings), target)
        self.kernels = self._find_kernels(examples)
        self.tables = {*self.tables, *own.tables}
        del self.fitter, self._readings

    def _fit_parts(self, index: int) -> tuple[Size, ...]:
        every = [r.loops[index].parts for r in self._readings]
        return tuple(self.fitter.size([float(p[i]) for p in every]) for i in range(len(every[0])))

    def _nest(self, loops: Sequence[int]) -> Nest:
        """What indices under some loops are fitted with."""
        joints = []
        for number, joint in enumerate(self._readings[0].joints):
            if set(joint.loops) <= set(loops):
                parts = [r.joints[number].parts for r in self._readings]
                sizes = tuple(self.fitter.size([float(p[i]) for p in parts]) for i in range(len(parts[0])))
                joints.append(JointPlace(tuple(loops.index(i) for i in joint.loops), parts, sizes))
        return Nest([[r.loops[i] for i in loops] for r in self._readings], [self.parts[i] for i in loops], joints)

    def _fit_store(self, index: int) -> FittedStore:
        every = [r.stores[index] for r in self._readings]
        info = every[0]
        nest = self._nest(info.loops)
        distinct: list[FittedIndex] = []
        leaves: dict[Leaf, Leaf] = {}

        def add(name: tuple[int, ...], exprs: Sequence[Any], forms: Sequence[Any]) -> int:
            found = fit_index(self.fitter, [affine(e, {}) for e in exprs], forms, every, nest, (index, *name))
            found = replace(found, leaves=tuple(leaves.setdefault(leaf, leaf) for leaf in found.leaves))
            if found not in distinct:
                distinct.append(found)
            return distinct.index(found)

        accesses = []
        for a, access in enumerate(info.accesses):
            places = [
                [
                    add(
                        (a, m, d),
                        [s.accesses[a].exprs[m][d] for s in every],
                        [s.accesses[a].indices[m][d] for s in every],
                    )
                    for d in range(len(forms))
                ]
                for m, forms in enumerate(access.indices)
            ]
            shape = [
                self.fitter.size([float(s.accesses[a].shape()[d]) for s in every]) for d in range(len(access.shape()))
            ]
            accesses.append((access, places, shape))
        counts: dict[int, int] = {}
        for i in range(len(info.exprs)):
            place = add((i,), [s.exprs[i] for s in every], [s.index_forms[i] for s in every])
            counts[place] = counts.get(place, 0) + 1
        fetch = self.fetches.get(info.block)
        if fetch is not None and (not info.loops or info.loops[-1] != fetch.loop):
            raise Unfit("a shared copy that is not its block's last loop")
        depth = len(info.alloc_loops) if info.alloc_loops is not None else 0
        return FittedStore(info, fetch, accesses, distinct, sorted(counts.items()), depth)

    # ---- on columns

    def environment(self, matrix: Array) -> DeviceEnvironment:
        """The decisions of many candidates, ready for formulas."""
        return DeviceEnvironment(matrix)

    def extent(self, env: DeviceEnvironment, loop: int) -> float | Array:
        """The extents of a loop of the program before postprocs."""
        return env.product(self.parts[loop])

    def shares(self, env: DeviceEnvironment, fetch: Fetch, position: int) -> Shares:
        """Sharing of one copy among threads."""
        total = self.extent(env, fetch.loop)
        if fetch.category is None:
            lanes: Any = float(fetch.lanes)
        else:
            _, column, values, _ = self.columns.categories[fetch.category]
            lanes = Lookup(column=column, values=tuple(float(v) for v in values))(env)
        wide = (lanes > 1) & (remainder(total, lanes) == 0)
        lanes = np.where(wide, lanes, np.float32(1))
        threads: list[Any] = []
        for thread in (fetch.thread_y, fetch.thread_x):
            if thread is not None:
                threads.append(float(self.warp) if thread == -1 else self.extent(env, thread))
        strides: list[Any] = [np.float32(1)]
        extents: list[Any] = [lanes]
        for size in reversed(threads):
            strides.insert(0, strides[0] * extents[0])
            extents.insert(0, size)
        strides.insert(0, strides[0] * extents[0])
        extents.insert(0, np.ceil(total / strides[0]))
        return Shares(wide, lanes, Split(position, tuple(strides), tuple(extents)))

    def learn_versions(self, rows: Array, allocated: list[dict[str, int]]) -> None:
        self.limits.learn_versions(rows, allocated)

    @property
    def launchable(self) -> Callable[[Array], Array]:
        return self.holds

    @property
    def estimate(self) -> Callable[[Array], Array]:
        return self._estimate

    def holds(self, matrix: Array) -> Array:
        """Mask of the rows whose programs a GPU can launch."""
        env = DeviceEnvironment(matrix)
        return self.regular(env) & self.limits(env)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """At most ``count`` random valid rows: few tilings stay within the limits, on which not all decisions bear."""
        found: list[Array] = []
        drawn = count
        for _ in range(1 + _DRAWS):
            rows = self.columns.sample(rng, drawn, self.holds, self.deciding)
            found.append(rows[self.valid(rows)] if self._further else rows)
            if sum(map(len, found)) >= count:
                break
            drawn = max(2 * count, _LEAST_DRAW)
        return np.concatenate(found)[:count]

    def feature_rows(self, matrix: Array) -> list[Repeated]:
        """One ``[candidates, 164]`` matrix for each stored buffer; the candidates of a program of several kernels share
        the features of equal kernels."""
        whole, unroll = DeviceEnvironment(matrix), self.columns.unroll_values(matrix)
        found: dict[int, Repeated] = {}
        for kernel in self.kernels:
            env, depths, index = whole, unroll, None
            distinct = kernel.distinct(matrix) if len(self.kernels) > 1 else None
            if distinct is not None:
                first, index = distinct
                env, depths = whole.rows(first), unroll[first]
            touched = Touched()
            buffers: dict[Any, int] = {}
            for store in kernel.stores:
                column = self._column(store, env, depths, buffers)
                found[id(store.info.buffer)] = Repeated(store_features(column, touched, env.size), index)
        return list(found.values())

    def _find_kernels(self, examples: Array) -> list[_Kernel]:
        """The stores by kernel, with the columns their features depend on."""
        by_head: dict[int, list[FittedStore]] = {}
        for store in self.stores:
            by_head.setdefault(store.info.loops[0] if store.info.loops else -1, []).append(store)
        found = []
        for head, stores in by_head.items():
            env = DeviceEnvironment(examples)
            for store in stores:
                self._column(store, env, np.zeros(env.size), {})
            unrolled = head in self._unrolled and self.columns.unroll >= 0
            mine = env.used | ({self.columns.categories[self.columns.unroll][1]} if unrolled else set())
            found.append(_Kernel(stores, sorted(mine)))
        return found

    def _column(
        self, store: FittedStore, env: DeviceEnvironment, unroll: Array, buffers: dict[Any, int]
    ) -> ColumnStore:
        info = store.info
        sizes = [self.extent(env, i) for i in info.loops]
        ids, tags = list(info.loops), [self.tags[i] for i in info.loops]
        but = -1
        num_vector: Any = 1
        kinds: dict[str, tuple[Any, Any, Any]] = {}
        split = None
        extents = sizes
        if store.fetch is not None:
            but = len(sizes) - 1
            shares = self.shares(env, store.fetch, but)
            split = shares.split
            extents = [*sizes[:-1], *split.extents]
            ids = [*ids[:-1], *(-1 - 8 * store.fetch.loop - k for k in range(len(split.extents)))]
            names = [
                n
                for n, t in (("threadIdx.y", store.fetch.thread_y), ("threadIdx.x", store.fetch.thread_x))
                if t is not None
            ]
            tags = [*tags[:-1], "serial", *names]
            num_vector = np.where(shares.wide, 1, 2)
            kinds["vectorized"] = shares.wide * 1.0, shares.wide * shares.lanes, shares.wide * shares.lanes
        for tag, extent in zip(tags, extents, strict=False):
            name = "vthread.x" if tag.startswith("vthread") else tag
            num, prod, _ = kinds.get(name, (0.0, 1.0, 0.0))
            kinds[name] = num + 1, prod * extent, extent
        known: dict[int, Any] = {}
        forms = [index.form(env, sizes, but, split, known) for index in store.distinct]
        accesses = []
        for access, places, shape in store.accesses:
            accesses.append(
                ColumnAccess(
                    buffers.setdefault(id(access.buffer), len(buffers)),
                    access.buffer.name,
                    access.itemsize,
                    access.kind,
                    [s(env) for s in shape],
                    [[forms[i] for i in dims] for dims in places],
                )
            )
        numel: Any = 1.0
        for size in accesses[0].shape:
            numel = numel * size
        pragma = unroll if info.loops and info.loops[0] in self._unrolled else 0.0
        return ColumnStore(
            ids,
            extents,
            accesses,
            info.ops,
            [(forms[i], times) for i, times in store.counted],
            (numel, accesses[0].itemsize, store.depth),
            pragma,
            1,
            num_vector,
            kinds,
            True,
        )
