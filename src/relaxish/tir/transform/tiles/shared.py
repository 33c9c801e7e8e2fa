"""Tiles in shared memory: rows one after the other, or by a layout that the program asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....ir.prim import BinaryOp, Call, Cast, IntImm, Select, Var, const
from ...buffer import Buffer
from ...index_map import IndexMap

__all__ = ["Order", "Shared", "index_values"]

Indices: TypeAlias = npt.NDArray[np.int64]
_BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "FloorDiv": np.floor_divide, "FloorMod": np.mod,
    "Min": np.minimum, "Max": np.maximum, "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal,
    "GT": np.greater, "GE": np.greater_equal, "And": np.logical_and, "Or": np.logical_or,
}  # fmt: skip
_CALLS = {
    "tir.bitwise_xor": np.bitwise_xor, "tir.bitwise_and": np.bitwise_and, "tir.bitwise_or": np.bitwise_or,
    "tir.shift_left": np.left_shift, "tir.shift_right": np.right_shift,
}  # fmt: skip


def index_values(e: PrimExpr, places: Mapping[Var, Indices]) -> Indices:
    """An index for all iterations (arrays that broadcast). Raises KeyError for what it does not know."""
    match e:
        case IntImm():
            return np.asarray(e.value, dtype=np.int64)
        case Var():
            return places[e]
        case Cast():
            return index_values(e.value, places)
        case Select():
            c, a, b = (index_values(x, places) for x in (e.condition, e.true_value, e.false_value))
            return np.where(c, a, b)
        case BinaryOp():
            found = _BINARY[type(e).__name__](index_values(e.a, places), index_values(e.b, places))
            return np.asarray(found, dtype=np.int64)
        case Call():
            a, b = (index_values(x, places) for x in e.args)
            return np.asarray(_CALLS[getattr(e.op, "name", "")](a, b), dtype=np.int64)
    raise KeyError(type(e).__name__)


class _Narrow(Mutator):
    """Index expressions in int32, some variables replaced: shared memory is small."""

    def __init__(self, values: Mapping[Var, PrimExpr] | None = None) -> None:
        super().__init__()
        self.values = values or {}

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return const(e.value, "int32")

    def visit_Var(self, e: Var) -> PrimExpr:
        found = self.values.get(e, e)
        return found if found.dtype == "int32" else Cast("int32", found)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        made: PrimExpr = self.visit(e.value)
        return made

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        made: PrimExpr = type(e)(self.visit(e.a), self.visit(e.b))
        return made

    def visit_Call(self, e: Call) -> PrimExpr:
        return Call("int32" if e.dtype == "int64" else e.dtype, e.op, [self.visit(a) for a in e.args])


@dataclass(frozen=True)
class Order:
    """A layout of a tile of ``shape``: coordinates to places, in row-major order of what the map gives."""

    map: IndexMap
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for what is no layout of the tile."""
        if len(self.map.initial_indices) != len(self.shape):
            raise ValueError(f"it takes {len(self.map.initial_indices)} indices, the tile has {len(self.shape)}")
        try:
            parts = self._parts
        except (KeyError, ValueError) as error:
            raise ValueError(f"it is no function of the indices alone ({error})") from None
        if any(int(p.min()) < 0 for p in parts):
            raise ValueError("it gives a place before the first")
        if len(np.unique(self.table)) != self.table.size:
            raise ValueError("it puts two elements in one place")

    @cached_property
    def _parts(self) -> list[Indices]:
        grids = np.indices(self.shape, dtype=np.int64)
        places = dict(zip(self.map.initial_indices, grids, strict=True))
        return [np.broadcast_to(index_values(e, places), self.shape) for e in self.map.final_indices]

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Extent of each part of a place."""
        return tuple(int(p.max()) + 1 for p in self._parts)

    @property
    def size(self) -> int:
        """Elements that the tile takes, gaps counted."""
        return math.prod(self.extents)

    @cached_property
    def table(self) -> Indices:
        """The place of each element."""
        total = np.zeros(self.shape, dtype=np.int64)
        for part, extent in zip(self._parts, self.extents, strict=True):
            total = total * extent + part
        return total

    @cached_property
    def unit(self) -> int:
        """Neighbours along the last dimension, a power of two, that lie side by side and begin at a multiple of it."""
        unit = 1
        while self.shape[-1] % (2 * unit) == 0:
            rows = self.table.reshape(-1, self.shape[-1] // (2 * unit), 2 * unit)
            first = rows[..., :1]
            if (first % (2 * unit)).any() or (rows != first + np.arange(2 * unit)).any():
                break
            unit *= 2
        return unit

    @cached_property
    def pitch(self) -> int | None:
        """The distance of rows, if they are whole and all at one distance."""
        rows = self.table.reshape(-1, self.shape[-1])
        pitch = int(rows[1, 0]) if len(rows) > 1 else self.shape[-1]
        plain = np.arange(len(rows))[:, None] * pitch + np.arange(self.shape[-1])
        return pitch if (rows == plain).all() else None

    def place(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        """Index of an element in the physical tile."""
        plain = [_Narrow().visit(i) for i in indices]
        last, unit = plain[-1], self.unit
        # A vector begins at a multiple of its width: what is below does not take part in the map.
        values = dict(zip(self.map.initial_indices, [*plain[:-1], last // unit * unit], strict=True))
        mapped = [_Narrow(values).visit(e) for e in self.map.final_indices]
        total: PrimExpr = const(0, "int32")
        for part, extent in zip(mapped, self.extents, strict=True):
            total = total * extent + part
        return total + last % unit if unit > 1 else total


@dataclass(frozen=True)
class Shared:
    """A tile in shared memory: ``view`` holds its elements, ``pitch`` is the distance of rows (last dimension contiguous).

    ``base`` is its first element in the view, ``slot`` the distance of the copies that a pipeline keeps. With an ``order``
    elements lie as it says, and there is no pitch.
    """

    view: Buffer
    base: int
    shape: tuple[int, ...]
    pitch: int
    slot: int = 0
    order: Order | None = None

    def offset(self, indices: Sequence[PrimExpr], turn: PrimExpr | None = None) -> PrimExpr:
        """Offset of an element in the view."""
        if self.order is not None:
            place = self.order.place(indices)
        else:
            row: PrimExpr | None = None
            for index, extent in zip(indices[:-1], self.shape[:-1], strict=True):
                row = index if row is None else row * extent + index
            place = indices[-1] if row is None else row * self.pitch + indices[-1]
        if self.base:
            place = place + self.base
        return place if turn is None or not self.slot else place + turn * self.slot

    def aligned(self, width: int) -> bool:
        """Whether elements of the last dimension from a multiple of ``width`` on are one vector of it."""
        rows = self.pitch % width == 0 if self.order is None else self.order.unit % width == 0
        return rows and self.base % width == 0 and self.slot % width == 0

    @property
    def row_pitch(self) -> int | None:
        """The distance of rows; None where they are not at one distance."""
        return self.pitch if self.order is None else self.order.pitch
