"""Rules that remove blocks: inlining and user-given rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...support.log import get_logger
from ...tir import Schedule
from ...tir.schedule import BlockRV, ScheduleError
from ...tir.stmt import Block
from ..analysis import blocks as ba
from ..analysis.blocks import Place
from .schedule_rule import ScheduleRule

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["ApplyCustomRule", "AutoInline", "InlineConstantScalars"]

_log = get_logger("meta_schedule")


class ApplyCustomRule(ScheduleRule):
    """Runs the packed function ``meta_schedule.<target key>.<name>`` for blocks annotated ``schedule_rule=<name>``.

    A block whose rule is not registered loses the annotation, so that the other rules may schedule it.
    """

    def __init__(self) -> None:
        self._target: Any = None

    def _initialize_with_tune_context(self, context: Task) -> None:
        if context.target is None:
            raise ValueError("ApplyCustomRule needs a target in the tune context")
        self._target = context.target

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        from ...runtime.registry import get_global_func

        name = ba.annotation(sch.get(block), "schedule_rule")
        if name in (None, "None"):
            return [sch]
        for key in self._target.keys:
            func = get_global_func(f"meta_schedule.{key}.{name}", allow_missing=True)
            if func is None:
                continue
            result = func(sch, block)
            if result is None:
                raise ValueError(f"custom schedule rule {name!r} for {key} returned nothing")
            return list(result) if isinstance(result, (list, tuple)) else [result]
        _log.warning(
            "block %s asks for the schedule rule %r, but none of %s is registered; the other rules take it",
            sch.get(block).name_hint,
            name,
            ", ".join(f"meta_schedule.{key}.{name}" for key in self._target.keys),
        )
        sch.unannotate(block, "schedule_rule")
        return [sch]


class InlineConstantScalars(ScheduleRule):
    """Inlines blocks that only produce a zero-dimensional constant."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        node = sch.get(block)
        if not node.reads and len(node.writes) == 1 and not node.writes[0].buffer.shape and ba.consumers(sch, block):
            sch.compute_inline(block)
        return [sch]


class AutoInline(ScheduleRule):
    """Inlines element-wise blocks into their consumers, or into their only producer.

    The ``disallow``/``require`` conditions exclude costly or irregular blocks; they do not apply where the whole function
    is element-wise, since then recomputation pays for fusing everything. Before and after::

        for i in range(64): B[i] = A[i] + 1.0
        for i in range(64): C[i] = T.exp(B[i])      ->      for i in range(64): C[i] = T.exp(A[i] + 1.0)

    """

    def __init__(
        self,
        into_producer: bool,
        into_consumer: bool,
        inline_const_tensor: bool,
        disallow_if_then_else: bool,
        require_injective: bool,
        require_ordered: bool,
        disallow_op: Sequence[str] | None = None,
    ) -> None:
        self.into_producer = into_producer
        self.into_consumer = into_consumer
        self.inline_const_tensor = inline_const_tensor
        self.disallow_if_then_else = disallow_if_then_else
        self.require_injective = require_injective
        self.require_ordered = require_ordered
        self.disallow_op = [getattr(op, "name", op) for op in (disallow_op or [])]

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """See the class."""
        kind = self._check(sch, block)
        if kind == "consumer":
            sch.compute_inline(block)
        elif kind == "producer":
            sch.reverse_compute_inline(block)
        return [sch]

    def _check(self, sch: Schedule, block_rv: BlockRV) -> str:
        block = sch.get(block_rv)
        if len(block.writes) != 1:
            return ""
        func, place = ba.enclosing(sch, block)
        if place.scope is None:
            return ""
        if (
            self.inline_const_tensor
            and not block.reads
            and ba.consumers(sch, block_rv)
            and can_inline(sch, block_rv, "compute_inline")
        ):
            return "consumer"
        if not ba.is_spatial_function(func) and not self._regular(block, place):
            return ""
        if ba.annotation(block, "meta_schedule.inline_rule") == "disable":
            return ""
        if self.into_consumer and ba.consumers(sch, block_rv) and can_inline(sch, block_rv, "compute_inline"):
            return "consumer"
        if self.into_producer:
            producers = ba.producers(sch, block_rv)
            if len(producers) == 1:
                complete = ba.is_spatial(producers[0])
                tensorized = ba.annotation(producers[0], "meta_schedule.auto_tensorize") is not None
                if complete and not tensorized and can_inline(sch, block_rv, "reverse_compute_inline"):
                    return "producer"
        return ""

    def _regular(self, block: Block, place: Place) -> bool:
        if self.disallow_op and ba.has_op(place.realize, self.disallow_op):
            return False
        if self.disallow_if_then_else and ba.has_if_then_else(place.realize):
            return False
        if self.require_injective or self.require_ordered:
            for read in block.reads:
                _, _, injective, ordered, _, _ = ba.read_write_pattern(read, block.writes[0])
                if (self.require_injective and not injective) or (self.require_ordered and not ordered):
                    return False
        return True


def can_inline(sch: Schedule, block: BlockRV, method: str) -> bool:
    """Whether a primitive would accept the block; found out on a copy, so that the schedule stays as it is."""
    try:
        getattr(sch.copy(), method)(block)
    except ScheduleError:
        return False
    return True
