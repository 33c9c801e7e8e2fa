"""The 164 features of a store, computed for many candidates at once.

Every number that may differ between candidates (loop extents, index coefficients) is a column of length P. One
concrete program is the case P = 1, so the search's vectorised features and those of a lowered program come from the
same code. This is the inner loop of the search: matrices ``[loops, P]`` in single precision, masks by arithmetic where
a selection would cost twenty times as much, and work on fused loops only in the few rows that can be fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .forms import Column, ColumnForm, min_nonzero
from .levels import Array, Levels

__all__ = ["ColumnAccess", "ColumnStore", "NUM_FEATURES", "Touched", "store_features"]

NUM_FEATURES = 164
_BUFFERS, _SUB, _SAMPLES, _LINE = 5, 18, 10, 64.0
_THREAD_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread.x")


@dataclass
class ColumnAccess:
    """All accesses of a store to one buffer."""

    buffer: int
    name: str
    itemsize: int
    kind: int
    shape: list[Column]
    indices: list[list[ColumnForm]]

    def mentioned(self) -> set[int]:
        """Loops any index mentions."""
        return {position for forms in self.indices for form in forms for position in form.positions}


@dataclass
class ColumnStore:
    """One store. ``num_parallel`` outer and ``num_vector`` inner loops count as fused into one each.

    ``kinds`` gives number, product and innermost extent of each kind of loop; None derives them from the fused groups.
    ``index_forms`` are the indices whose arithmetic counts, each with how often it occurs.
    """

    loop_ids: list[int]
    extents: list[Column]
    accesses: list[ColumnAccess]
    ops: Sequence[float]
    index_forms: list[tuple[ColumnForm, int]]
    alloc: tuple[Column, int, int] | None
    unroll: Column = 0.0
    num_parallel: Any = 1
    num_vector: Any = 1
    kinds: dict[str, tuple[Column, Column, Column]] | None = field(default_factory=dict)
    is_gpu: bool = False


class Touched:
    """Bytes and elements touched under shared loops by the stores seen so far."""

    def __init__(self) -> None:
        self.numel: dict[tuple[int, int], list[Any]] = {}
        self.total: dict[int, Any] = {}

    def add_bytes(self, loop: int, amount: Array) -> None:
        """Book the bytes one store touches under one loop."""
        known = self.total.get(loop)
        self.total[loop] = amount if known is None else known + amount


class _Reach:
    """Smallest and largest index of one dimension as loops are added from the inside out."""

    def __init__(self, form: ColumnForm) -> None:
        self.form = form
        self.low: Column = form.const
        self.high: Column = form.const
        self._by_level: dict[int, list[Any]] = {}
        for term in form.terms:
            self._by_level.setdefault(term.var, []).append(term)

    def extend(self, level: int) -> None:
        """Let the loop at ``level`` run as well."""
        for term in self._by_level.get(level, ()):
            span = term.coef * (term.extent - 1)
            if term.rising:
                self.high = self.high + span
            else:
                self.low, self.high = self.low + np.minimum(span, 0), self.high + np.maximum(span, 0)

    def bounds(self, level: int) -> tuple[Column, Column]:
        """The range while loops from ``level`` inwards run."""
        low, high = self.low, self.high
        for rest in self.form.rests:
            a, b = rest.bounds(level)
            x, y = rest.coef * a, rest.coef * b
            low, high = low + np.minimum(x, y), high + np.maximum(x, y)
        return low, high


class _Shape:
    """The box of elements one access touches, grown loop by loop."""

    def __init__(self, access: ColumnAccess) -> None:
        self._reaches = [[_Reach(indices[dim]) for indices in access.indices] for dim in range(len(access.shape))]
        self._clamp = any(form.rests for indices in access.indices for form in indices)
        self.widths: list[Column] = [1.0] * len(access.shape)
        self.numel: Column = 1.0

    def grow(self, level: int, first: bool) -> None:
        """Add the loop at ``level``."""
        for dim, reaches in enumerate(self._reaches):
            touched = [r for r in reaches if level in r.form.positions]
            for reach in touched:
                reach.extend(level)
            if not touched and not first:
                continue
            low, high = reaches[0].bounds(level)
            for reach in reaches[1:]:
                a, b = reach.bounds(level)
                low, high = np.minimum(low, a), np.maximum(high, b)
            self.widths[dim] = high - low + 1
        numel: Column = 1.0
        for width in self.widths:
            numel = numel * width
        self.numel = np.maximum(numel, 0) if self._clamp else numel


def _regions(store: ColumnStore, levels: Levels, touched: Touched) -> tuple[Array, list[_Shape]]:
    """Bytes touched under each level, and per access the elements and the shape touched in all."""
    under = np.zeros((levels.n, levels.size), dtype=np.float32)
    shapes = []
    for access in store.accesses:
        used = access.mentioned()
        shape = _Shape(access)
        amount: Any = 0.0
        for level in range(levels.n - 1, -1, -1):
            first = level == levels.n - 1
            if first or level in used:
                shape.grow(level, first)
                amount = shape.numel * access.itemsize
            under[level] += amount
            touched.numel.setdefault((store.loop_ids[level], access.buffer), []).append(shape.numel)
        shapes.append(shape)
    for level, loop in enumerate(store.loop_ids):
        touched.add_bytes(loop, under[level])
    return under, shapes


def _steps(access: ColumnAccess, levels: Levels) -> Array:
    """Element stride of every loop, 0 where the loop does not move the access."""
    out = np.zeros((levels.n, levels.size), dtype=np.float32)
    written: set[int] = set()
    for indices in access.indices:
        stride: Column = 1.0
        for dim in range(len(access.shape) - 1, -1, -1):
            form = indices[dim]
            for position in form.positions:
                step = form.step(position) * stride
                out[position] = min_nonzero(out[position], step) if position in written else step
                written.add(position)
            stride = stride * access.shape[dim]
    out *= levels.moving
    return out


def _buffer_rows(store: ColumnStore, levels: Levels, touched: Touched, out: Array) -> Array:
    """The 18 rows of each accessed buffer, most cache lines first, into ``out``; returns bytes under each level."""
    under, shapes = _regions(store, levels, touched)
    below = levels.next_rows(
        [touched.total[loop] for loop in store.loop_ids], float(sum(a.itemsize for a in store.accesses))
    )
    # All accesses of a store run equally often, so that bytes, the second criterion, compare as item sizes do.
    order = sorted(range(len(store.accesses)), key=lambda k: (-store.accesses[k].itemsize, store.accesses[k].name))
    rows = np.zeros((len(order), _SUB, levels.size), dtype=np.float32)
    for place, k in enumerate(order):
        _one_buffer(rows[place], store, store.accesses[k], levels, shapes[k], below, touched)
    lines = rows[:, 5]
    for place in range(len(order)):
        rank = np.zeros(levels.size, dtype=np.int8)
        for other in range(len(order)):
            if other != place:
                rank += lines[other] >= lines[place] if other < place else lines[other] > lines[place]
        for slot in range(min(len(order), _BUFFERS)):
            here = rank == slot
            if here.any():
                np.copyto(out[_SUB * slot : _SUB * (slot + 1)], rows[place], where=here)
    return under


def _one_buffer(
    out: Array,
    store: ColumnStore,
    access: ColumnAccess,
    levels: Levels,
    shape: _Shape,
    below: Array,
    touched: Touched,
) -> None:
    item = access.itemsize
    out[{1: 0, 2: 1, 3: 2}[access.kind]] = 1.0
    out[3] = item * levels.prod
    reuse_count = _reuse(out, store, access, levels, below, touched)
    if levels.n == 0:
        out[4] = out[5] = out[6] = 1.0
        stride: Any = 0.0
    else:
        at, found = levels.innermost_step(_steps(access, levels))
        stride = found * (at == levels.head)
        still = np.where(found > 0, levels.pick(levels.inner, at), levels.prod)
        out[4] = shape.numel * item
        out[5] = np.maximum(1.0, levels.prod / still * np.minimum(1.0, found * np.float32(item / _LINE)))
        run: Any = 1.0
        for dim, width in enumerate(shape.widths):  # the innermost dimension touched as a whole counts
            run = np.where(width == access.shape[dim], np.float32(item) * access.shape[dim], run)
        out[6] = np.maximum(1.0, out[4] / np.minimum(np.float32(_LINE), run))
    np.divide(out[3:7], np.where(reuse_count > 0, reuse_count, np.float32(0.5)), out=out[13:17])
    out[17] = stride


def _reuse(
    out: Array,
    store: ColumnStore,
    access: ColumnAccess,
    levels: Levels,
    below: Array,
    touched: Touched,
) -> Array:
    """Rows 7 to 12: reuse type, distance in iterations and bytes, count."""
    if levels.n == 0:
        out[9] = 1.0
        return np.zeros(levels.size, dtype=np.float32)
    used = np.zeros((levels.n, levels.size), dtype=bool)
    for indices in access.indices:
        for form in indices:
            for position in form.positions:
                used[position] |= form.moved_by(position)
    used &= levels.extent > 1
    levels.fold_any(used)
    repeated = [touched.numel[loop, access.buffer] for loop in store.loop_ids]
    serial = np.array([len(x) >= 2 for x in repeated])
    at, any_hit = levels.innermost(~used | serial[:, None])
    invariant = any_hit & ~levels.pick(used, at)
    count = levels.pick(levels.group, at) * invariant
    distance = levels.pick(levels.inner, at) * invariant
    size = levels.pick(below, at) * invariant
    by_serial = any_hit & ~invariant
    if by_serial.any():
        least, here, times = (np.zeros((levels.n, levels.size), dtype=np.float32) for _ in range(3))
        for i, values in enumerate(repeated):
            if serial[i]:
                least[i] = np.minimum.reduce(np.broadcast_arrays(*values))
                here[i] = touched.total[store.loop_ids[i]]
                times[i] = len(values) - 1
        group = levels.pick(levels.group, at)
        count = np.where(by_serial, levels.pick(times, at), count)
        distance = np.where(by_serial, levels.pick(least, at) / group, distance)
        size = np.where(by_serial, levels.pick(here, at) / group, size)
    out[7], out[8], out[9] = invariant, by_serial, ~any_hit
    out[10], out[11], out[12] = distance, size, count
    return count


def _intensity(out: Array, store: ColumnStore, levels: Levels, under: Array) -> None:
    """Operations per byte on a log scale, at ten points of the way through all operations."""
    per_iteration = float(sum(store.ops[:7]))
    n = levels.n
    if per_iteration <= 0 or n == 0:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        compute = np.log2(np.float32(per_iteration) * levels.suffix[:n])
        memory = np.maximum(np.log2(under), np.float32(1e-9))
    levels.hide_fused(compute)
    levels.hide_fused(memory)
    compute, memory = compute[::-1], memory[::-1]
    total = compute[-1]
    goal = (np.arange(1, _SAMPLES + 1, dtype=np.float32) / np.float32(_SAMPLES))[:, None] * total - np.float32(1e-4)
    at = np.empty((_SAMPLES, levels.size), dtype=np.intp)
    for k in range(_SAMPLES):  # levels are in order, so that counting finds the first one past the goal
        at[k] = (compute < goal[k]).view(np.int8).sum(axis=0, dtype=np.int8)
    np.minimum(at, n - 1, out=at)
    columns = np.arange(levels.size)
    flat, flat_before = at * levels.size + columns, np.maximum(at - 1, 0) * levels.size + columns
    compute, memory = np.ascontiguousarray(compute), np.ascontiguousarray(memory)
    c1, c0 = compute.take(flat), compute.take(flat_before)
    with np.errstate(divide="ignore", invalid="ignore"):
        r1, r0 = c1 / memory.take(flat), c0 / memory.take(flat_before)
        value = r0 + (r1 - r0) / (c1 - c0) * (goal + np.float32(1e-4) - c0)
    # Before the first level whose point is new there is nothing to interpolate from.
    first = (at == 0) | (c0 == c1)
    out[:] = np.where(first, r1, value)


def _arithmetic(out: Array, store: ColumnStore, levels: Levels) -> None:
    counts = np.zeros((16, levels.size), dtype=np.float32)
    counts += np.asarray(store.ops, dtype=np.float32)[:, None]
    for form, times in store.index_forms:
        _count_form(form, levels, counts, times)
    np.multiply(counts, levels.prod, out=out)


def _count_form(form: ColumnForm, levels: Levels, counts: Array, times: int) -> Array:
    """Book additions, multiplications and divisions of one index; returns whether the form is not constant."""
    terms = np.zeros(levels.size, dtype=np.float32)
    scaled = np.zeros(levels.size, dtype=np.float32)
    fused: list[list[Any]] = [[], []]
    for position in sorted({t.var for t in form.terms}):
        step = form.affine_step(position) * levels.moving[position]
        groups = levels.groups_of(position)
        for index, member in groups:
            # Digits of one fused loop are one term.
            fused[index].append(step * member)
        if groups:
            step = step * levels.alone[position]
        terms += step != 0
        scaled += step > 1
    for group in fused:
        if group:
            best = group[0]
            for step in group[1:]:
                best = min_nonzero(best, step)
            terms += best != 0
            scaled += best > 1
    counts[9] += times * scaled
    for rest in form.rests:
        active: Any = np.zeros(levels.size, dtype=bool)
        for inner in rest.forms:
            active = active | _count_form(inner, levels, counts, times)
        terms += active
        counts[{"div": 10, "mod": 10, "min": 11, "max": 11}.get(rest.op, 9)] += times * active
    counts[10] += times * form.bent
    is_used: Array = terms > 0
    terms += (np.asarray(form.const) != 0) & is_used
    counts[8] += times * np.maximum(terms - 1, 0)
    return is_used


def _kinds(store: ColumnStore, levels: Levels) -> dict[str, tuple[Column, Column, Column]]:
    if store.kinds is not None:
        return store.kinds
    parallel, vector = levels.fused_extents()
    has_par, has_vec = np.asarray(store.num_parallel) > 0, np.asarray(store.num_vector) > 0
    parallel, vector = parallel * has_par, vector * has_vec
    return {"parallel": (has_par * 1.0, parallel, parallel), "vectorized": (has_vec * 1.0, vector, vector)}


def store_features(store: ColumnStore, touched: Touched, size: int) -> Array:
    """One row of 164 features per candidate, float32 ``[size, 164]``."""
    levels = Levels(store.extents, store.num_parallel, store.num_vector, size)
    # The padding keeps rows from falling onto the same cache sets when the result is read by candidate.
    raw = np.zeros((NUM_FEATURES, size + 16), dtype=np.float32)[:, :size]
    _arithmetic(raw[:16], store, levels)
    kinds = _kinds(store, levels)
    for k, kind in enumerate(("vectorized", "unrolled", "parallel")):
        at = 16 + 11 * k
        num, prod, length = kinds.get(kind, (0.0, 0.0, 0.0))
        raw[at], raw[at + 1], raw[at + 2] = num, prod, length
        raw[at + 3] = np.asarray(num) == 0
        raw[at + 10] = np.asarray(num) > 0
    raw[49] = float(store.is_gpu)
    for k, tag in enumerate(_THREAD_TAGS):
        raw[50 + k] = kinds.get(tag, (0, 0, 1.0))[2]
    under = _buffer_rows(store, levels, touched, raw[57:147])
    _intensity(raw[147:157], store, levels, under)
    if store.alloc is not None:
        numel, item, depth = store.alloc
        around = levels.suffix[0] / levels.suffix[depth]
        raw[157], raw[158], raw[159] = numel * item, numel * around, around
        raw[160] = levels.prod / around
    raw[161], raw[162], raw[163] = levels.prod, levels.num_loops, store.unroll
    return _log_scale(raw, min(len(store.accesses), _BUFFERS))


def _log_scale(raw: Array, num_buffers: int) -> Array:
    """Flags and the intensity curve stay as they are; all else becomes log2(|x| + 1)."""
    scaled = [(0, 19), (27, 30), (38, 41), (50, 57), (157, 164)]
    for k in range(num_buffers):
        at = 57 + _SUB * k
        scaled += [(at + 3, at + 7), (at + 10, at + _SUB)]
    for low, high in scaled:
        part = raw[low:high]
        np.abs(part, out=part)
        part += np.float32(1)
        np.log2(part, out=part)
    return raw.T
