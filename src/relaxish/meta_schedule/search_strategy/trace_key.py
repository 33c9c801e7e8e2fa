"""A hashable name for what a trace decides, the same before and after a round trip through a file."""

from __future__ import annotations

import json
from typing import Any

from ...tir.schedule import Trace

__all__ = ["trace_key"]


def trace_key(trace: Trace) -> str:
    """Instructions and decisions up to post-processing, without queries nobody uses."""
    kept: Any = trace.simplified(remove_postproc=True).as_json(remove_postproc=True)
    return json.dumps(kept, separators=(",", ":"))
