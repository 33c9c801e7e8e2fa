"""Elementwise functions and reductions of any structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import te
from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from .base import BaseTemplate, check_sizes

__all__ = ["ElementwiseTemplate", "GeneralReductionTemplate"]


@dataclass
class ElementwiseTemplate(BaseTemplate):
    """``B[...] = A[...] + 1``: anything that reads and writes every element once."""

    shape: Sequence[int]
    dtype: str = "float16"

    def initialize_function(self) -> None:
        """The function by ``te``."""
        _check_shape(self, self.shape)
        a = te.placeholder(tuple(self.shape), self.dtype, name="A")
        b = te.compute(tuple(self.shape), lambda *at: a[at] + te.const(1, self.dtype), name="B")
        self.set_function(te.create_prim_func([a, b]))


@dataclass
class GeneralReductionTemplate(BaseTemplate):
    """A sum over the axes with an R in ``structure``, for example ``"SSR"`` of shape ``[1024, 1024, 1024]``."""

    structure: str
    shape: Sequence[int]
    dtype: str = "float16"

    def initialize_function(self) -> None:
        """The function by ``te``."""
        _check_shape(self, self.shape)
        if set(self.structure) - {"S", "R"} or len(self.structure) != len(self.shape):
            raise CheckValueError(
                f"structure has an S (spatial) or R (reduction) for each axis of the shape {list(self.shape)}, "
                f'such as "{"S" * (len(self.shape) - 1)}R"; got {self.structure!r}'
            )
        if "S" not in self.structure:
            raise CheckValueError("structure needs an S: a result of one number is not tiled")
        a = te.placeholder(tuple(self.shape), self.dtype, name="A")
        reduced = [
            te.reduce_axis((0, n), name=f"k{i}") if letter == "R" else None
            for i, (letter, n) in enumerate(zip(self.structure, self.shape, strict=True))
        ]

        def at(*spatial: Any) -> PrimExpr:
            rest = iter(spatial)
            index = tuple(next(rest) if axis is None else axis for axis in reduced)
            axes = [axis for axis in reduced if axis is not None]
            return te.sum(a[index], axis=axes) if axes else a[index]

        sizes = tuple(n for letter, n in zip(self.structure, self.shape, strict=True) if letter == "S")
        self.set_function(te.create_prim_func([a, te.compute(sizes, at, name="C")]))


def _check_shape(template: BaseTemplate, shape: Sequence[int]) -> None:
    if not isinstance(shape, Sequence) or isinstance(shape, str) or not shape:
        raise CheckValueError(f"{type(template).__name__}: shape is a list of extents, got {shape!r}")
    check_sizes(template, **{f"shape[{i}]": n for i, n in enumerate(shape)})
