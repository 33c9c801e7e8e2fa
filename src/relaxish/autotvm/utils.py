"""Small helpers under the names that templates import them by."""

from __future__ import annotations

from typing import Any

from ..ir.expr import ExprLike
from ..tir import IntImm
from .task.subspace import get_factors, get_pow2s
from .tuner.callback import format_si_prefix
from .tuner.metric import get_rank
from .tuner.model_based_tuner import submodular_pick

__all__ = [
    "EmptyContext", "format_si_prefix", "get_const_int", "get_const_tuple", "get_factors", "get_pow2s", "get_rank",
    "sample_ints", "submodular_pick",
]  # fmt: skip


class EmptyContext:
    """A scope in which nothing changes."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def get_const_int(expr: ExprLike) -> int:
    """A constant as an int. Raises ValueError for an expression that is none."""
    match expr:
        case int():
            return expr
        case IntImm():
            return int(expr.value)
    from ..arith import Analyzer

    found = Analyzer().simplify(expr)
    if not isinstance(found, IntImm):
        raise ValueError(f"Expect value to be constant int, got {expr}")
    return int(found.value)


def get_const_tuple(in_tuple: Any) -> tuple[Any, ...]:
    """Constants as ints; variables stay. Raises ValueError for other expressions."""
    from ..tir import Var

    return tuple(x if isinstance(x, Var) else get_const_int(x) for x in in_tuple)


def sample_ints(low: int, high: int, m: int) -> list[int]:
    """``m`` different numbers from ``low`` to below ``high``."""
    import random

    return random.sample(range(low, high), m)
