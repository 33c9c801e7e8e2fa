"""Masks that are known when compiling: most of those that exporters write out hide nothing, or what is later.

A model exported for full sequences computes its mask from ``arange``s and comparisons. Evaluated here, a bias of zeros is
left out, and one that hides the keys behind the diagonal becomes the kernel's own causal mask, which skips them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ....interp.graph import Interpreter
from ....ir.functor import pre_order_visit
from ....ir.module import IRModule
from ....ir.op import Op
from ....relax.expr import Call, Constant, Var
from ....relax.scalars import const_int
from ....relax.struct_info import TensorStructInfo
from .views import Lookup, View

__all__ = ["known_bias", "mask_of"]

_OPERATORS = frozenset(
    f"relax.{name}" for name in (
        "add arange astype bitwise_and bitwise_not bitwise_or broadcast_to cumsum equal expand_dims full full_like greater "
        "greater_equal less less_equal logical_and logical_not logical_or maximum minimum multiply negative not_equal ones "
        "ones_like permute_dims reshape squeeze strided_slice subtract tril triu where zeros zeros_like"
    ).split()
)  # fmt: skip
_LARGEST = 2**22  # elements that are worth computing while compiling
_HIDDEN = -1e4


def known_bias(bias: View, lookup: Lookup) -> np.ndarray[Any, Any] | None:
    """The bias of axes batch, head, row and key; axes it is repeated along have one element. None if not known."""
    array = _Values(lookup).of(bias.source)
    if array is None or not all(isinstance(n, int) for n in (*bias.shape, *bias.strides, bias.offset)):
        return None
    values = np.ascontiguousarray(array).reshape(-1)[bias.offset :]
    shape = [1 if step == 0 else extent for extent, step in zip(bias.shape, bias.strides, strict=True)]
    found: np.ndarray[Any, Any] = as_strided(values, shape, [s * values.itemsize for s in bias.strides])
    return found


def mask_of(bias: np.ndarray[Any, Any], rows: int, keys: int) -> str | None:
    """``""`` for a bias that changes nothing, the name of a causal mask that does the same, or None."""
    wide = np.asarray(bias, "float64")
    if not wide.any():
        return ""
    if wide.shape[2:] != (rows, keys):
        return None
    for name, ahead in (("TopLeft", 0), ("BottomRight", keys - rows)):
        seen = np.tril(np.ones((rows, keys), bool), ahead)
        if ahead >= 0 and (wide[..., seen] == 0).all() and (wide[..., ~seen] <= _HIDDEN).all():
            return name
    return None


class _Values:
    """Evaluates what depends on constants only."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.interpreter = Interpreter(IRModule({}))
        self.arrays: dict[Any, Any] = {}

    def of(self, expr: Any) -> Any:
        """The array an expression stands for, or None."""
        if isinstance(expr, Constant):
            return expr.data.numpy()
        if not isinstance(expr, Var):
            return self._call(expr)
        if expr not in self.arrays:
            bound = self.lookup(expr)
            self.arrays[expr] = None if bound is None else self.of(bound)
        return self.arrays[expr]

    def _call(self, call: Any) -> Any:
        if not isinstance(call, Call) or not isinstance(call.op, Op) or call.op.name not in _OPERATORS:
            return None
        if not _is_small(call.struct_info):
            return None
        inputs: dict[Any, Any] = {}

        def look(node: Any) -> bool:
            if isinstance(node, Var):
                inputs[node] = self.of(node)
            return True

        for arg in call.args:
            pre_order_visit(arg, look)
        if any(value is None for value in inputs.values()):
            return None
        return self.interpreter.eval(call, inputs, {})


def _is_small(info: Any) -> bool:
    dims = info.dims() if isinstance(info, TensorStructInfo) else None
    total = 1
    for extent in dims or ():
        total *= _LARGEST if const_int(extent) is None else const_int(extent) or 0
    return dims is not None and total < _LARGEST
