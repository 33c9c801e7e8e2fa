"""Tiles on their way from global to shared memory, and results on their way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import tir
from ....script.ir_builder import tir as T
from .block import Block, instruct, only_if, vector_width
from .problem import Operand
from .tiling import padded

__all__ = ["arrived", "fetch", "sent", "together"]


def sent() -> None:
    """What has been fetched since the last call arrives as one group."""
    instruct("ptx_commit_group")


def arrived(outstanding: int) -> None:
    """Wait until at most so many groups of this thread's copies are on their way."""
    instruct("ptx_wait_group", outstanding)


def together(block: Block, rows: int, columns: int, width: int, body: Callable[[Any, Any], None]) -> None:
    """Threads share a tile: ``body`` gets the row and the first column of each ``width`` elements."""
    in_row, threads = columns // width, block.tiling.threads
    total = rows * in_row
    with T.serial(-(-total // threads)) as turn:
        index = turn * threads + block.thread
        with only_if(None if total % threads == 0 else index < total):
            body(index // in_row, index % in_row * width)


def fetch(
    block: Block, source: Any, operand: Operand, size: int, place: Any, rows: int, row_at: Callable[[Any], Any],
    inside: Callable[[Any], Any] | None,
) -> None:  # fmt: skip
    """Ask for rows of an operand: row ``r`` of the tile begins at ``row_at(r)``; where not ``inside(r)`` zeros come.

    Columns beyond ``size``, up to the next multiple of 16, are zeros too.
    """
    width = vector_width(size, operand.batch, operand.row, operand.head, operand.offset)
    pitch, columns = block.tiling.pitch(size), padded(size)

    def piece(row: Any, column: Any) -> None:
        conditions = [] if inside is None else [inside(row)]
        if columns != size:
            conditions.append(column < size)
        arguments = [block.shared.data, place + row * pitch + column, source.data, row_at(row) + column, 2 * width]
        if conditions:
            arguments.append(conditions[0] if len(conditions) == 1 else tir.all(*conditions))
        instruct("ptx_cp_async", *arguments, dtype=block.problem.dtype)

    together(block, rows, columns, width, piece)
