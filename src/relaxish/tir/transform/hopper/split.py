"""The write-back of products whose depth is shared by the blocks of a cluster.

Each block has summed up a part of the depth. All put their sums into their own shared memory, meet, and then finish a
share of the columns each: add up what the blocks hold there, always in the order of their ranks so that results do not
depend on timing, apply the element-wise function, and store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import BufferStore, For, ForKind, Stmt
from ..base import seq
from .statements import address, allocate, do, loop, when
from .epilogue import DirectEpilogue, Place
from .tiles import HopperError, TileProgram

__all__ = ["SplitEpilogue", "meet_cluster"]

_WARPGROUP = 128
_QUAD = 4
_BARRIER = 8


def meet_cluster(publish: bool = True) -> list[Stmt]:
    """All threads of the cluster wait for each other; with ``publish`` they see what all have stored before."""
    return [do("ptx_cluster_arrive" if publish else "ptx_cluster_arrive_relaxed"), do("ptx_cluster_wait")]


class SplitEpilogue(DirectEpilogue):
    """From the sums of all blocks of a cluster to global memory."""

    def __init__(self, program: TileProgram, rows: int, split: int) -> None:
        super().__init__(program, rows)
        if dt.bits(program.result.dtype) != 32:
            raise HopperError("blocks share a depth only where sums have 32 bits")
        self.split = split
        self.view_types = frozenset({program.result.dtype})
        self.quads = rows // 64 * program.shape[1] // 8
        self.threads = _WARPGROUP * program.warpgroups

    @property
    def sum_bytes(self) -> int:
        """Shared memory for a block's own sums; the ring of tiles, which is not needed any more."""
        return self.quads * _QUAD * 4 * self.threads

    def emit(self, at: Place) -> Stmt:
        """Own sums to shared memory; then this block's share of the columns."""
        dtype, view = self.p.result.dtype, at.views[self.p.result.dtype]
        mine = at.group * _WARPGROUP + at.thread % _WARPGROUP

        def where(quad: PrimExpr) -> PrimExpr:
            return (quad * self.threads + mine) * _QUAD

        def put(quad: PrimExpr) -> Stmt:
            v = Var("v", "int32")
            return For(
                v, 0, _QUAD, ForKind.VECTORIZED, BufferStore(view, at.results[quad * _QUAD + v], [where(quad) + v])
            )

        share = -(-self.quads // self.split)

        def finish(row: Var, column: Var) -> Stmt:
            def one(turn: PrimExpr, sums: Buffer, parts: Buffer) -> Stmt:
                quad = at.rank * share + turn
                fetch = loop("part", self.split, lambda part: do(
                    "ptx_cluster_read", address(parts, part * _QUAD), address(view, where(quad)), part
                ))  # fmt: skip
                made = seq([fetch, loop("v", _QUAD, lambda v: BufferStore(sums, self._total(parts, v), [v])),
                            self._stores(replace(at, results=sums), row, column, quad)])  # fmt: skip
                return made if self.quads % self.split == 0 else when(quad < self.quads, made)

            return allocate("sums", dtype, _QUAD, "local", lambda sums: allocate(
                "parts", dtype, _QUAD * self.split, "local",
                lambda parts: loop("turn", share, lambda turn: one(turn, sums, parts)),
            ))  # fmt: skip

        return seq([
            # Waiting for products covers the own warp; others may still read the tiles that sums now take the place of.
            do("ptx_named_barrier_sync", _BARRIER, self.threads),
            loop("quad", self.quads, put),
            *meet_cluster(),
            self._with_coordinates(at, finish),
        ])  # fmt: skip

    def _total(self, parts: Buffer, v: PrimExpr) -> PrimExpr:
        total: Any = BufferLoad(parts, [v])
        for part in range(1, self.split):
            total = total + BufferLoad(parts, [v + part * _QUAD])
        return total

    def _stores(self, at: Place, row: Var, column: Var, quad: PrimExpr) -> Stmt:
        across = self.p.shape[1] // 8
        tall, j = quad // across, quad % across
        return loop("h", 2, lambda h: self._pair(at, row + (tall * 64 + h * 8), column + j * 8, h * 2))
