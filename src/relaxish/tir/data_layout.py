"""Data layouts such as ``NCHW16c``: axes in memory order, upper case primal, lower case split with a factor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..arith import Analyzer
from ..ir import dtype as dt
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import PrimExpr, Range, as_expr, as_exprs
from ..ir.node import Node, field
from ..ir.prim import IterVar, Var, const
from ..ir.primops import floordiv, floormod

__all__ = ["BijectiveLayout", "Layout", "bijective_layout", "layout"]

_AXIS = re.compile(r"(\d*)([A-Za-z])")


def _parse(name: str) -> tuple[tuple[str, int], ...]:
    axes: list[tuple[str, int]] = []
    position = 0
    for match in _AXIS.finditer(name):
        if match.start() != position:
            raise CheckValueError(f"invalid layout {name!r} at position {position}")
        digits, letter = match.groups()
        if letter.isupper() and digits:
            raise CheckValueError(f"Invalid layout {name}: factor {digits} before the primal axis {letter}")
        if letter.islower() and (not digits or int(digits) == 0):
            raise CheckValueError(f"Invalid layout {name}: the split axis {letter} needs a factor")
        axes.append((letter, int(digits) if digits else -1))
        position = match.end()
    if position != len(name):
        raise CheckValueError(f"Invalid layout {name!r}")
    letters = [a for a, _ in axes]
    if len(set(letters)) != len(letters):
        raise CheckValueError(f"Invalid layout {name}: duplicate axis")
    for letter in letters:
        if letter.islower() and letter.upper() not in letters:
            raise CheckValueError(f"Invalid layout {name}: missing axis {letter.upper()}")
    return tuple(axes)


class Layout(Node):
    """A layout; ``len`` counts axes, indexing gives axis letters.

    >>> from relaxish import tir
    >>> tir.layout("NCHW16c").factor_of("C")
    16
    """

    name: str = field(role="attr")
    dtype: str = field(role="attr", default="int32")
    __extra_slots__ = ("_axes", "parts")
    if TYPE_CHECKING:
        parts: ClassVar[Any]
        _axes: ClassVar[Any]

    def __init__(self, name: str = "", dtype: str = "int32") -> None:
        self.name = "" if name == "__undef__" else name
        if not isinstance(dtype, str) or not dt.is_int(dtype):
            raise CheckTypeError(f"the type of a layout's axes is an integer, got {dtype}")
        self.dtype = dtype
        object.__setattr__(self, "parts", _parse(self.name))
        object.__setattr__(self, "_axes", None)

    def __len__(self) -> int:
        return len(self.parts)

    def __contains__(self, axis: str) -> bool:
        return len(axis) == 1 and any(a == axis for a, _ in self.parts)

    def __getitem__(self, index: int) -> str:
        if not -len(self.parts) <= index < len(self.parts):
            raise IndexError("Layout index out of range")
        return str(self.parts[index][0])

    def __str__(self) -> str:
        return self.name

    def index_of(self, axis: str) -> int:
        """Position of an axis, or -1."""
        return next((i for i, (a, _) in enumerate(self.parts) if a == axis), -1)

    def factor_of(self, axis: str) -> int:
        """The factor by which a primal axis is split (or of the split axis itself); -1 if it is not split."""
        return next((f for a, f in self.parts if a == axis.lower() and f > 0), -1)

    @property
    def axes(self) -> tuple[IterVar, ...]:
        """The axes as iteration variables: a primal one has an unknown extent, a split one its factor."""
        if self._axes is None:
            object.__setattr__(self, "_axes", tuple([self._axis(letter, factor) for letter, factor in self.parts]))
        made: tuple[IterVar, ...] = self._axes
        return made

    def _axis(self, letter: str, factor: int) -> IterVar:
        name = letter if letter.isupper() else f"{factor}{letter}"
        extent = Var(f"{letter}_shape", self.dtype) if letter.isupper() else const(factor, self.dtype)
        return IterVar(Range.from_min_extent(const(0, self.dtype), extent), Var(name, self.dtype), IterVar.DataPar)

    def primal_axes(self) -> tuple[str, ...]:
        """Upper-case axes in order."""
        return tuple(a for a, _ in self.parts if a.isupper())


class BijectiveLayout(Node):
    """A conversion between two layouts of the same axes."""

    src_layout: Layout
    dst_layout: Layout

    def __init__(self, src_layout: Layout | str, dst_layout: Layout | str) -> None:
        self.src_layout = src_layout if isinstance(src_layout, Layout) else Layout(src_layout)
        self.dst_layout = dst_layout if isinstance(dst_layout, Layout) else Layout(dst_layout)
        if set(self.src_layout.primal_axes()) != set(self.dst_layout.primal_axes()):
            raise CheckValueError(f"layouts {self.src_layout.name} and {self.dst_layout.name} have different axes")

    def forward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """Destination indices of source indices."""
        return _transform_index(as_exprs(index), self.src_layout, self.dst_layout)

    def backward_index(self, index: Sequence[Any]) -> list[PrimExpr]:
        """Source indices of destination indices."""
        return _transform_index(as_exprs(index), self.dst_layout, self.src_layout)

    def forward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """Destination shape of a source shape."""
        return _transform_shape(as_exprs(shape), self.src_layout, self.dst_layout)

    def backward_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """Source shape of a destination shape."""
        return _transform_shape(as_exprs(shape), self.dst_layout, self.src_layout)


def _primal_values(values: Sequence[PrimExpr], source: Layout, is_shape: bool) -> dict[str, PrimExpr]:
    if len(values) != len(source):
        raise CheckValueError(f"layout {source.name} has {len(source)} axes, got {len(values)} values")
    out: dict[str, PrimExpr] = {}
    for (axis, _), value in zip(source.parts, values):
        if axis.isupper():
            factor = source.factor_of(axis)
            out[axis] = value * factor if factor > 0 else value
    if not is_shape:
        for (axis, _), value in zip(source.parts, values):
            if axis.islower():
                out[axis.upper()] = out[axis.upper()] + value
    return out


def _transform_index(values: Sequence[PrimExpr], source: Layout, target: Layout) -> list[PrimExpr]:
    primal = _primal_values(values, source, is_shape=False)
    out = []
    for axis, factor in target.parts:
        value = primal[axis.upper()]
        if axis.isupper():
            split = target.factor_of(axis)
            out.append(floordiv(value, as_expr(split)) if split > 0 else value)
        else:
            out.append(floormod(value, as_expr(factor)))
    return out


def _transform_shape(values: Sequence[PrimExpr], source: Layout, target: Layout) -> list[PrimExpr]:
    primal = _primal_values(values, source, is_shape=True)
    out = []
    for axis, factor in target.parts:
        if axis.isupper():
            split = target.factor_of(axis)
            value = primal[axis]
            out.append(Analyzer().simplify(floordiv(value + (split - 1), as_expr(split))) if split > 0 else value)
        else:
            out.append(as_expr(factor))
    return out


def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """A layout from its text."""
    return Layout(layout_str, dtype)


def bijective_layout(src_layout: Layout | str, dst_layout: Layout | str) -> BijectiveLayout | None:
    """A conversion between two layouts; None if there is none.

    >>> from relaxish import tir
    >>> tir.bijective_layout("NCHW", "NHWC").forward_shape((1, 3, 8, 8))
    [1, 8, 8, 3]
    >>> tir.bijective_layout("NCHW", "NHW") is None
    True
    """
    ends = [item if isinstance(item, Layout) else Layout(item) for item in (src_layout, dst_layout)]
    if not all(ends) or set(ends[0].primal_axes()) != set(ends[1].primal_axes()):
        return None
    return BijectiveLayout(*ends)
