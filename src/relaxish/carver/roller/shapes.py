"""Region of every tensor that a tile of the result needs, read off a function's blocks.

Lengths are numbers or NumPy columns alike, so that one pass over the blocks measures one tile or thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.affine import affine
from ...arith.functor import uses_var
from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from ...ir.prim import Add, Cast, FloorDiv, FloorMod, IntImm, IterVar, Max, Min, Mul, Sub, Var, const_int
from ...support.sequences import as_list
from ...tir import Block, BlockRealize, PrimFunc
from ...tir.stmt import BufferRegion, Stmt

__all__ = ["Access", "Axis", "Length", "Stage", "read_stages"]

#: A number or a column of numbers.
Length = Any
_Measure = Callable[[Sequence[Length]], Length]


@dataclass(frozen=True)
class Axis:
    """An iterator of a block."""

    name: str
    extent: int
    reduction: bool


@dataclass(frozen=True)
class Access:
    """Region of a tensor that a block reads or writes: for each dimension, its length from the lengths of the block's
    axes.

    ``steps``: for each dimension how far one step of an axis moves it (axis number -> step); None if not linear.
    """

    tensor: str
    dims: tuple[_Measure, ...]
    steps: tuple[dict[int, int] | None, ...]
    shape: tuple[int, ...]
    dtype: str

    def lengths(self, axes: Sequence[Length], least: Callable[[Any, Any], Any] = np.minimum) -> list[Length]:
        """The part that tiles of these lengths need, never more than there is; ``least``: the minimum of two."""
        return [least(measure(axes), extent) for measure, extent in zip(self.dims, self.shape, strict=True)]


def _is_column(lengths: Sequence[Length]) -> bool:
    return any(isinstance(n, np.ndarray) for n in lengths)


@dataclass(frozen=True)
class Stage:
    """A block: its axes, what it reads (without what it accumulates into) and writes."""

    name: str
    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    block: Any

    @property
    def reduction(self) -> bool:
        """Whether the block reduces."""
        return any(axis.reduction for axis in self.axes)

    @property
    def spatial(self) -> list[int]:
        """Numbers of the axes that are not reduced."""
        return [i for i, axis in enumerate(self.axes) if not axis.reduction]


def read_stages(func: PrimFunc, opt_shapes: Mapping[str, int] | None = None) -> list[Stage]:
    """The function's blocks in program order; ``opt_shapes`` gives values to symbolic extents by name.

    Raises CheckValueError for blocks within blocks, and for extents that are not known.
    """
    body = func.body
    if not isinstance(body, BlockRealize):
        raise CheckValueError(
            f"carver reads functions made of blocks, but the body of this one is {type(body).__name__}: "
            "make it with te.create_prim_func or T.block, and ask before lowering"
        )
    values = dict(opt_shapes or {})
    return [_stage(block, values) for block in _blocks(body.block.body)]


def _blocks(stmt: Stmt) -> list[Block]:
    if isinstance(stmt, BlockRealize):
        if _blocks(stmt.block.body):
            raise CheckValueError(
                f"block {stmt.block.name_hint} holds blocks: carver reads functions before they are scheduled"
            )
        return [stmt.block]
    found: list[Block] = []
    for name in ("seq", "body", "then_case", "else_case"):
        child = getattr(stmt, name, None)
        for item in as_list(child):
            if item is not None and not isinstance(item, (int, str)):
                found += _blocks(item)
    return found


def _number(expr: PrimExpr, values: Mapping[str, int], what: str) -> int:
    match expr:
        case IntImm():
            return int(expr.value)
        case Var() if expr.name in values:
            return int(values[expr.name])
    raise CheckValueError(
        f"{what} is {expr}, which is not known: specialize the function, or say what to expect with the tag "
        f'opt_shapes, as in tags={{"opt_shapes": {{"{expr}": 1024}}}}'
    )


def _stage(block: Block, values: Mapping[str, int]) -> Stage:
    axes, numbers = [], {}
    for i, iter_var in enumerate(block.iter_vars):
        assert iter_var.dom is not None, "block iterators have domains"
        extent = _number(iter_var.dom.extent, values, f"the extent of {iter_var.var.name} in block {block.name_hint}")
        if iter_var.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            raise CheckValueError(
                f"axis {iter_var.var.name} of block {block.name_hint} is neither spatial nor a reduction; "
                "carver has nothing to say about such blocks"
            )
        axes.append(Axis(iter_var.var.name, extent, iter_var.iter_type == IterVar.CommReduce))
        numbers[iter_var.var] = i
    written = [w.buffer for w in block.writes]
    reads = tuple(_access(r, numbers, axes, values) for r in block.reads if not any(r.buffer is w for w in written))
    return Stage(
        block.name_hint, tuple(axes), reads, tuple(_access(w, numbers, axes, values) for w in block.writes), block
    )


def _access(region: BufferRegion, numbers: dict[Var, int], axes: list[Axis], values: Mapping[str, int]) -> Access:
    buffer = region.buffer
    shape = tuple(_number(n, values, f"a dimension of {buffer.name}") for n in buffer.shape)
    dims, steps = [], []
    for dim, whole in zip(region.region, shape, strict=True):
        each = const_int(dim.extent, whole)
        linear = _linear(dim.min, numbers)
        steps.append(linear)
        if linear is not None:
            dims.append(_linear_length(linear, each))
        else:
            dims.append(_bounded_length(dim.min, each, whole, numbers))
    return Access(buffer.name, tuple(dims), tuple(steps), shape, str(buffer.dtype))


def _linear(expr: PrimExpr, numbers: dict[Var, int]) -> dict[int, int] | None:
    """Axis -> factor of an index that is a sum of multiples of axes."""
    found = {}
    for term in affine(expr, digits=False).terms:
        if term.var in numbers:
            found[numbers[term.var]] = term.coef
        elif uses_var(term.var, numbers.__contains__):
            return None
    return found


def _linear_length(linear: dict[int, int], each: int) -> _Measure:
    terms = [(axis, abs(factor)) for axis, factor in linear.items()]

    def length(axes: Sequence[Length]) -> Length:
        total: Length = each
        for axis, factor in terms:
            total = total + factor * (axes[axis] - 1)
        return total

    return length


def _bounded_length(expr: PrimExpr, each: int, whole: int, numbers: dict[Var, int]) -> _Measure:
    """The length by interval arithmetic, with every axis starting at 0; all there is where that says nothing."""

    def length(axes: Sequence[Length]) -> Length:
        bounds = _bounds(expr, axes, numbers)
        if bounds is None:
            return whole + 0 * axes[0] if _is_column(axes) else whole
        return bounds[1] - bounds[0] + each

    return length


def _bounds(expr: PrimExpr, axes: Sequence[Length], numbers: dict[Var, int]) -> tuple[Length, Length] | None:
    match expr:
        case IntImm():
            return expr.value, expr.value
        case Var():
            return (0, axes[numbers[expr]] - 1) if expr in numbers else None
        case Cast():
            return _bounds(expr.value, axes, numbers)
    if not isinstance(expr, (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)):
        return None
    a, b = _bounds(expr.a, axes, numbers), _bounds(expr.b, axes, numbers)
    if a is None or b is None:
        return None
    match expr:
        case Add():
            return a[0] + b[0], a[1] + b[1]
        case Sub():
            return a[0] - b[1], a[1] - b[0]
        case Min() | Max():
            pick = np.minimum if isinstance(expr, Min) else np.maximum
            return pick(a[0], b[0]), pick(a[1], b[1])
    factor = const_int(expr.b, 0)
    if factor <= 0:
        return None
    match expr:
        case Mul():
            return a[0] * factor, a[1] * factor
        case FloorDiv():
            return a[0] // factor, a[1] // factor
    # Whoever starts at a multiple of the divisor and is short enough does not wrap around.
    return 0, np.minimum(a[1] - a[0], factor - 1)
