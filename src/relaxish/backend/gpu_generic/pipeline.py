"""The default pipeline of GPUs without passes of their own."""

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
    """Passes that hand operators to the target's libraries, and to special kernels for sampling, sorting and scans."""
    return [*library_passes(stages.as_target(target)), *stages.dispatch()]


def legalize_passes(target: str | Target) -> list[Pass]:
    """From operators to fused and scheduled kernels."""
    return [*stages.legalize(), *stages.gpu_schedules(stages.as_target(target))]


def dataflow_lower_passes(target: str | Target) -> list[Pass]:
    """From dataflow form to explicit allocation."""
    return stages.dataflow_lower()


def finalize_passes(target: str | Target) -> list[Pass]:
    """From explicit allocation to what the virtual machine runs."""
    return stages.finalize(cuda_graph=False)


def get_default_pipeline(target: str | Target) -> Pass:
    """All stages in order, as one pass."""
    return stages.pipeline_of(target, library_dispatch_passes, legalize_passes, dataflow_lower_passes, finalize_passes)
