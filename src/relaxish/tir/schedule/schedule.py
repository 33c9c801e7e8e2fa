"""The schedule: every primitive as a method."""

from __future__ import annotations

from .errors import ScheduleError
from .methods.blocks import BlockMethods
from .methods.buffers import BufferMethods
from .methods.caches import CacheMethods
from .methods.loops import LoopMethods
from .methods.moving import MovingMethods
from .methods.queries import QueryMethods
from .methods.sampling import SamplingMethods
from .rv import RAND_VAR_TYPE, BlockRV, ExprRV, LoopRV

__all__ = ["RAND_VAR_TYPE", "BlockRV", "ExprRV", "LoopRV", "Schedule", "ScheduleError"]


class Schedule(QueryMethods, SamplingMethods, LoopMethods, CacheMethods, MovingMethods, BufferMethods, BlockMethods):
    """Transforms a module step by step and keeps a trace of the steps.

    >>> from relaxish.testing.examples import matmul
    >>> sch = Schedule(matmul)
    >>> i, j, k = sch.get_loops("C")
    >>> i0, i1 = sch.split(i, [None, 4])
    >>> print(sch.trace)
    # from relaxish import tir
    def apply_trace(sch: tir.Schedule) -> None:
      b0 = sch.get_block(name="C", func_name="main")
      l1, l2, l3 = sch.get_loops(block=b0)
      l4, l5 = sch.split(loop=l1, factors=[None, 4], preserve_unit_iters=True, disable_predication=False)
    """
