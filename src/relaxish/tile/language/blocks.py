"""Tile operators as loop nests around one annotated block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.expr import PrimExpr, as_expr
from ...script.ir_builder import tir as B
from ...script.ir_builder.base import IRBuilder
from ...tir.transform.tiles.names import LOOPS, OP
from .regions import Region, TileError
from ...ir.prim import is_zero

if TYPE_CHECKING:
    from .kernel import KernelFrame

__all__ = ["at", "inside_kernel", "tile_block"]

_NAMES = ("i", "j", "k", "l", "m", "n")


def tile_block(
    op: str, extents: Sequence[Any], kinds: str, body: Callable[[list[Any]], None], attrs: dict[str, Any] | None = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """A nest over ``extents`` with one block: ``kinds`` is S (spatial), R (reduced) or O (in order) for each."""
    from .kernel import KernelFrame

    if IRBuilder.current().find(KernelFrame) is None:
        raise TileError(f"T.{op} stands outside of a kernel: open one with `with T.Kernel(...)`")
    if not extents:
        extents, kinds = [as_expr(1)], "S"
    with B.grid(*extents) as made:
        loops = made if isinstance(made, list) else [made]
        for loop, text in zip(loops, _NAMES, strict=False):
            loop.name = text
        with B.block(name or op):
            variables = []
            for loop, extent, kind, text in zip(loops, extents, kinds, _NAMES, strict=False):
                axis = {"S": B.axis.spatial, "R": B.axis.reduce, "O": B.axis.scan}[kind]
                var = axis(extent, loop, loop.dtype)
                var.name = f"v{text}"
                variables.append(var)
            B.block_attr({OP: op, LOOPS: len(variables), **(attrs or {})})
            body(variables)


def at(region: Region, dims: Sequence[int], variables: Sequence[Any]) -> list[Any]:
    """Indices of an element of a region: its place along ``dims``, the first elsewhere."""
    offsets = dict(zip(dims, variables, strict=False))
    return [_plus(base, offsets[d]) if d in offsets else base for d, base in enumerate(region.bases)]


def _plus(base: PrimExpr, offset: PrimExpr) -> PrimExpr:
    return offset if is_zero(base) else base + offset


def inside_kernel(what: str) -> KernelFrame:
    """The kernel around. Raises TileError."""
    from .kernel import KernelFrame

    found = IRBuilder.current().find(KernelFrame) if IRBuilder.is_in_scope() else None
    if found is None:
        raise TileError(f"{what} stands outside of a kernel: open one with `with T.Kernel(...)`")
    return found
