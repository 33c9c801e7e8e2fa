"""Loops and threads: extents, and how many threads or vector lanes a loop gets."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtype import bits
from ...ir.expr import ExprLike, PrimExpr
from ...ir.prim import IntImm, const_int
from ...target import Target
from ...tir import For
from ...tir.schedule import Schedule
from ...tir.schedule.rv import LoopRV

__all__ = [
    "auto_vectorize", "get_bytes", "get_extent", "get_max_factor", "int_of", "max_threads_per_block",
    "suggest_threads_per_block",
]  # fmt: skip

_THREADS = {"cuda": 1024, "rocm": 256, "metal": 256, "opencl": 256}


def max_threads_per_block(target: Target) -> int:
    """Thread limit of a block on the target; 1024 on cuda and 256 elsewhere if the target does not say."""
    for name in ("max_threads_per_block", "max_num_threads"):
        value = target.attrs.get(name)
        if value is not None:
            return int(value)
    return 1024 if target.kind.name == "cuda" else 256


def suggest_threads_per_block(
    target: Target, loops: Sequence[For], max_threads_for_dynamic_loop: int = 32
) -> list[int]:
    """Thread counts of the loops, outermost first: powers of two, together no more than the target allows.

    Loops of unknown extent come after the others and take at most ``max_threads_for_dynamic_loop`` each; what is left
    then goes to the first of them.
    """
    left = _THREADS.get(target.kind.name, 64)
    given: list[int] = [0] * len(loops)
    unknown = [i for i, loop in enumerate(loops) if not isinstance(loop.extent, IntImm)]
    known = [i for i in range(len(loops)) if i not in unknown]
    for index in known + unknown:
        extent = loops[index].extent
        most = const_int(extent, max_threads_for_dynamic_loop)
        given[index] = _power_of_two(min(most, left))
        left //= given[index]
    if unknown:
        given[unknown[0]] *= left
    return given


def _power_of_two(most: int) -> int:
    return 1 << (max(most, 1).bit_length() - 1)


def int_of(expr: ExprLike) -> int | None:
    """The value of a constant expression; None for any other."""
    return const_int(expr)


def get_bytes(dtype: str) -> int:
    """Bytes of one element; an element of less than a byte takes a whole one."""
    return max(bits(dtype) // 8, 1)


def get_extent(sch: Schedule, loop_rv: LoopRV) -> PrimExpr | int:
    """The extent of a loop: an ``int`` when it is known."""
    extent = sch.get(loop_rv).extent
    return const_int(extent, extent)


def get_max_factor(n: PrimExpr | int, factors: Sequence[int]) -> int:
    """The largest of ``factors`` that divides ``n``; 1 if none does."""
    number = const_int(n, n)
    return max((f for f in factors if number % f == 0), default=1)


def auto_vectorize(sch: Schedule, loop: LoopRV, max_vec: int) -> None:
    """Vectorize the innermost part of ``loop`` by the largest power of two up to ``max_vec`` that divides it.

    A loop that is no longer than that stays one loop, a unit loop included.
    """
    extent = sch.get(loop).extent
    if not isinstance(extent, IntImm):
        return
    if extent.value in (1, 2, 4, 8, 16) and extent.value <= max_vec:
        sch.vectorize(loop)
        return
    width = max((w for w in (2, 4, 8, 16) if w <= max_vec and extent.value % w == 0), default=1)
    if width > 1:
        sch.vectorize(sch.split(loop, factors=[None, width])[-1])
