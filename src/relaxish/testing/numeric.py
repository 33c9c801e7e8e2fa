"""Comparisons of expressions and gradients by value."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..arith import Analyzer
from ..ir.expr import PrimExpr, as_expr
from ..ir.structural import structural_equal
from ..tir import Var
from ..tir.functor import substitute

__all__ = ["assert_prim_expr_equal", "check_bool_expr_is_true", "check_numerical_grads", "echo", "nop"]

_T = TypeVar("_T")


def assert_prim_expr_equal(lhs: PrimExpr, rhs: PrimExpr) -> None:
    """Require two expressions to be equal after simplification.

    >>> from relaxish import tir
    >>> x = tir.Var("x"); assert_prim_expr_equal(x + x, x * 2)
    """
    analyzer = Analyzer()
    lhs, rhs = as_expr(lhs), as_expr(rhs)
    if not structural_equal(lhs, rhs) and not analyzer.can_prove_equal(lhs, rhs):
        raise ValueError(f"{lhs} and {rhs} are not equal")


def check_bool_expr_is_true(bool_expr: PrimExpr, vranges: Mapping[Var, Any], cond: PrimExpr | None = None) -> None:
    """Require a condition to hold at every point of a box (where ``cond`` holds), by trying all points."""
    variables = list(vranges)
    spans = [range(int(r.min), int(r.min) + int(r.extent)) for r in vranges.values()]
    analyzer = Analyzer()
    for point in itertools.product(*spans):
        values = dict(zip(variables, point, strict=True))
        if cond is not None and not bool(analyzer.simplify(substitute(cond, values))):
            continue
        if not bool(analyzer.simplify(substitute(bool_expr, values))):
            raise AssertionError(f"The expression {bool_expr} is not true at {values} (given {cond})")


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Sequence[np.ndarray[Any, Any]] | Mapping[str, np.ndarray[Any, Any]],
    grad_values: Sequence[np.ndarray[Any, Any]] | Mapping[str, np.ndarray[Any, Any]],
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Compare gradients of a scalar function with central differences at some elements of every input.

    Raises AssertionError where they differ by more than ``atol + rtol * |difference quotient|``.
    """
    names = list(input_values) if isinstance(input_values, Mapping) else list(range(len(input_values)))
    inputs: Any = input_values
    grads: Any = grad_values

    def value(name: int | str, changed: np.ndarray[Any, Any]) -> float:
        if isinstance(inputs, Mapping):
            return float(np.sum(np.asarray(function(**{**inputs, name: changed}), dtype="float64")))
        return float(
            np.sum(np.asarray(function(*[changed if i == name else x for i, x in enumerate(inputs)]), dtype="float64"))
        )

    for name in names:
        x, grad = inputs[name], grads[name]
        if x.shape != grad.shape:
            raise AssertionError(f"gradient of input {name} has shape {grad.shape}, the input {x.shape}")
        for flat in np.random.default_rng(0).permutation(x.size)[:100]:
            place = np.unravel_index(flat, x.shape)
            low, high = x.copy(), x.copy()
            low[place] -= delta
            high[place] += delta
            slope = (value(name, high) - value(name, low)) / (2 * delta)
            if abs(slope - float(grad[place])) > atol + rtol * abs(slope):
                raise AssertionError(f"gradient of input {name} at {place}: {grad[place]}, numerically {slope}")


def echo(value: _T) -> _T:
    """The argument, as a runtime function that returns what it is given."""
    return value


def nop(*_: Any) -> None:
    """A function that takes anything and does nothing."""
