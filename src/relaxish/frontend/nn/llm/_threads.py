"""Loops of attention kernels: on CPU threads, or one iteration a warp of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .... import tir
from ....script.ir_builder import tir as T
from ..core import Dim
from ....tir import PrimExpr

__all__ = ["WARP", "each_by_lane", "first_lane", "rows_by_threads"]

WARP = 32  # threads that take one iteration


@contextmanager
def rows_by_threads(
    extent: PrimExpr, threads: bool, parallel: bool = True
) -> Iterator[tuple[PrimExpr, PrimExpr | None]]:
    """A loop whose iterations are warps of a GPU, or go on CPU threads. Gives its variable and the thread of the warp."""
    if threads:
        with T.thread_binding(0, extent, thread="blockIdx.x") as item:
            with T.thread_binding(0, WARP, thread="threadIdx.x") as lane:
                yield item, lane
        return
    with T.parallel(extent) if parallel else T.serial(extent) as item:
        yield item, None


@contextmanager
def each_by_lane(dim: Dim, lane: PrimExpr | None) -> Iterator[PrimExpr]:
    """A loop over the elements of a row that this thread has: all of them, or every 32nd."""
    if lane is None:
        with T.serial(dim) as d:
            yield d
        return
    with T.serial(tir.floordiv(tir.convert(dim) + (WARP - 1), WARP)) as slot:
        place = slot * WARP + lane
        with T.If(place < dim), T.Then():
            yield place


@contextmanager
def first_lane(lane: PrimExpr | None) -> Iterator[None]:
    """Scope of one thread of the warp."""
    if lane is None:
        yield
        return
    with T.If(lane == 0), T.Then():
        yield
