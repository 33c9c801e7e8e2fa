"""Candidates of search strategies."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir import Schedule
from ..arg_info import ArgInfo

__all__ = ["MeasureCandidate"]


class MeasureCandidate:
    """A schedule to be measured, with the arguments of its program."""

    def __init__(self, sch: Schedule, args_info: Sequence[ArgInfo] | None) -> None:
        self.sch = sch
        self.args_info = list(args_info or ())
        self.valid: bool | None = None
        self.predicted: float | None = None
        self.recorded = False
