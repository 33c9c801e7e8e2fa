"""Schedules of loop programs: state, primitives, traces and sampling."""

from __future__ import annotations

from ...support.entry_points import lazy_package as _lazy_package
from . import primitives as _primitives  # enters all instruction kinds in the table
from .errors import ScheduleError
from .instruction import Instruction, InstructionKind, Step, kind_table
from .rv import RAND_VAR_TYPE, BlockRV, ExprRV, LoopRV
from .schedule import Schedule
from .sref import BlockDependenceInfo, BlockScope, DepKind, Dependency, StmtSRef
from .state import CachedFlags, ScheduleDebugMask, ScheduleState
from .trace import Trace

__all__ = [
    "RAND_VAR_TYPE",
    "BlockDependenceInfo",
    "BlockRV",
    "BlockScope",
    "CachedFlags",
    "DepKind",
    "Dependency",
    "ExprRV",
    "Instruction",
    "InstructionKind",
    "LoopRV",
    "Schedule",
    "ScheduleDebugMask",
    "ScheduleError",
    "ScheduleState",
    "Step",
    "StmtSRef",
    "Trace",
    "kind_table",
]

del _primitives

__getattr__, __dir__ = _lazy_package(globals())  # analysis and testing load on first use
