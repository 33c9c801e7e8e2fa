"""The rule interface, the pass that applies rules, and the steps that rules share."""

from __future__ import annotations

from ...support.entry_points import lazy_package as _lazy_package
from .inlining import ILLEGAL, try_inline, try_inline_contiguous_spatial
from .loops import (
    auto_vectorize,
    get_bytes,
    get_extent,
    get_max_factor,
    int_of,
    max_threads_per_block,
    suggest_threads_per_block,
)
from .schedule_rule import ScheduleRule
from .transform import ApplyDefaultSchedule

__all__ = [
    "ILLEGAL", "ApplyDefaultSchedule", "ScheduleRule", "auto_vectorize", "get_bytes", "get_extent", "get_max_factor",
    "int_of", "max_threads_per_block", "suggest_threads_per_block", "try_inline", "try_inline_contiguous_spatial",
]  # fmt: skip

# The analyses stand above the helpers of this package; scripts import them from here as well.
__getattr__, __dir__ = _lazy_package(globals())
