"""Description of an attention: shapes, masks, scale, and strides of its tensors in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....ir.expr import ExprLike, PrimExpr
from ....relax.scalars import const_int

__all__ = ["AttentionProblem", "Bias", "Operand", "is_multiple"]


def is_multiple(value: ExprLike, of: int) -> bool:
    """Whether a size is a constant that can be divided by ``of``."""
    number = const_int(value)
    return number is not None and number % of == 0


@dataclass(frozen=True)
class Operand:
    """A tensor seen as ``[batch, row, head, column]``, columns side by side.

    Element ``(b, r, h, c)`` is number ``offset + b * batch + r * row + h * head + c`` of a buffer of shape ``shape``:
    transposed tensors and slices of larger ones are read where they are.
    """

    shape: tuple[Any, ...]
    batch: Any
    row: Any
    head: Any
    offset: Any = 0

    @staticmethod
    def of_shape(shape: tuple[Any, ...]) -> Operand:
        """A tensor that really has the axes batch, row, head, column."""
        _, rows, heads, columns = shape
        return Operand(tuple(shape), rows * heads * columns, heads * columns, columns)


@dataclass(frozen=True)
class Bias:
    """Bias added to scores ``(b, h, row, column)``; a stride of 0 repeats one element along the axis."""

    shape: tuple[Any, ...]
    dtype: str
    batch: Any
    head: Any
    row: Any
    column: Any
    offset: Any = 0

    @staticmethod
    def of_shape(shape: tuple[Any, ...], dtype: str) -> Bias:
        """A tensor with the axes batch, head, row, column, where axes of one element are repeated."""
        strides: list[Any] = []
        step: Any = 1
        for extent in reversed(shape):
            strides.insert(0, 0 if const_int(extent) == 1 else step)
            step = step * extent
        return Bias(tuple(shape), dtype, *strides)


@dataclass(frozen=True)
class AttentionProblem:
    """``out = softmax(q k^T * scale + bias) v`` for each batch and head; all that decides the kernel but its tiles.

    ``group`` query heads share a key head. ``causal`` names the corner that the triangle is aligned to. With ``starts``,
    the length of two more inputs, sequences lie one behind the other in a single batch: sequence ``b`` has the queries
    (and keys) from ``starts_q[b]`` to before ``starts_q[b + 1]``, and there are at most ``queries`` of them. Of a causal
    attention with a ``window``, a query sees no more than that many keys: those next to the diagonal.
    """

    dtype: str
    batch: Any
    queries: Any
    keys: Any
    kv_heads: Any
    group: int
    size: int
    value_size: int
    scale: float
    q: Operand
    k: Operand
    v: Operand
    out: Operand
    bias: Bias | None = None
    causal: str | None = None
    starts: Any = None
    window: int | None = None

    @property
    def rows(self) -> PrimExpr | int:
        """Rows of queries that meet the same keys: those of all heads of a group, head by head within a position."""
        return self.queries * self.group
