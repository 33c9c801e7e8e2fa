"""Evaluating scalar expressions on Python numbers or NumPy arrays: for tests, maps and vectorised search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import dtype as dt
from .expr import PrimExpr
from .prim import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, Call, Cast, Div, FloatImm, FloorDiv, FloorMod, IntImm, Let, Max, Min,
    Mod, Mul, Not, Or, Select, Sub, Var,
)  # fmt: skip

__all__ = ["evaluate"]

_Number = float | np.ndarray[Any, Any]


def _trunc(a: _Number, b: _Number) -> np.ndarray[Any, Any]:
    quotient = np.abs(a) // np.abs(b)
    return np.where((np.asarray(a) < 0) == (np.asarray(b) < 0), quotient, -quotient)


def _div(a: _Number, b: _Number) -> _Number:
    is_float = np.asarray(a).dtype.kind == "f"
    return a / b if is_float else _trunc(a, b)


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    Div: _div,
    Mod: lambda a, b: a - b * _trunc(a, b),
    FloorDiv: lambda a, b: a // b,
    FloorMod: lambda a, b: a % b,
    Min: np.minimum,
    Max: np.maximum,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    And: np.logical_and,
    Or: np.logical_or,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "tir.likely": lambda a: a,
    "tir.if_then_else": np.where,
    "tir.bitwise_and": np.bitwise_and,
    "tir.bitwise_or": np.bitwise_or,
    "tir.bitwise_xor": np.bitwise_xor,
    "tir.bitwise_not": np.bitwise_not,
    "tir.shift_left": np.left_shift,
    "tir.shift_right": np.right_shift,
    "tir.fabs": np.abs,
}


def evaluate(expr: PrimExpr, env: Mapping[Var, Any]) -> Any:
    """The value of ``expr`` with variables taken from ``env`` (numbers or arrays, which broadcast).

    Raises KeyError for a variable that ``env`` lacks and TypeError for a node that has no value here.
    """
    kind = type(expr)
    if kind is IntImm or kind is FloatImm:
        return expr.value  # type: ignore[attr-defined]
    if isinstance(expr, Var):
        return env[expr]
    fold = _BINARY.get(kind)
    if fold is not None:
        return fold(evaluate(expr.a, env), evaluate(expr.b, env))  # type: ignore[attr-defined]
    match expr:
        case Not():
            return np.logical_not(evaluate(expr.a, env))
        case Select():
            return np.where(*(evaluate(e, env) for e in (expr.condition, expr.true_value, expr.false_value)))
        case Cast():
            return np.asarray(evaluate(expr.value, env)).astype(dt.numpy_dtype(expr.dtype))
        case Broadcast():
            return evaluate(expr.value, env)
        case Let():
            return evaluate(expr.body, {**env, expr.var: evaluate(expr.value, env)})
        case Call() if getattr(expr.op, "name", None) in _CALLS:
            return _CALLS[expr.op.name](*(evaluate(a, env) for a in expr.args))
    raise TypeError(f"cannot evaluate a {kind.__name__}: {expr}")
