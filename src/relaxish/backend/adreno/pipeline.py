"""The default pipeline of Adreno GPUs."""

from __future__ import annotations

from ... import dlight, transform
from ...ir.transform import Pass
from ...target import Target
from ..common import stages
from ..common.libraries import library_passes
from ..gpu_generic.pipeline import dataflow_lower_passes, finalize_passes

__all__ = [
    "dataflow_lower_passes",
    "finalize_passes",
    "get_default_pipeline",
    "legalize_passes",
    "library_dispatch_passes",
]


def library_dispatch_passes(target: str | Target) -> list[Pass]:
    """Offloading to CLML, if "clml" is among the target's keys or libraries, and what other libraries do."""
    made = stages.as_target(target)
    passes = library_passes(made)
    if "clml" not in made.keys or "clml" in made.libs:
        return passes
    from .clml import OpenCLMLOffLoad

    return [OpenCLMLOffLoad(), *passes]


def legalize_passes(target: str | Target) -> list[Pass]:
    """From operators to fused and scheduled kernels."""
    rules = [dlight.gpu.Reduction(), dlight.gpu.GeneralReduction(), dlight.gpu.Fallback()]
    return [
        transform.DecomposeOpsForInference(),
        transform.FoldConstant(),
        *stages.legalize(),
        transform.DeadCodeElimination(),
        stages.with_wide_sums(dlight.ApplyDefaultSchedule(*rules)),
    ]


def get_default_pipeline(target: str | Target) -> Pass:
    """All stages in order, as one pass."""
    return stages.pipeline_of(target, library_dispatch_passes, legalize_passes, dataflow_lower_passes, finalize_passes)
