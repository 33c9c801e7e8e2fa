"""Pass-level tuning: choices between transformations of a module, traces of what was chosen, and their evaluation."""

from __future__ import annotations

from ...support.entry_points import lazy_package
from .default_functions import (
    default_consider_eval_passes,
    default_generate_candidate,
    select_best_candidate,
)
from .primitives import Choice, Knob, Trace, deepcopy_irmodule, get_trace

__all__ = [
    "Choice",
    "Database",
    "JSONDatabase",
    "Knob",
    "Trace",
    "TuningRecord",
    "deepcopy_irmodule",
    "default_consider_eval_passes",
    "default_evaluate",
    "default_generate_candidate",
    "get_trace",
    "select_best_candidate",
]

__getattr__, __dir__ = lazy_package(globals())  # measuring and remembering stand above this layer
