"""``T.alloc_var`` in programs: the name stands for the value, assigning to it stores."""

from __future__ import annotations

from typing import Any

from ... import tir
from ...script.ir_builder import tir as B
from ...script.parser.core.evaluator import NAMED_VALUES
from ...script.parser.tir.parser import ASSIGNED
from ...tir.transform.tiles.names import VAR

__all__: list[str] = []


def _is_variable(x: Any) -> bool:
    return isinstance(x, tir.Buffer) and x.scope() == VAR


def _value(x: Any) -> Any:
    """A variable as an expression; other things as they are."""
    return B.BufferLoad(x, [0]) if _is_variable(x) else x


def _assign(known: Any, value: Any) -> bool:
    """Store into a variable; whether it was one."""
    if not _is_variable(known) or isinstance(value, tir.Buffer):
        return False
    B.buffer_store(known, value, [0])
    return True


NAMED_VALUES[tir.Buffer] = _value
ASSIGNED.append(_assign)
