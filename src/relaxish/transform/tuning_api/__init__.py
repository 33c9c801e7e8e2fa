"""Pass-level tuning: choices between transformations of a module, traces of what was chosen, and their evaluation."""

from __future__ import annotations

from .default_functions import (
    default_consider_eval_passes,
    default_generate_candidate,
    select_best_candidate,
)
from .primitives import Choice, Knob, Trace, get_trace

__all__ = [
    "Choice",
    "Knob",
    "Trace",
    "default_consider_eval_passes",
    "default_generate_candidate",
    "get_trace",
    "select_best_candidate",
]
