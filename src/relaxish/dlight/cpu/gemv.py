"""Matrix times vector on CPUs, decoded matrices included: tiles of rows in parallel."""

from __future__ import annotations


from ...target import Target
from ...tir import PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV
from ..analysis import is_gemv, normalize, normalize_nested
from ..base import ScheduleRule, get_extent, try_inline_contiguous_spatial

_VECTOR = 8
_UNROLL = 256


class GEMV(ScheduleRule):
    """``Y[s] += A[s, r] * X[r]`` with the matrix read along ``r``: a tile of rows a task, its rows as vector lanes.

    Before and after (4096 x 1024)::

        for i, k in T.grid(4096, 1024):            for i_0 in T.parallel(32):
            Y[i] += A[i, k] * X[k]                     for i_1 in T.vectorized(128):
                                                           for k_0, k_1 in T.grid(16, 64): ...
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the class."""
        if not isinstance(func, PrimFunc) or target.kind.name != "llvm":
            return None
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_nested(sch, serial=True))
        if not infos or len(infos) > 2 or (len(infos) == 2 and not infos[1].is_injective()):
            return None
        info = infos[0]
        # [S, R] * [R], or the same for each of a batch.
        if len(info.iters) not in (2, 3) or is_gemv(sch, info) is None or not normalize(sch, info):
            return None
        _tile(sch, info.block_rv)
        return sch


def _tile(sch: Schedule, block: BlockRV) -> None:
    batch, s, r, c = sch.get_loops(block)
    rows, columns, packed = get_extent(sch, batch) * get_extent(sch, s), get_extent(sch, r), get_extent(sch, c)
    columns = columns * packed
    tile_s, tile_r = 64, 64
    if isinstance(rows, int) and isinstance(columns, int):
        tile_s, tile_r = (128, 64) if rows > columns else (64, 128)
    s_outer, s_inner = sch.split(s, factors=[None, tile_s])
    r_outer, _ = sch.split(r, factors=[None, tile_r])
    sch.split(c, factors=[None, min(_VECTOR, packed)])
    sch.vectorize(s_inner)
    sch.parallel(s_outer)
    sch.annotate(r_outer, "pragma_auto_unroll_max_step", _UNROLL)
    sch.annotate(r_outer, "pragma_unroll_explicit", 1)
