"""Sorting on a GPU: a stable merge sort in which every element finds its own place.

Two sorted runs are merged by all threads at once: an element's place in the merged run is its place in its own run plus
the number of elements of the other run that come before it, which a binary search tells. Blocks sort stretches in shared
memory first; what is longer is merged in global memory, two rounds (to a second buffer and back) each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from functools import partial

from ... import te, tir
from ...ir.prim import const_int, is_zero
from ...tir import const, decl_buffer, floordiv, floormod, if_then_else
from ...tir import Buffer, min as smaller, PrimExpr, Stmt
from ...tir.ir_builder import BufferVar, create, IRBuilder
from .. import tag as tags
from ..sort import comes_before
from ..utils import ax_compute, normalize_axis
from .grid import Lines, barrier, ceil_log2, launch, max_threads
from ...te.tensor import Dim
from ..selection import Before

__all__ = ["argsort", "sort", "topk"]

_STRETCH = 512  # elements that a block sorts in shared memory
Place = Callable[[Any], Any]


def _i64(value: int) -> PrimExpr:
    return const(value, "int64")


class _Keys:
    """Sort keys with the positions they came from; ``at`` makes an index of a place in the line."""

    def __init__(
        self, values: BufferVar, positions: BufferVar, at: Callable[[PrimExpr], PrimExpr | list[PrimExpr]]
    ) -> None:
        self.values = values
        self.positions = positions
        self.at = at

    def key(self, place: PrimExpr) -> PrimExpr:
        """The key at a place."""
        return self.values[self.at(place)]

    def move(self, place: PrimExpr, target: _Keys, new_place: PrimExpr) -> None:
        """Copy key and position of a place to a place elsewhere."""
        target.values[target.at(new_place)] = self.key(place)
        target.positions[target.at(new_place)] = self.positions[self.at(place)]


def _merge(
    ib: IRBuilder, source: _Keys, target: _Keys, place: PrimExpr, width: PrimExpr, n: PrimExpr, before: Before
) -> None:
    """Move one element of ``source``, whose runs of ``width`` are sorted, to where it belongs in runs of twice that."""
    left = ib.let("left", floormod(floordiv(place, width), _i64(2)).equal(_i64(0)))
    start = ib.let("start", floordiv(place, width * 2) * (width * 2))
    middle = ib.let("middle", smaller(start + width, n))
    end = ib.let("end", smaller(start + width * 2, n))
    mine = ib.let("mine", source.key(place))
    low = ib.allocate("int64", (1,), name="low", scope="local")
    high = ib.allocate("int64", (1,), name="high", scope="local")
    low[0] = if_then_else(left, middle, start)
    high[0] = if_then_else(left, end, middle)
    with ib.while_loop(low[0] < high[0]):
        probe = ib.let("probe", floordiv(low[0] + high[0], _i64(2)))
        other = source.key(probe)
        # Of equal elements the left run's come first.
        goes_first = tir.Or(before(other, mine), tir.And(tir.Not(left), tir.Not(before(mine, other))))
        with ib.if_scope(goes_first):
            low[0] = probe + _i64(1)
        with ib.else_scope():
            high[0] = probe
    passed = low[0] - if_then_else(left, middle, start)
    own = place - if_then_else(left, start, middle)
    source.move(place, target, start + own + passed)


def _sort_stretches(
    ib: IRBuilder, data: BufferVar, out: _Keys, lines: Lines, size: int, before: Before,
    sortable: Callable[[PrimExpr], PrimExpr] | None,
) -> None:  # fmt: skip
    """Kernel: each block sorts ``size`` neighbouring elements of a line in shared memory.

    ``sortable`` tells how many elements of a line take part, if not all; the others stay where they are.
    """
    n = lines.length
    per_line = floordiv(n + (size - 1), _i64(size))
    with launch(ib, lines.count * per_line, size) as (block, tx):
        line = ib.let("line", floordiv(block, per_line))
        first = ib.let("first", floormod(block, per_line) * size)
        count = smaller(n - first, _i64(size))
        sorted_count = count
        if sortable is not None:
            sorted_count = ib.let("sorted_count", smaller(sortable(line) - first, _i64(size)))
        kind = str(out.positions.dtype)
        keys = [
            _Keys(
                ib.allocate(data.dtype, (size,), name="keys", scope="shared"),
                ib.allocate(kind, (size,), name="positions", scope="shared"),
                lambda place: place,
            )
            for _ in range(2)
        ]
        with ib.if_scope(tx < count):
            keys[0].values[tx] = data[lines.at(line, first + tx)]
            keys[0].positions[tx] = (first + tx).astype(kind)
        barrier(ib)
        # There and back in each round; where all is in order already, elements stay in place.
        rounds = size.bit_length() // 2
        with ib.for_range(_i64(0), _i64(rounds), name="round", dtype="int64") as step:
            width = ib.let("width", tir.shift_left(_i64(1), step * 2))
            for source, target, runs in ((keys[0], keys[1], width), (keys[1], keys[0], width * 2)):
                with ib.if_scope(tx < sorted_count):
                    _merge(ib, source, target, tx, runs, sorted_count, before)
                barrier(ib)
        with ib.if_scope(tx < count):
            of_line = _Keys(out.values, out.positions, lambda place: lines.at(line, place))
            keys[0].move(tx, of_line, first + tx)


def _merge_round(
    ib: IRBuilder, source: _Keys, target: _Keys, lines: Lines, width: PrimExpr, threads: int, before: Before,
    sortable: Callable[[PrimExpr], PrimExpr] | None,
) -> None:  # fmt: skip
    """Kernel: runs of ``width`` become runs of twice that."""
    n = lines.length
    per_line = floordiv(n + (threads - 1), _i64(threads))
    with launch(ib, lines.count * per_line, threads) as (block, tx):
        line = ib.let("line", floordiv(block, per_line))
        place = ib.let("place", floormod(block, per_line) * threads + tx)
        here, there = (_Keys(k.values, k.positions, lambda p: lines.at(line, p)) for k in (source, target))
        last = n if sortable is None else ib.let("last", sortable(line))
        with ib.if_scope(place < last):
            _merge(ib, here, there, place, width, last, before)
        if sortable is not None:
            with ib.if_scope(tir.And(last <= place, place < n)):
                here.move(place, there, place)


def _program(ins: list[Buffer], outs: list[Buffer], axis: int, is_ascend: bool) -> Stmt:
    ib = create()
    data, *counts = ins
    source = ib.buffer_ptr(data)
    result, spare = (_Keys(ib.buffer_ptr(v), ib.buffer_ptr(p), None) for v, p in (outs[:2], outs[2:]))  # type: ignore[arg-type]
    lines = Lines(data.shape, axis)

    def before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return comes_before(a, b, not is_ascend)

    def counted(line: PrimExpr) -> PrimExpr:
        return smaller(ib.buffer_ptr(counts[0])[line].astype("int64"), lines.length)

    sortable = counted if counts else None
    known = const_int(lines.length, _STRETCH)
    size = max_threads(max(32, min(_STRETCH, 1 << max(known - 1, 0).bit_length())))
    _sort_stretches(ib, source, result, lines, size, before, sortable)
    doublings = ceil_log2(floordiv(lines.length + (size - 1), _i64(size)))
    rounds = floordiv(doublings + 1, _i64(2))
    if not is_zero(rounds):
        with ib.for_range(_i64(0), rounds, name="round", dtype="int64") as step:
            width = tir.shift_left(_i64(size), step * 2)
            _merge_round(ib, result, spare, lines, width, size, before, sortable)
            _merge_round(ib, spare, result, lines, width * 2, size, before, sortable)
    return ib.get()


def _sorted(
    data: te.Tensor, axis: int, is_ascend: bool, dtype: str, valid_count: te.Tensor | None = None
) -> tuple[te.Tensor, te.Tensor]:
    """Values in order, and the positions they came from."""
    axis = normalize_axis(axis, len(data.shape))
    kinds = [data.dtype, dtype, data.dtype, dtype]
    names = ["value_buf", "out_buf", "value_swap_buf", "out_swap_buf"]
    outs = [decl_buffer(data.shape, k, name, data_alignment=8) for k, name in zip(kinds, names, strict=True)]
    given = [data] if valid_count is None else [data, valid_count]
    made = te.extern(
        [tuple(data.shape)] * 4, given, lambda ins, bufs: _program(ins, bufs, axis, is_ascend), "argsort_gpu", kinds,
        out_buffers=outs, tag="argsort_gpu",
    )  # fmt: skip
    return made[0], made[1]


def sort(data: te.Tensor, axis: int = -1, is_ascend: bool = True) -> te.Tensor:
    """Sorted values."""
    return _sorted(data, axis, bool(is_ascend), "int32")[0]


def argsort(
    data: te.Tensor,
    valid_count: te.Tensor | None = None,
    axis: int = -1,
    is_ascend: bool = True,
    dtype: str = "float32",
) -> te.Tensor:
    """Positions that sort the data; equal elements keep their order.

    ``valid_count`` has a number for each line along ``axis``, in row-major order of the other axes: how many of its first
    elements are sorted. The others stay in their places.
    """
    if dtype.startswith("int"):
        return _sorted(data, axis, bool(is_ascend), dtype, valid_count)[1]
    places = _sorted(data, axis, bool(is_ascend), "int32", valid_count)[1]
    return ax_compute(data.shape, lambda i: places(*i).astype(dtype), "argsorted", tags.INJECTIVE)


def topk(
    data: te.Tensor, k: Dim = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> te.Tensor | list[te.Tensor]:
    """The ``k`` first elements in order, their positions, or both; ``k < 1`` means all."""
    if ret_type not in ("both", "values", "indices"):
        raise ValueError(f"ret_type must be both, values or indices, not {ret_type!r}")
    axis = normalize_axis(axis, len(data.shape))
    values, places = _sorted(data, axis, bool(is_ascend), dtype)
    return first_elements(values, places, k, axis, ret_type)


def _element(tensor: te.Tensor, indices: list[PrimExpr]) -> PrimExpr:
    return tensor(*indices)


def first_elements(
    values: te.Tensor, places: te.Tensor, k: Dim, axis: int, ret_type: str
) -> te.Tensor | list[te.Tensor]:
    """The first ``k`` of sorted elements along an axis; all, for ``k < 1``."""
    shape = list(values.shape)
    if isinstance(k, int) and k < 1:
        out = [values, places]
    else:
        shape[axis] = tir.convert(k).astype(str(shape[axis].dtype))
        out = [
            ax_compute(shape, partial(_element, t), name, tags.INJECTIVE)
            for t, name in ((values, "topk_values"), (places, "topk_indices"))
        ]
    return out if ret_type == "both" else out[0 if ret_type == "values" else 1]
