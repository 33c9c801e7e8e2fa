"""The default pipeline of AMD GPUs: that of GPUs without passes of their own."""

from __future__ import annotations

from ..gpu_generic.pipeline import (
    dataflow_lower_passes,
    finalize_passes,
    get_default_pipeline,
    legalize_passes,
    library_dispatch_passes,
)

__all__ = [
    "dataflow_lower_passes",
    "finalize_passes",
    "get_default_pipeline",
    "legalize_passes",
    "library_dispatch_passes",
]
