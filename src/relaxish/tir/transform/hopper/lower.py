"""LowerHopperTiles: scheduled products of tiles become warp-specialised kernels with wgmma and bulk tensor copies."""

from __future__ import annotations

from typing import Any

from ....ir.functor import all_nodes
from ...function import PrimFunc
from ...stmt import Block, BlockRealize, For, Stmt, stmt_list
from ..base import seq, FunctionRewrite
from .kernel import build_kernel
from .operand import plan_operand
from .tiles import STAGES, HopperError, TileProgram, parse_tiles

__all__ = ["LowerHopperTiles", "bulk_operands", "has_tiles", "lower_tiles", "tile_programs"]


def has_tiles(stmt: Stmt) -> bool:
    """Whether a statement holds a loop over the depth of tiles."""
    return any(isinstance(node, For) and STAGES in node.annotations for node in all_nodes(stmt))


def tile_programs(func: PrimFunc) -> list[TileProgram]:
    """The tile programs of a function, as they are written down. Raises HopperError for others."""
    root = func.body
    if not isinstance(root, BlockRealize) or not has_tiles(root):
        return []
    body = root.block.body
    return [parse_tiles(item) for item in stmt_list(body) if has_tiles(item)]


def bulk_operands(func: PrimFunc) -> tuple[bool, bool]:
    """Whether bulk copies bring the rows, and the columns, of a function's product. Raises HopperError for no product."""
    for program in tile_programs(func):
        r = program.roles
        rows, columns = (
            plan_operand(name, program, source, role).map is not None
            for name, source, role in (("A", program.a, r.row), ("B", program.b, r.column))
        )
        return rows, columns
    raise HopperError("there is no product of tiles")


def lower_tiles(func: PrimFunc) -> PrimFunc:
    """The function with its tile programs lowered. Raises HopperError where one does not fit the hardware."""
    root = func.body
    if not isinstance(root, BlockRealize) or not has_tiles(root):
        return func
    block = root.block
    items = stmt_list(block.body)
    gone: set[Any] = set()
    made = []
    for item in items:
        if has_tiles(item):
            program = parse_tiles(item)
            gone |= {program.a.target, program.b.target, program.result}
            item = build_kernel(program)
        made.append(item)
    kept = tuple(b for b in block.alloc_buffers if b not in gone)
    new: Block = block.with_fields(body=seq(made), alloc_buffers=kept)
    return func.with_body(root.with_fields(block=new))


class LowerHopperTiles(FunctionRewrite):
    """Lower products of whole tiles, scheduled as :mod:`.hopper_tiles` shows, for the tensor cores of Hopper.

    Before::

        for bx in T.thread_binding(32, "blockIdx.x"):
            for ko in T.serial(64, annotations={"hopper.stages": 4}):
                ...                                          copies of two tiles, a product of tiles
            ...                                              write-back

    After (in short)::

        A_map: T.handle("uint8", "tensor_map") = T.tensor_map_encode(A.data, "float16", 2, 4096, 4096, 8192, 64, 128, 128)
        with T.launch_thread("blockIdx.x", 132), T.launch_thread("threadIdx.x", 384):
            if T.ptx_warp_group_index() == 0:                one thread: wait for an empty stage, fetch two tiles into it
                T.ptx_tma_load(...)
            else:                                            wait for a full stage, multiply, release the stage before
                T.ptx_wgmma_ss(...)

    Functions without such annotations stay as they are. Raises HopperError (a ValueError) for a program that says
    it is one but does not fit; default schedules and the search try this before they choose it.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower_tiles(func)
