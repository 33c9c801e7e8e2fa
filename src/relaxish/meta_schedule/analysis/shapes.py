"""Similarity of tensor programs: the iterators of their heaviest block, and its access patterns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...ir import IRModule
from ...ir.prim import const_int
from ...support.sequences import of_kind
from ...tir import Block, BufferRegion, IterVar, PrimFunc, Var
from . import blocks as ba

__all__ = ["Shape", "shape_of"]


class Shape(NamedTuple):
    """``structure`` names programs whose heaviest blocks differ by their sizes only, whatever is computed before and
    after them; it is empty where there is no block. ``sizes`` are the extents of its iterators, 0 for unknown ones."""

    structure: str
    sizes: tuple[int, ...]

    def distance(self, sizes: Sequence[int]) -> float:
        """Distance of these sizes from those of a program of the same structure, in factors of two."""
        return sum(abs(math.log2((1 + a) / (1 + b))) for a, b in zip(self.sizes, sizes, strict=True))


def shape_of(mod: IRModule) -> Shape:
    """The shape of the block that does most of a program's work."""
    functions = of_kind(mod.functions.values(), PrimFunc)
    found = [p.realize.block for func in functions for p in ba.places(func) if p.realize.block.iter_vars]
    if not found:
        return Shape("", ())
    heaviest = max(found, key=lambda block: math.prod(max(1, size) for size in _sizes(block)))
    return Shape(_structure(heaviest), _sizes(heaviest))


def _sizes(block: Block) -> tuple[int, ...]:
    return tuple(const_int(it.dom.extent) or 0 for it in block.iter_vars)


def _structure(block: Block) -> str:
    """Kinds of the iterators, and of each region the type and which iterators the begin of each dimension is made of.

    A product of two matrices is ``SSR Wfloat32[0,1] Rfloat32[0,2] Rfloat32[2,1]``.
    """
    number = {it.var: str(index) for index, it in enumerate(block.iter_vars)}
    kinds = "".join("R" if kind == IterVar.CommReduce else "S" for kind in ba.iter_types(block))
    return " ".join(
        [kinds, *(f"W{_dims(r, number)}" for r in block.writes), *(f"R{_dims(r, number)}" for r in block.reads)]
    )


def _dims(region: BufferRegion, number: dict[Var, str]) -> str:
    dims = ["+".join(sorted(number[v] for v in ba.vars_in(dim.min) if v in number)) for dim in region.region]
    return f"{region.buffer.dtype}[{','.join(dims)}]"
