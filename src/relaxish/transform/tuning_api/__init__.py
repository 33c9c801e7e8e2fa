"""Pass-level tuning: choices between transformations of a module, traces of what was chosen, and their evaluation."""

from __future__ import annotations

from typing import Any

from ...support import aliases
from .default_functions import (
    default_consider_eval_passes,
    default_generate_candidate,
    select_best_candidate,
)
from .primitives import Choice, Knob, Trace, deepcopy_irmodule, get_trace

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
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


def __getattr__(name: str) -> Any:
    # Measuring and remembering stand above this layer; the root package says where.
    value = aliases.attribute(__name__, name)
    globals()[name] = value
    return value
