"""A schedule as primitives, traces and texts of traces see it; they stand below the class that has them as methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ..index_map import IndexMap
from .instruction import Argument, Decision, InstructionKind
from .rv import BlockRV, LoopRV
from .sampling import LinearCongruentialEngine
from .sref import StmtSRef
from .state import ScheduleState


__all__ = ["Schedule"]


class Schedule(Protocol):
    """Program, generator of random numbers, and what random variables stand for."""

    rng: LinearCongruentialEngine

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        ...

    @property
    def state(self) -> ScheduleState:
        """The state with its reference tree."""
        ...

    @property
    def func_working_on(self) -> GlobalVar | None:
        """The function in which names are looked up by default."""
        ...

    def replace_state(self, state: ScheduleState) -> None:
        """Go on from another program; blocks and loops taken before are forgotten."""
        ...

    def sref(self, rv: BlockRV | LoopRV | StmtSRef) -> StmtSRef:
        """The live reference of a block or loop variable."""
        ...

    def value_of(self, expr: Argument) -> Any:
        """An expression over sampled integers with their values filled in."""
        ...

    def map_of(self, index_map: IndexMap) -> IndexMap:
        """An index map with the values of sampled integers filled in."""
        ...

    def _run(
        self, kind: InstructionKind | str, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision = None
    ) -> list[Any]:
        """Apply one instruction, record it, give its outputs as random variables."""
        ...
