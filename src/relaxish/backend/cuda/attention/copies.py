"""Asynchronous copies of tiles from global to shared memory (``cp.async``), and how threads share a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import tir
from ....ir.expr import ExprLike
from ....script.ir_builder import tir as T
from .block import Block, emit_intrinsic, only_if, vector_width
from .problem import Operand
from .tiling import padded

__all__ = ["wait_for_copies", "fetch", "commit_copies", "distribute_tile"]


def commit_copies() -> None:
    """Make one group of the copies issued since the last call (``cp.async.commit_group``)."""
    emit_intrinsic("ptx_commit_group")


def wait_for_copies(outstanding: int) -> None:
    """Wait until at most ``outstanding`` groups of this thread's copies are incomplete (``cp.async.wait_group``)."""
    emit_intrinsic("ptx_wait_group", outstanding)


def distribute_tile(block: Block, rows: int, columns: int, width: int, body: Callable[[Any, Any], None]) -> None:
    """Distribute a tile among the block's threads: ``body(row, column)`` handles ``width`` elements from that place on."""
    in_row, threads = columns // width, block.tiling.threads
    total = rows * in_row
    with T.serial(-(-total // threads)) as turn:
        index = turn * threads + block.thread
        with only_if(None if total % threads == 0 else index < total):
            body(index // in_row, index % in_row * width)


def fetch(
    block: Block, source: tir.Buffer, operand: Operand, size: int, place: ExprLike, rows: int, row_at: Callable[[Any], Any],
    inside: Callable[[Any], Any] | None,
) -> None:  # fmt: skip
    """Issue the copies of ``rows`` rows of an operand to shared memory, from element ``place`` on.

    Row ``r`` of the tile begins at element ``row_at(r)`` of ``source``. Rows for which ``inside(r)`` is false are filled
    with zeros, and so are the columns from ``size`` to the next multiple of 16.
    """
    width = vector_width(size, operand.batch, operand.row, operand.head, operand.offset)
    pitch, columns = block.tiling.pitch(size), padded(size)

    def piece(row: tir.PrimExpr, column: tir.PrimExpr) -> None:
        conditions = [] if inside is None else [inside(row)]
        if columns != size:
            conditions.append(column < size)
        arguments = [block.shared.data, place + row * pitch + column, source.data, row_at(row) + column, 2 * width]
        if conditions:
            arguments.append(conditions[0] if len(conditions) == 1 else tir.all(*conditions))
        emit_intrinsic("ptx_cp_async", *arguments, dtype=block.problem.dtype)

    distribute_tile(block, rows, columns, width, piece)
