"""Masks that are known when compiling: most of those that exporters write out hide nothing, or what is later.

A model exported for full sequences computes its mask from ``arange``s and comparisons. Evaluated here, a bias of zeros is
left out, and one that hides the keys behind the diagonal becomes the kernel's own causal mask, which skips them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ....ir.expr import RelaxExpr
from ....ir.module import IRModule
from ....relax.analysis import free_vars
from ....relax.expr import (
    Call,
    Constant,
    DataflowBlock,
    Function,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    Var,
    VarBinding,
    is_call_of,
)
from ....relax.scalars import const_int
from ....relax.struct_info import TensorStructInfo, tensor_dims
from ....transform import FoldConstant, LegalizeOps
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
    array = _computed(bias.source, lookup)
    if array is None or not all(isinstance(n, int) for n in (*bias.shape, *bias.strides, bias.offset)):
        return None
    values = np.ascontiguousarray(array).reshape(-1)[bias.offset :]
    shape = [1 if step == 0 else extent for extent, step in zip(bias.shape, bias.strides, strict=True)]
    found: np.ndarray[Any, Any] = as_strided(values, shape, [s * values.itemsize for s in bias.strides])
    return found


def mask_of(bias: np.ndarray[Any, Any], rows: int, keys: int) -> tuple[str, int | None] | None:
    """The name of a causal mask that does the same as a bias, with its window if it has one.

    ``("", None)`` for a bias that changes nothing, None for one that is no mask.
    """
    wide = np.asarray(bias, "float64")
    if not wide.any():
        return "", None
    if wide.shape[2:] != (rows, keys):
        return None
    for name, ahead in (("TopLeft", 0), ("BottomRight", keys - rows)):
        # The row that could see the most keys tells how wide the window is.
        row = min(rows, keys - ahead) - 1
        window = int(np.count_nonzero(wide[0, 0, row] == 0)) if row >= 0 else 0
        if ahead < 0 or window == 0:
            continue
        seen = np.triu(np.tril(np.ones((rows, keys), bool), ahead), ahead - window + 1)
        if (wide[..., seen] == 0).all() and (wide[..., ~seen] <= _HIDDEN).all():
            return name, window if window <= row + ahead else None
    return None


def _computed(source: RelaxExpr, lookup: Lookup) -> np.ndarray[Any, Any] | None:
    """The array that a tensor is, where it depends on constants only; else None."""
    bindings: dict[Any, Any] = {}
    if not _collect(source, lookup, bindings):
        return None
    if isinstance(source, Constant):
        return source.data.numpy()
    out = Var("out", source.struct_info)
    steps = [VarBinding(var, value) for var, value in bindings.items()]
    body = SeqExpr([DataflowBlock([*steps, VarBinding(out, source)])], out)
    func = Function([], body, source.struct_info, True, {"global_symbol": "mask"})
    folded = FoldConstant()(LegalizeOps()(IRModule({"mask": func})))["mask"].body
    values = {b.var: b.value for block in folded.blocks for b in block.bindings}
    found = values.get(folded.body, folded.body)
    return found.data.numpy() if isinstance(found, Constant) else None


def _collect(expr: RelaxExpr, lookup: Lookup, bindings: dict[Any, Any]) -> bool:
    """Note, in order, what the variables in ``expr`` are bound to; False where something is not known."""
    if isinstance(expr, Var):
        if expr in bindings:
            return True
        value = lookup(expr)
        if value is None or not _collect(value, lookup, bindings):
            return False
        bindings[expr] = value
        return True
    if not isinstance(expr, Call):
        return isinstance(expr, (Constant, ShapeExpr, PrimValue, Tuple)) and not free_vars(expr)
    known = is_call_of(expr, *_OPERATORS) and _is_small(expr.struct_info)
    return known and all(_collect(arg, lookup, bindings) for arg in expr.args)


def _is_small(info: TensorStructInfo) -> bool:
    dims = tensor_dims(info)
    total = 1
    for extent in dims or ():
        total *= _LARGEST if const_int(extent) is None else const_int(extent) or 0
    return dims is not None and total < _LARGEST
