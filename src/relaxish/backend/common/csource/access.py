"""Elements of a load or store: a run of consecutive ones, or one place for each lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import is_consecutive
from ....support.errors import RelaxishError
from ....tir.buffer import Buffer
from .lanes import lane

__all__ = ["Access", "access_of"]


@dataclass(frozen=True)
class Access:
    """``count`` elements of type ``element``: from ``base`` on, or at ``places`` (then ``base`` is None)."""

    element: str
    count: int
    base: Any = None
    places: tuple[Any, ...] = ()


def access_of(buffer: Buffer, indices: Sequence[PrimExpr], analyzer: Analyzer) -> Access:
    """The access of a flat buffer; buffers of vectors are seen as buffers of their elements."""
    if len(indices) != 1:
        raise RelaxishError(f"the buffer {buffer.name} must be flattened before code generation")
    (index,) = indices
    element, width = dt.element_of(buffer.dtype), dt.lanes(buffer.dtype)
    many = dt.lanes(index.dtype)
    if many == 1:
        return Access(element, width, _scaled(index, width, analyzer))
    if is_consecutive(index):
        return Access(element, many * width, _scaled(index.base, width, analyzer))
    starts = [_scaled(lane(index, i), width, analyzer) for i in range(many)]
    places = tuple(analyzer.simplify(start + offset) for start in starts for offset in range(width))
    return Access(element, many * width, None, places)


def _scaled(index: PrimExpr, width: int, analyzer: Analyzer) -> PrimExpr:
    return index if width == 1 else analyzer.simplify(index * width)
