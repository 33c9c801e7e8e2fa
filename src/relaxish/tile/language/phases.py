"""``T.sync_grid``: where all blocks wait for each other a kernel ends, and another one goes on.

Launches of one stream run one after the other, and the loops of a CPU's kernels do, so that no grid need fit a device at once.
What blocks keep to themselves is lost between two kernels: a program that needs it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.functor import all_nodes
from ...ir.prim import StringImm, const_int
from ...script.ir_builder import tir as B
from ...tir import Buffer, BufferLoad, BufferStore, Evaluate, For, Stmt
from ...tir.transform.tiles.program import loads_of, nest_of, stores_of
from .blocks import inside_kernel
from .regions import TileError
from ...tir.stmt import stmt_list

__all__ = ["phases_of", "sync_grid"]

_MARK = "tile.sync_grid"


def sync_grid() -> None:
    """Wait for all blocks of the grid: what they stored to global memory is there for all of them.

    It stands between statements of the kernel itself, not inside of loops or conditions. Shared memory, fragments and
    variables begin anew behind it. Raises TileError for a kernel that reads there what it kept in them.
    """
    inside_kernel("T.sync_grid")
    B.evaluate(StringImm(_MARK))


def phases_of(statements: Sequence[Stmt], allocated: Sequence[Buffer]) -> list[tuple[list[Stmt], list[Buffer]]]:
    """The parts of a kernel between its grid's barriers, each with the memory of a block that it uses. Raises TileError."""
    parts: list[list[Stmt]] = [[]]
    for stmt in statements:
        if _is_mark(stmt):
            parts.append([])
            continue
        if any(_is_mark(node) for node in all_nodes(stmt) if isinstance(node, Stmt)):
            raise TileError(
                "T.sync_grid stands inside of a loop, a condition or a view (T.view): all blocks wait between statements of the "
                "kernel itself; write T.Kernel inside of the loop, or two T.Kernel, one after the other"
            )
        parts[-1].append(stmt)
    if len(parts) == 1:
        return [(parts[0], list(allocated))]
    found = []
    known: set[Buffer] = set()
    for number, part in enumerate(p for p in parts if p):
        used = [b for b in allocated if any(_touches(s, b) for s in part)]
        for buffer in used:
            if buffer in known and not _begins_anew(part, buffer):
                raise TileError(
                    f"T.sync_grid: {buffer.name} holds what a block computed before it, which is lost there; store it to global "
                    "memory (T.alloc_global) and copy it back"
                )
        if number == 0:
            used = [b for b in allocated if b in used or not any(_touches(s, b) for p in parts for s in p)]
        known.update(used)
        found.append((part, used))
    return found or [([], list(allocated))]


def _is_mark(node: object) -> bool:
    return isinstance(node, Evaluate) and isinstance(node.value, StringImm) and node.value.value == _MARK


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in all_nodes(stmt))


def _begins_anew(statements: Sequence[Stmt], buffer: Buffer) -> bool:
    """Whether all of a buffer is written before any of it is read."""
    mine = [s for s in statements if _touches(s, buffer)]
    first = mine[0]
    nest = nest_of(first)
    if nest is not None:
        written = nest.init if nest.init is not None else nest.body
        whole = math.prod(const_int(e) or 0 for (_, e), kind in zip(nest.loops, nest.kinds, strict=True) if kind == "S")
        size = math.prod(const_int(e) or 0 for e in buffer.shape)
        stored = [s for s in stores_of(written) if s.buffer is buffer]
        plain = nest.op in ("copy", "fill") or nest.init is not None
        return plain and bool(stored) and whole == size and not any(x.buffer is buffer for x in loads_of(written))
    match first:
        case BufferStore():
            alone = math.prod(const_int(e) or 0 for e in buffer.shape) == 1
            return alone and first.buffer is buffer and not any(x.buffer is buffer for x in loads_of(first.value))
        case For() if len(mine) == 1:
            return _begins_anew(stmt_list(first.body), buffer)
    return False
