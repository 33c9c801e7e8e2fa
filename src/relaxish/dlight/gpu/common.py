"""Shared parts of the GPU rules: when they apply, the form of a reduction with its epilogue, and requests to unroll."""

from __future__ import annotations


from ...target import Target
from ...tir import ForKind, PrimFunc
from ...tir.schedule import Schedule
from ...tir.schedule.rv import BlockRV, LoopRV
from ..analysis import BlockInfo, normalize_nested, normalize_prim_func
from ..base import ScheduleRule, try_inline_contiguous_spatial

__all__ = [
    "GPUScheduleRule",
    "bind_plainly",
    "compute_capability",
    "reduction_and_epilogue",
    "unroll_explicitly",
]


class GPUScheduleRule(ScheduleRule):
    """A rule for targets with GPU threads."""

    def is_target_available(self, target: Target) -> bool:
        """Whether the target is a GPU."""
        return "gpu" in target.keys

    def fits(self, func: PrimFunc, target: Target) -> bool:
        """Whether ``func`` is a tensor program and the target a GPU."""
        return isinstance(func, PrimFunc) and self.is_target_available(target)


def compute_capability(target: Target) -> int:
    """80 for ``sm_80``; 0 for a target that does not say."""
    digits = "".join(ch for ch in str(target.attrs.get("arch", "")) if ch.isdigit())
    return int(digits or 0)


def reduction_and_epilogue(sch: Schedule, nested: bool = False) -> tuple[BlockInfo, BlockInfo | None] | None:
    """The one block that is left after inlining, and the injective one that follows it, if there is one.

    None for a function that is not of that form. Spatial blocks have been inlined into them in either case. With
    ``nested`` they may be those inside of a block that has rows of thread blocks to itself.
    """
    infos = try_inline_contiguous_spatial(sch, normalize_nested(sch) if nested else normalize_prim_func(sch))
    if not infos or len(infos) > 2:
        return None
    if len(infos) == 2 and not infos[1].is_injective():
        return None
    return infos[0], infos[1] if len(infos) == 2 else None


def unroll_explicitly(sch: Schedule, loop: LoopRV, depth: int) -> None:
    """Ask the code generator to unroll what is inside ``loop`` up to ``depth`` steps."""
    sch.annotate(loop, ann_key="pragma_auto_unroll_max_step", ann_val=depth)
    sch.annotate(loop, ann_key="pragma_unroll_explicit", ann_val=1)


def bind_plainly(sch: Schedule, rv: BlockRV, threads: int) -> None:
    """Bind the loops of a block that was not merged into the product: one thread for each element, if all are serial."""
    loops = sch.get_loops(rv)
    if not loops or any(sch.get(loop).kind != ForKind.SERIAL for loop in loops):
        return
    bx, tx = sch.split(sch.fuse(*loops), factors=[None, threads])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
