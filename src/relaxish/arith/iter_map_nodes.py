"""The parts of iterator maps: marks that run over an extent, splits of marks, sums of splits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any
from typing_extensions import Self

from ..ir.expr import ExprLike, as_expr
from ..ir.node import Converted, Node, field
from . import build as B
from ._ir import PrimExpr


class IterMapLevel(IntEnum):
    """Strictness of a map: it covers the inputs exactly, covers the outputs, or anything."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        """The level of a name such as ``"surjective"``."""
        return {
            "bijective": IterMapLevel.Bijective,
            "surjective": IterMapLevel.Surjective,
            "nocheck": IterMapLevel.NoCheck,
        }[name.lower()]


class IterMark(Node):
    """A source (variable or sum) that runs over ``[0, extent)``."""

    source: PrimExpr = field()
    extent: Converted[PrimExpr, ExprLike] = field(conv=as_expr)


class IterMapExpr(PrimExpr):
    """Base of the two expression forms."""


class IterSplitExpr(IterMapExpr):
    """``source // lower_factor % extent * scale``."""

    source: IterMark = field()
    lower_factor: PrimExpr = field()
    extent: PrimExpr = field()
    scale: PrimExpr = field()

    def __init__(
        self,
        source: IterMark,
        lower_factor: ExprLike | None = None,
        extent: ExprLike | None = None,
        scale: ExprLike | None = None,
    ) -> None:
        self.source = source
        self.dtype = source.source.dtype
        self.lower_factor = B.const(self.dtype, 1) if lower_factor is None else as_expr(lower_factor)
        self.extent = source.extent if extent is None else as_expr(extent)
        self.scale = B.const(self.dtype, 1) if scale is None else as_expr(scale)
        self.span = None

    @classmethod
    def _make(cls, **f: Any) -> Self:
        return cls(f["source"], f["lower_factor"], f["extent"], f["scale"])


class IterSumExpr(IterMapExpr):
    """``sum(args) + base``."""

    args: tuple[IterSplitExpr, ...] = field()
    base: PrimExpr = field()

    def __init__(self, args: Sequence[IterSplitExpr], base: ExprLike) -> None:
        self.args = tuple(args)
        self.base = as_expr(base)
        self.dtype = self.base.dtype
        self.span = None

    @classmethod
    def _make(cls, **f: Any) -> Self:
        return cls(f["args"], f["base"])


class IterMapResult(Node):
    """Result of :func:`detect_iter_map`; ``indices`` is empty after a failure, with the reasons in ``errors``."""

    indices: tuple[IterSumExpr, ...] = field()
    errors: tuple[str, ...] = field(role="attr")
    padding_predicate: PrimExpr = field()


class IterMapError(Exception):
    """An index is no iterator map."""
