"""The default pipeline of NVIDIA GPUs."""

from __future__ import annotations

from ...ir.transform import Pass
from ...target import Target
from ..common import stages
from ..gpu_generic.pipeline import dataflow_lower_passes, legalize_passes, library_dispatch_passes
from .graph.passes import graph_passes

__all__ = [
    "dataflow_lower_passes",
    "finalize_passes",
    "get_default_pipeline",
    "graph_passes",
    "legalize_passes",
    "library_dispatch_passes",
]


def finalize_passes(target: str | Target) -> list[Pass]:
    """From explicit allocation to what the virtual machine runs, static parts as CUDA graphs."""
    return stages.finalize(cuda_graph=True)


def get_default_pipeline(target: str | Target) -> Pass:
    """All stages in order, as one pass."""
    return stages.pipeline_of(target, library_dispatch_passes, legalize_passes, dataflow_lower_passes, finalize_passes)
