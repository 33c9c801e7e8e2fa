"""Neighbouring axes of unknown extent as one, so that register tiles meet one partial tile and not one in each line.

Before, with ``h`` and ``w`` known only at run time::

    for y, x, f, c in T.grid(h, w, 128, 64):
        C[y, x, f] += A[y, x, c] * W[c, f]

After (the arrays are read through buffers of the new shape on the same memory)::

    for p, f, c in T.grid(h * w, 128, 64):
        C[p, f] += A[p, c] * W[c, f]

It holds where every access of every block has the axes side by side, in their order, over all of their extents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith.functor import uses_var
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Mutator, all_nodes
from ...ir.prim import IntImm, IterVar, Mul, Var, is_one, is_zero
from ...ir.structural import same_expression
from ...tir import Block, BlockRealize, Buffer, BufferLoad, BufferRegion, BufferStore, For, ForKind, PrimFunc, stmt_seq
from ...tir import decl_buffer
from ...tir.stmt import Stmt, stmt_list

__all__ = ["collapse_axes"]


@dataclass(frozen=True)
class _Nest:
    """Perfectly nested loops around one block, each loop an iterator of it."""

    loops: tuple[For, ...]
    block: Block
    axes: tuple[IterVar, ...]

    @property
    def spatial(self) -> list[int]:
        """Positions of the loops over spatial iterators."""
        return [i for i, axis in enumerate(self.axes) if axis.iter_type == IterVar.DataPar]


def collapse_axes(func: PrimFunc) -> PrimFunc:
    """``func`` with runs of axes of unknown extent made one axis each; itself where there are none."""
    while True:
        made = _collapse_once(func)
        if made is None:
            return func
        func = made


def _collapse_once(func: PrimFunc) -> PrimFunc | None:
    root = func.body
    if not isinstance(root, BlockRealize) or root.block.match_buffers:
        return None
    parts = stmt_list(root.block.body)
    nests = [_nest_of(part) for part in parts]
    if not nests or any(nest is None for nest in nests):
        return None
    known: list[_Nest] = [nest for nest in nests if nest is not None]
    for extents in _runs(known[-1]):
        places = [_place_of(nest, extents) for nest in known]
        if all(place is not None for place in places):
            runs = [place for place in places if place is not None]
            rewriter = _CollapsedAxesRewriter(extents)
            if all(rewriter.learn(nest, place) for nest, place in zip(known, runs, strict=True)):
                made = [rewriter.nest(nest, place) for nest, place in zip(known, runs, strict=True)]
                if all(stmt is not None for stmt in made):
                    return _rebuilt(func, rewriter, [stmt for stmt in made if stmt is not None])
    return None


def _nest_of(stmt: Stmt) -> _Nest | None:
    loops: list[For] = []
    while isinstance(stmt, For):
        if stmt.kind != ForKind.SERIAL or not is_zero(stmt.min) or stmt.annotations:
            return None
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, BlockRealize) or not is_one(stmt.predicate):
        return None
    block, by_var = stmt.block, {}
    if block.match_buffers or block.alloc_buffers or len(stmt.iter_values) != len(loops):
        return None
    for axis, value in zip(block.iter_vars, stmt.iter_values, strict=True):
        by_var[value] = axis
    axes = [by_var.get(loop.loop_var) for loop in loops]
    found = tuple(axis for axis in axes if axis is not None)
    if len(found) != len(loops) or any(
        not same_expression(axis.dom.extent, loop.extent) for axis, loop in zip(found, loops, strict=True)
    ):
        return None
    return _Nest(tuple(loops), block, found)


def _runs(nest: _Nest) -> Iterator[list[PrimExpr]]:
    """Extents of neighbouring spatial axes that may become one, the longest runs first.

    Those with the last axis, which vectors are made of, come after all others and leave an axis to share among threads.
    """
    places = nest.spatial
    for whole in (False, True):
        for length in range(len(places) - 1, 1, -1):
            for start in range(len(places) - length + 1):
                run = places[start : start + length]
                extents = [nest.loops[i].extent for i in run]
                # A constant extent at the end of the run is a better axis by itself.
                known = isinstance(extents[-1], IntImm)
                if run == list(range(run[0], run[0] + length)) and not known and (run[-1] == places[-1]) == whole:
                    yield extents


def _place_of(nest: _Nest, extents: Sequence[PrimExpr]) -> int | None:
    """The loop from which on the nest has spatial axes of these extents."""
    size = len(extents)
    for start in range(len(nest.loops) - size + 1):
        run = range(start, start + size)
        if all(i in nest.spatial for i in run) and all(
            same_expression(nest.loops[i].extent, extent) for i, extent in zip(run, extents, strict=True)
        ):
            return start
    return None


class _CollapsedAxesRewriter(Mutator):
    """Accesses and regions with one index in place of those of a run of axes."""

    _table = {}

    def __init__(self, extents: Sequence[PrimExpr]) -> None:
        self.extents = extents
        self.size = len(extents)
        # Where the run begins in each buffer (None: it has nothing of it), and the buffers that take their place.
        self.starts: dict[Buffer, int | None] = {}
        self.made: dict[Buffer, Buffer] = {}
        self.new: Var = Var("p", "int64")

    def learn(self, nest: _Nest, place: int) -> bool:
        """Look at the accesses of a nest; False where one of them does not have the axes side by side."""
        run = [axis.var for axis in nest.axes[place : place + self.size]]
        accesses = [x for x in all_nodes(nest.block) if isinstance(x, (BufferLoad, BufferStore))]
        regions = [*nest.block.reads, *nest.block.writes]
        for buffer, indices in [
            *((x.buffer, x.indices) for x in accesses),
            *((r.buffer, tuple(_point(dim) for dim in r.region)) for r in regions),
        ]:
            start = self._start(buffer, indices, run)
            if start is False or self.starts.setdefault(buffer, start) != start:
                return False
        return True

    def _start(self, buffer: Buffer, indices: Sequence[PrimExpr | None], run: Sequence[Var]) -> int | bool | None:
        if any(index is None for index in indices):
            return False
        at = [i for i, index in enumerate(indices) if index is not None and any(uses_var(index, v) for v in run)]
        if not at:
            return None
        if len(at) != self.size or at != list(range(at[0], at[0] + self.size)) or buffer.strides:
            return False
        plain = all(indices[i] is var for i, var in zip(at, run, strict=True))
        whole = all(same_expression(buffer.shape[i], e) for i, e in zip(at, self.extents, strict=True))
        return at[0] if plain and whole and is_zero(buffer.elem_offset) else False

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer of the new shape on the same memory."""
        start = self.starts.get(buffer)
        if start is None:
            return buffer
        if buffer not in self.made:
            shape = [*buffer.shape[:start], product(self.extents), *buffer.shape[start + self.size :]]
            self.made[buffer] = decl_buffer(
                shape, buffer.dtype, buffer.name, data=buffer.data, data_alignment=buffer.data_alignment
            )
        return self.made[buffer]

    def _joined(self, buffer: Buffer, items: Sequence[Any], one: Any) -> list[Any]:
        start = self.starts.get(buffer)
        return list(items) if start is None else [*items[:start], one, *items[start + self.size :]]

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        indices = [self.visit(index) for index in self._joined(load.buffer, load.indices, self.new)]
        return BufferLoad(self.buffer(load.buffer), indices)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = [self.visit(index) for index in self._joined(store.buffer, store.indices, self.new)]
        return BufferStore(self.buffer(store.buffer), self.visit(store.value), indices)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        one = Range.from_min_extent(self.new, IntImm(self.new.dtype, 1))
        return BufferRegion(self.buffer(region.buffer), self._joined(region.buffer, region.region, one))

    def nest(self, nest: _Nest, place: int) -> Stmt | None:
        """The nest with one loop in place of those of the run; None where its block computes with one of their indices."""
        first, last = nest.loops[place], place + self.size
        axis, extent = nest.axes[place], product(self.extents)
        self.new = Var(axis.var.name, axis.var.dtype)
        joined = IterVar(Range.from_min_extent(IntImm(extent.dtype, 0), extent), self.new, axis.iter_type)
        loop = first.with_fields(loop_var=Var(first.loop_var.name, first.loop_var.dtype), extent=extent)
        loops = [*nest.loops[:place], loop, *nest.loops[last:]]
        axes = [*nest.axes[:place], joined, *nest.axes[last:]]
        block = self.default_visit(nest.block).with_fields(iter_vars=axes)
        if any(uses_var(block, each.var) for each in nest.axes[place:last]):
            return None
        stmt: Any = BlockRealize([each.loop_var for each in loops], True, block)
        for each in reversed(loops):
            stmt = each.with_fields(body=stmt)
        return stmt


def product(extents: Sequence[PrimExpr]) -> PrimExpr:
    """The number of points of a run of axes."""
    total = extents[0]
    for extent in extents[1:]:
        total = Mul(total, extent)
    return total


def _point(dim: Range) -> PrimExpr | None:
    """The only index of a dimension of a region; None where there are more."""
    return dim.min if is_one(dim.extent) else None


def _rebuilt(func: PrimFunc, rewriter: _CollapsedAxesRewriter, made: Sequence[Stmt]) -> PrimFunc:
    root: Any = func.body
    block = root.block.with_fields(
        body=stmt_seq(*made),
        alloc_buffers=[rewriter.buffer(buffer) for buffer in root.block.alloc_buffers],
    )
    return func.with_body(root.with_fields(block=block))
