"""Passes that show how much on-chip memory a program takes."""

from __future__ import annotations

from ...ir.transform import Pass

__all__ = ["get_vtcm_compaction_passes"]


def get_vtcm_compaction_passes() -> list[Pass]:
    """The lowering passes after which allocations in vector memory have their final sizes, in order.

    >>> [p.info.name for p in get_vtcm_compaction_passes()][:2]
    ['tir.LowerInitBlock', 'tir.PlanAndUpdateBufferAllocationLocation']
    """
    from .. import transform

    return [
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(),
        transform.InjectSoftwarePipeline(),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.Simplify(),
        transform.VectorizeLoop(True),
        transform.StorageRewrite(),
    ]
