"""The field's default pipeline of CPUs: operators become fused loops as they are written, without schedules.

``relaxish.build`` without a pipeline uses :func:`relaxish.get_default_pipeline`, which is much faster.
"""

from __future__ import annotations

from ...ir.transform import Pass
from ...target import Target
from ..common import stages
from ..common.libraries import library_passes

__all__ = [
    "dataflow_lower_passes",
    "finalize_passes",
    "get_default_pipeline",
    "legalize_passes",
    "library_dispatch_passes",
]


def library_dispatch_passes(target: str | Target) -> list[Pass]:
    """Passes that hand operators to the target's libraries; all other kernels are generated."""
    return library_passes(stages.as_target(target))


def legalize_passes(target: str | Target) -> list[Pass]:
    """From operators to fused kernels."""
    return stages.legalize()


def dataflow_lower_passes(target: str | Target) -> list[Pass]:
    """From dataflow form to explicit allocation."""
    return stages.dataflow_lower()


def finalize_passes(target: str | Target) -> list[Pass]:
    """From explicit allocation to what the virtual machine runs."""
    return stages.finalize(cuda_graph=False)


def get_default_pipeline(target: str | Target) -> Pass:
    """All stages in order, as one pass."""
    return stages.pipeline_of(target, library_dispatch_passes, legalize_passes, dataflow_lower_passes, finalize_passes)
