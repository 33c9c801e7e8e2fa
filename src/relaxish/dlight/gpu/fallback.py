"""The rule for everything no other rule takes."""

from __future__ import annotations

from typing import Any

from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ..analysis import normalize_prim_func
from ..analysis.opaque_blocks import calls_host, launches_threads, parallel_loops
from ..base import max_threads_per_block, try_inline
from .common import GPUScheduleRule


class Fallback(GPUScheduleRule):
    """Inline what can be inlined; each block left runs its spatial points one a thread, its reductions in the thread.

    Before and after (``max_threads_per_block`` 1024)::

        for i, j in T.grid(n, 64):                 for bx in T.thread_binding((n * 64 + 1023) // 1024, "blockIdx.x"):
            with T.block("copy"): ...                  for tx in T.thread_binding(1024, "threadIdx.x"):
                                                           with T.block("copy"):
                                                               T.where(bx * 1024 + tx < n * 64)
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not self.fits(func, target):
            return None
        sch = Schedule(func)
        infos = normalize_prim_func(sch)
        if infos is None:
            return None
        reductions = []
        for info in try_inline(sch, infos):
            loops: dict[str, list[Any]] = {"S": [], "R": [], "O": []}
            rv = info.block_rv
            around, body = sch.get_loops(rv), sch.get(rv).body
            if any(sch.get(loop).thread_binding is not None for loop in around) or launches_threads(body):
                continue
            if not around:
                if not calls_host(body) and parallel_loops(body) is None:  # those become kernels when code is made
                    _one_thread(sch, rv)
                continue
            for loop, kind in zip(around, info.dom_kind()):
                loops[kind].append(loop)
            if not loops["S"]:
                loops["S"].append(sch.add_unit_loop(rv))
            sch.reorder(*loops["S"], *loops["R"], *loops["O"])
            bx, tx = sch.split(sch.fuse(*loops["S"]), factors=[None, max_threads_per_block(target)])
            sch.bind(bx, "blockIdx.x")
            sch.bind(tx, "threadIdx.x")
            if loops["R"]:
                reductions.append((rv, loops["R"][0]))
        for rv, first in reductions:
            sch.decompose_reduction(rv, first)
        return sch


def _one_thread(sch: Schedule, rv: BlockRV) -> None:
    """A block that computes one number, or has loops of its own that nobody may reorder."""
    sch.bind(sch.add_unit_loop(rv), "threadIdx.x")
    sch.bind(sch.add_unit_loop(sch.get_loops(rv)[0]), "blockIdx.x")
