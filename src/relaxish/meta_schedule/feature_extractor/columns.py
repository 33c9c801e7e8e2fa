"""The 164 features of a store, computed for many candidates at once.

Every number that may differ between candidates (loop extents, index coefficients) is a column of length P. One
concrete program is the case P = 1, so the search's vectorised features and those of a lowered program come from the
same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ColumnAccess", "ColumnForm", "ColumnRest", "ColumnStore", "NUM_FEATURES", "Touched", "store_features"]

NUM_FEATURES = 164
_BUFFERS, _SUB, _SAMPLES, _LINE = 5, 18, 10, 64.0
Column = Any  # a number, or an array of length P


@dataclass
class ColumnRest:
    """A non-affine part of an index."""

    coef: Column
    op: str
    forms: list[ColumnForm]
    divisor: Column


@dataclass
class ColumnForm:
    """``const + sum(coef * digit)``: terms are ``(position in the store's loops, coef, number of digit values)``."""

    const: Column
    terms: list[tuple[int, Column, Column]]
    rests: list[ColumnRest] = field(default_factory=list)

    def positions(self) -> set[int]:
        """Loops mentioned anywhere."""
        found = {t[0] for t in self.terms}
        for rest in self.rests:
            for form in rest.forms:
                found |= form.positions()
        return found

    def bounds(self, relaxed: int) -> tuple[Column, Column]:
        """Smallest and largest value when loops from ``relaxed`` inwards run and the others stand at 0."""
        low = high = self.const
        for position, coef, width in self.terms:
            if position >= relaxed:
                span = coef * (width - 1)
                low, high = low + np.minimum(span, 0), high + np.maximum(span, 0)
        for rest in self.rests:
            a, b = _rest_bounds(rest, relaxed)
            x, y = rest.coef * a, rest.coef * b
            low, high = low + np.minimum(x, y), high + np.maximum(x, y)
        return low, high

    def coefficient(self, position: int) -> Column:
        """Like :meth:`step`, for loops of one iteration as well."""
        best: Column = 0.0
        for at, coef, _ in self.terms:
            if at == position:
                best = _min_nonzero(best, np.abs(coef))
        for rest in self.rests:
            inner: Column = 0.0
            for form in rest.forms:
                inner = _min_nonzero(inner, form.coefficient(position))
            if rest.op == "div":
                inner = np.where(inner > 0, np.maximum(1.0, inner // rest.divisor), 0.0)
            best = _min_nonzero(best, np.abs(rest.coef) * inner)
        return best

    def step(self, position: int) -> Column:
        """Smallest move of the index when one loop moves, 0 for none."""
        best: Column = 0.0
        for at, coef, width in self.terms:
            if at == position:
                best = _min_nonzero(best, np.where(width > 1, np.abs(coef), 0.0))
        for rest in self.rests:
            for form in rest.forms:
                if position in form.positions():
                    inner = form.step(position)
                    if rest.op == "div":
                        inner = np.where(inner > 0, np.maximum(1.0, inner // rest.divisor), 0.0)
                    best = _min_nonzero(best, np.abs(rest.coef) * inner)
        return best


def _min_nonzero(a: Column, b: Column) -> Column:
    if isinstance(a, float) and a == 0.0:
        return b
    return np.where(a == 0, b, np.where(b == 0, a, np.minimum(a, b)))


def _rest_bounds(rest: ColumnRest, relaxed: int) -> tuple[Column, Column]:
    pairs = [form.bounds(relaxed) for form in rest.forms]
    low, high = pairs[0]
    if rest.op == "div":
        return np.floor_divide(low, rest.divisor), np.floor_divide(high, rest.divisor)
    if rest.op == "mod":
        same = np.floor_divide(low, rest.divisor) == np.floor_divide(high, rest.divisor)
        return (np.where(same, np.mod(low, rest.divisor), 0.0),
                np.where(same, np.mod(high, rest.divisor), rest.divisor - 1))
    if rest.op in ("min", "max"):
        pick = np.minimum if rest.op == "min" else np.maximum
        return pick(low, pairs[1][0]), pick(high, pairs[1][1])
    for a, b in pairs[1:]:
        low, high = np.minimum(low, a), np.maximum(high, b)
    return low, high


@dataclass
class ColumnAccess:
    """All accesses of a store to one buffer."""

    buffer: int
    name: str
    itemsize: int
    kind: int
    shape: list[Column]
    indices: list[list[ColumnForm]]


@dataclass
class ColumnStore:
    """One store. ``num_parallel`` outer and ``num_vector`` inner loops count as fused into one each."""

    loop_ids: list[int]
    extents: list[Column]
    accesses: list[ColumnAccess]
    ops: Sequence[float]
    index_forms: list[ColumnForm]
    alloc: tuple[Column, int, int] | None
    unroll: Column = 0.0
    num_parallel: Column = 1
    num_vector: Column = 1
    kinds: dict[str, tuple[Column, Column, Column]] = field(default_factory=dict)
    is_gpu: bool = False


class Touched:
    """Bytes and elements touched under shared loops by the stores seen so far."""

    def __init__(self) -> None:
        self.numel: dict[tuple[int, int], list[Any]] = {}
        self.total: dict[int, Any] = {}

    def add(self, loop: int, buffer: int, numel: Any, itemsize: int) -> None:
        """Book one access under one loop."""
        self.numel.setdefault((loop, buffer), []).append(numel)
        self.total[loop] = self.total.get(loop, 0.0) + numel * itemsize


class _Levels:
    """The loops of one store as levels, fused groups folded into their first member."""

    def __init__(self, store: ColumnStore, size: int) -> None:
        n = self.n = len(store.extents)
        self.size = size
        self.extent = np.empty((n, size))
        for i, extent in enumerate(store.extents):
            self.extent[i] = extent
        self.suffix = np.ones((n + 1, size))
        for i in range(n - 1, -1, -1):
            np.multiply(self.suffix[i + 1], self.extent[i], out=self.suffix[i])
        one = np.ones(size, dtype=np.int64)
        par = np.maximum(np.broadcast_to(np.asarray(store.num_parallel, dtype=np.int64), (size,)), one)
        vec = np.maximum(np.broadcast_to(np.asarray(store.num_vector, dtype=np.int64), (size,)), one)
        self.head = n - vec
        row = np.arange(n)[:, None]
        self.next = np.repeat(np.arange(1, n + 1)[:, None], size, axis=1)
        if n:
            self.next[0] = par
        self.next = np.where(row == self.head, n, self.next)
        self.in_parallel = row < par
        self.in_vector = row >= self.head
        self.exists = ~((row >= 1) & self.in_parallel) & ~(row > self.head)
        self.plain = bool(self.exists.all())
        self.inner = np.take_along_axis(self.suffix, self.next, axis=0) if n else np.ones((0, size))
        self.group = self.suffix[:n] / self.inner
        self.prod = self.suffix[0]

    def fold(self, rows: Any, combine: Any, empty: Any) -> Any:
        """Per level: the rows of a fused group combined in its first member."""
        if self.plain:
            return rows
        out = rows.copy()
        inner = combine.reduce(np.where(self.in_vector, rows, empty), axis=0)
        out = np.where(np.arange(self.n)[:, None] == self.head, inner, out)
        out[0] = np.where(self.head == 0, out[0], combine.reduce(np.where(self.in_parallel, rows, empty), axis=0))
        return out


def _regions(store: ColumnStore, levels: _Levels, touched: Touched) -> tuple[Any, list[Any], list[list[Any]]]:
    """Bytes touched under each level, and per access the elements and the shape touched in all."""
    n, size = levels.n, levels.size
    bytes_under = np.zeros((n, size))
    total, shapes = [], []
    for access in store.accesses:
        mentions = [form.positions() for indices in access.indices for form in indices]
        used = set().union(*mentions) if mentions else set()
        numel: Any = None
        widths: list[Any] = [1.0] * len(access.shape)
        for level in range(n - 1, -1, -1):
            if numel is None or level in used:
                widths, numel = _touched_shape(access, level)
            bytes_under[level] += numel * access.itemsize
            touched.add(store.loop_ids[level], access.buffer, numel, access.itemsize)
        total.append(1.0 if numel is None else numel)
        shapes.append(widths)
    return bytes_under, total, shapes


def _touched_shape(access: ColumnAccess, level: int) -> tuple[list[Any], Any]:
    widths, numel = [], 1.0
    for dim in range(len(access.shape)):
        low = high = None
        for indices in access.indices:
            a, b = indices[dim].bounds(level)
            low, high = (a, b) if low is None else (np.minimum(low, a), np.maximum(high, b))
        width = high - low + 1
        widths.append(width)
        numel = numel * width
    return widths, np.maximum(numel, 0)


def _steps(access: ColumnAccess, levels: _Levels) -> Any:
    """Element stride of every loop, 0 where the loop does not move the access."""
    strides: list[Any] = [1.0] * len(access.shape)
    for dim in range(len(access.shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * access.shape[dim + 1]
    out = np.zeros((levels.n, levels.size))
    for indices in access.indices:
        for form, stride in zip(indices, strides, strict=True):
            for position in form.positions():
                out[position] = _min_nonzero(out[position], form.step(position) * stride)
    # A loop of one iteration moves nothing.
    return np.where(levels.extent > 1, out, 0.0)


def _buffer_rows(store: ColumnStore, levels: _Levels, touched: Touched) -> tuple[Any, Any]:
    """The 18 rows of each accessed buffer, sorted by lines, bytes and name; and bytes touched per level."""
    size, n = levels.size, levels.n
    under, total, shapes = _regions(store, levels, touched)
    totals_next = np.zeros((n, size))
    top = float(sum(a.itemsize for a in store.accesses))
    if n:
        all_under = np.zeros((n + 1, size))
        for i, loop in enumerate(store.loop_ids):
            all_under[i] = touched.total[loop]
        all_under[n] = top
        totals_next = np.take_along_axis(all_under, levels.next, axis=0)
    rows = np.zeros((len(store.accesses), _SUB, size))
    names = np.argsort(np.argsort([a.name for a in store.accesses], kind="stable"), kind="stable")
    for k, access in enumerate(store.accesses):
        _one_buffer(rows[k], store, access, levels, total[k], shapes[k], totals_next, touched)
    keys = (np.broadcast_to(names[:, None], rows[:, 0].shape), -rows[:, 3], -rows[:, 5])
    order = np.lexsort(keys, axis=0)
    return np.take_along_axis(rows, order[:, None, :], axis=0), under


def _one_buffer(
    out: Any, store: ColumnStore, access: ColumnAccess, levels: _Levels, numel: Any, shape: list[Any],
    totals_next: Any, touched: Touched,
) -> None:
    n, item = levels.n, access.itemsize
    out[{1: 0, 2: 1, 3: 2}[access.kind]] = 1.0
    out[3] = item * levels.prod
    steps = _steps(access, levels)
    reuse_count = _reuse(out, store, access, levels, steps, totals_next, touched)
    if n == 0:
        out[4] = out[5] = out[6] = 1.0
        stride: Any = 0.0
    else:
        lifted = levels.fold(np.where(steps == 0, np.inf, steps), np.minimum, np.inf)
        lifted = np.where(levels.exists & np.isfinite(lifted), lifted, 0.0)
        at = n - 1 - np.argmax(lifted[::-1] > 0, axis=0)
        found = np.take_along_axis(lifted, at[None], axis=0)[0]
        stride = np.where(at == levels.head, found, 0.0)
        still = np.where(found > 0, np.take_along_axis(levels.inner, at[None], axis=0)[0], levels.prod)
        out[4] = numel * item
        out[5] = np.maximum(1.0, levels.prod / still * np.minimum(1.0, found * item / _LINE))
        run: Any = 1.0
        done: Any = False
        for dim in range(len(access.shape) - 1, -1, -1):
            full = (shape[dim] == access.shape[dim]) & ~np.asarray(done)
            run = np.where(full, access.shape[dim] * item, run)
            done = full | done
        out[6] = np.maximum(1.0, out[4] / np.minimum(_LINE, run))
    proxy = np.where(reuse_count > 0, reuse_count, 0.5)
    out[13:17] = out[3:7] / proxy
    out[17] = stride


def _reuse(
    out: Any, store: ColumnStore, access: ColumnAccess, levels: _Levels, steps: Any, totals_next: Any,
    touched: Touched,
) -> Any:
    """Rows 7 to 12: reuse type, distance in iterations and bytes, count."""
    n = levels.n
    if n == 0:
        out[9] = 1.0
        return np.zeros(levels.size)
    used = np.zeros((n, levels.size), dtype=bool)
    for indices in access.indices:
        for form in indices:
            for position in form.positions():
                used[position] = levels.extent[position] > 1
    used = levels.fold(used, np.logical_or, False)
    repeated = [touched.numel[loop, access.buffer] for loop in store.loop_ids]
    serial = np.array([len(x) >= 2 for x in repeated])[:, None]
    hit = levels.exists & (~used | serial)
    any_hit = hit.any(axis=0)
    at = (n - 1 - np.argmax(hit[::-1], axis=0))[None]

    def pick(rows: Any) -> Any:
        return np.take_along_axis(rows, at, axis=0)[0]

    invariant = any_hit & ~pick(used)
    by_serial = any_hit & ~invariant
    count = np.where(invariant, pick(levels.group), 0.0)
    distance = np.where(invariant, pick(levels.inner), 0.0)
    size = np.where(invariant, pick(totals_next), 0.0)
    if serial.any():
        least = np.zeros((n, levels.size))
        bytes_here = np.zeros((n, levels.size))
        times = np.zeros((n, levels.size))
        for i, values in enumerate(repeated):
            least[i] = values[0] if len(values) == 1 else np.minimum.reduce(np.broadcast_arrays(*values))
            bytes_here[i] = touched.total[store.loop_ids[i]]
            times[i] = len(values) - 1
        group = pick(levels.group)
        count = np.where(by_serial, pick(times), count)
        distance = np.where(by_serial, pick(least) / group, distance)
        size = np.where(by_serial, pick(bytes_here) / group, size)
    out[7], out[8], out[9] = invariant, by_serial, ~any_hit
    out[10], out[11], out[12] = distance, size, count
    return count


def _intensity(out: Any, store: ColumnStore, levels: _Levels, under: Any) -> None:
    """Operations per byte on a log scale, at ten points of the way through all operations."""
    per_iteration = float(sum(store.ops[:7]))
    n = levels.n
    if per_iteration <= 0 or n == 0:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        compute = np.log2(per_iteration * levels.suffix[:n])[::-1].copy()
        memory = np.maximum(np.log2(under), 1e-9)[::-1].copy()
    if not levels.plain:
        depth = n - 1 - np.arange(n)[:, None]
        for k in range(n - 2, -1, -1):  # hidden in the vector loop: the loop's own values
            hidden = depth[k] > levels.head
            compute[k] = np.where(hidden, compute[k + 1], compute[k])
            memory[k] = np.where(hidden, memory[k + 1], memory[k])
        for k in range(1, n - 1):  # hidden in the parallel loop: as if the level were not there
            hidden = levels.in_parallel[n - 1 - k] & ~levels.exists[n - 1 - k] & (depth[k] <= levels.head)
            compute[k] = np.where(hidden, compute[k - 1], compute[k])
            memory[k] = np.where(hidden, memory[k - 1], memory[k])
    ratio = compute / memory
    goal = np.arange(1, _SAMPLES + 1)[:, None] / _SAMPLES * compute[-1]
    at = np.argmax(compute[None] >= goal[:, None] - 1e-4, axis=1)
    before = np.maximum(at - 1, 0)
    c1, r1 = np.take_along_axis(compute, at, axis=0), np.take_along_axis(ratio, at, axis=0)
    c0, r0 = np.take_along_axis(compute, before, axis=0), np.take_along_axis(ratio, before, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(c1 > c0, (r1 - r0) / (c1 - c0), 0.0)
    # Before the first level whose point is new there is nothing to interpolate from.
    first = (at == 0) | (c0 == c1) | (np.take_along_axis(compute, before, axis=0) == compute[0]) & (c1 == compute[0])
    out[:] = np.where(first, r1, r0 + slope * (goal - c0))


def _arithmetic(out: Any, store: ColumnStore, levels: _Levels) -> None:
    counts = np.zeros((16, levels.size))
    counts += np.asarray(store.ops, dtype=float)[:, None]
    for form in store.index_forms:
        _count_form(form, levels, counts)
    out[:] = counts * levels.prod


def _count_form(form: ColumnForm, levels: _Levels, counts: Any) -> Any:
    """Book additions, multiplications and divisions of one index; returns whether the form is not constant."""
    terms: Any = 0.0
    groups: list[tuple[Any, Any]] = [(0.0, levels.in_parallel), (0.0, levels.in_vector)]
    for position in sorted({t[0] for t in form.terms}):
        step = ColumnForm(0, [t for t in form.terms if t[0] == position]).step(position)
        step = np.where(levels.extent[position] > 1, step, 0.0)
        if not levels.plain:
            # Digits of one fused loop are one term.
            for k, (best, member) in enumerate(groups):
                groups[k] = (_min_nonzero(best, np.where(member[position], step, 0.0)), member)
            step = np.where(levels.in_parallel[position] | levels.in_vector[position], 0.0, step)
        terms = terms + (step != 0)
        counts[9] += (step != 0) & (step != 1)
    if not levels.plain:
        for step, _ in groups:
            terms = terms + (step != 0)
            counts[9] += (step != 0) & (step != 1)
    for rest in form.rests:
        active: Any = False
        for inner in rest.forms:
            active = active | _count_form(inner, levels, counts)
        terms = terms + active
        counts[{"div": 10, "mod": 10, "min": 11, "max": 11}.get(rest.op, 9)] += active
    terms = terms + (np.asarray(form.const) != 0) * (terms > 0)
    counts[8] += np.maximum(terms - 1, 0)
    return np.asarray(terms) > 0


def store_features(store: ColumnStore, touched: Touched, size: int) -> Any:
    """One row of 164 features per candidate, as float32 ``[size, 164]``."""
    levels = _Levels(store, size)
    raw = np.zeros((NUM_FEATURES, size))
    _arithmetic(raw[:16], store, levels)
    for k, kind in enumerate(("vectorized", "unrolled", "parallel")):
        at = 16 + 11 * k
        num, prod, length = store.kinds.get(kind, (0.0, 0.0, 0.0))
        raw[at], raw[at + 1], raw[at + 2] = num, prod, length
        raw[at + 3] = np.asarray(num) == 0
        raw[at + 10] = np.asarray(num) > 0
    raw[49] = float(store.is_gpu)
    for k, tag in enumerate(("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
                             "vthread.x")):
        raw[50 + k] = store.kinds.get(tag, (0, 0, 1.0))[2]
    rows, under = _buffer_rows(store, levels, touched)
    kept = rows[:_BUFFERS].reshape(-1, size)
    raw[57:57 + kept.shape[0]] = kept
    _intensity(raw[147:157], store, levels, under)
    outer = levels.prod
    if store.alloc is not None:
        numel, item, depth = store.alloc
        around = levels.suffix[0] / levels.suffix[depth]
        raw[157], raw[158], raw[159] = numel * item, numel * around, around
        raw[160] = outer / around
    raw[161], raw[162], raw[163] = outer, levels.exists.sum(axis=0), store.unroll
    return _log_scale(raw, kept.shape[0])


def _log_scale(raw: Any, num_rows: int) -> Any:
    keep = np.zeros(NUM_FEATURES, dtype=bool)  # flags and the intensity curve stay as they are
    for at in (16, 27, 38):
        keep[at + 3:at + 11] = True
    keep[49] = True
    for k in range(_BUFFERS):
        keep[57 + _SUB * k:57 + _SUB * k + 3] = True
        keep[57 + _SUB * k + 7:57 + _SUB * k + 10] = True
    keep[147:157] = True
    keep[57 + num_rows:147] = True
    result = raw.astype("float32")
    result[~keep] = np.log2(np.abs(result[~keep]) + np.float32(1))
    return np.ascontiguousarray(result.T)
