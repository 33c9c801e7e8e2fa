"""Arguments of tile operators: whole buffers, regions, or elements at which a tile begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ... import tir
from ...arith import Analyzer
from ...ir.expr import PrimExpr, as_expr
from ...support.errors import RelaxishError
from ...ir.prim import const_int

__all__ = [
    "Region",
    "Tile",
    "TileError",
    "as_dtype",
    "known_extents",
    "pair_regions",
    "region_of",
    "takes_regions",
    "tile_region",
    "width_of",
]


class TileError(RelaxishError, ValueError):
    """A tile operator used as it cannot be; the message says which, and what to write instead."""


@dataclass(frozen=True)
class Region:
    """A box in a buffer. ``extents`` is None where only its first element was given."""

    buffer: tir.Buffer
    bases: tuple[Any, ...]
    extents: tuple[Any, ...] | None

    @property
    def dtype(self) -> str:
        """Type of the elements."""
        return self.buffer.dtype

    def text(self) -> str:
        """For messages: name and shape."""
        shape = self.extents if self.extents is not None else self.buffer.shape
        return f"{self.buffer.name}{[_plain(e) for e in shape]}"


Tile: TypeAlias = tir.Buffer | tir.BufferRegion | tir.BufferLoad | Region
"""What tile operators take: a buffer, a region ``A[0:4]``, or the first element of one."""
_F = TypeVar("_F", bound=Callable[..., Any])


def takes_regions(function: _F) -> _F:
    """Mark a function whose arguments ``A[0:4]`` are regions and not vectors."""
    vars(function)["takes_regions"] = True
    return function


def _plain(e: Any) -> Any:
    return const_int(e, e)


def as_dtype(dtype: object) -> str:
    """The name of a type: a string, a scalar constructor such as ``T.float16``, or a torch or NumPy type."""
    if callable(dtype) and not isinstance(dtype, type) and not hasattr(dtype, "itemsize"):
        dtype = dtype().dtype
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    return {"float": "float32", "half": "float16", "double": "float64", "int": "int32"}.get(name, name)


def region_of(x: Tile | None, what: str) -> Region:
    """The region that an argument of a tile operator means. Raises TileError."""
    match x:
        case Region():
            return x
        case tir.Buffer():
            return Region(x, tuple(as_expr(0) for _ in x.shape), tuple(x.shape))
        case tir.BufferRegion():
            return Region(x.buffer, tuple(r.min for r in x.region), tuple(r.extent for r in x.region))
        case tir.BufferLoad():
            if not any(isinstance(i, tir.Ramp) for i in x.indices):
                return Region(x.buffer, tuple(x.indices), None)
            bases, extents = [], []
            for i in x.indices:
                if isinstance(i, tir.Ramp):
                    if _plain(i.stride) != 1:
                        raise TileError(f"{what}: a region of {x.buffer.name} has a step; tiles are contiguous")
                    bases.append(i.base)
                    extents.append(as_expr(i.lanes))
                else:
                    bases.append(i)
                    extents.append(as_expr(1))
            return Region(x.buffer, tuple(bases), tuple(extents))
    raise TileError(f"{what} takes a buffer, a region A[a:b, c:d] or a first element A[i, j], not a {type(x).__name__}")


def width_of(width: int) -> int:
    """A number of elements that are accessed at once. Raises TileError."""
    if int(width) not in (1, 2, 4, 8, 16):
        raise TileError(f"coalesced_width={width} is 1, 2, 4, 8 or 16 elements")
    return int(width)


def known_extents(region: Region, what: str) -> tuple[Any, ...]:
    """The extents of a region that must say them itself."""
    if region.extents is None:
        raise TileError(f"{what} needs the extents of {region.buffer.name}: give the buffer or a region A[a:b, c:d]")
    return region.extents


def is_one(e: PrimExpr | int) -> bool:
    """Whether an extent is the constant 1."""
    return _plain(as_expr(e)) == 1


def _aligned(extents: list[Any], rank: int, what: str) -> tuple[Any, ...]:
    """Extents of the last dimensions, 1 before them."""
    if len(extents) > rank:
        raise TileError(f"{what}: {len(extents)} dimensions do not fit a buffer of {rank}")
    return (*[as_expr(1)] * (rank - len(extents)), *extents)


def pair_regions(a: Region, b: Region, what: str) -> tuple[list[Any], list[int], list[int]]:
    """(extents, dimensions of ``a`` they run over, dimensions of ``b``), those of size 1 left out. Raises TileError."""
    one, other = a.extents, b.extents
    if one is None and other is None:
        one = tuple(as_expr(1) for _ in a.bases)
        other = tuple(as_expr(1) for _ in b.bases)
    elif one is None:
        assert other is not None
        one = _aligned([e for e in other if not is_one(e)], len(a.bases), what)
    elif other is None:
        other = _aligned([e for e in one if not is_one(e)], len(b.bases), what)
    dims_a = [d for d, e in enumerate(one) if not is_one(e)]
    dims_b = [d for d, e in enumerate(other) if not is_one(e)]
    extents = [one[d] for d in dims_a]
    fits = len(dims_a) == len(dims_b)
    analyzer = Analyzer()
    if not fits or not all(analyzer.can_prove_equal(x, other[d]) for x, d in zip(extents, dims_b, strict=True)):
        raise TileError(
            f"{what}: {Region(a.buffer, a.bases, one).text()} and {Region(b.buffer, b.bases, other).text()} differ in shape; "
            "make the regions equal (dimensions of size 1 do not count)"
        )
    return extents, dims_a, dims_b


def tile_region(x: Tile | None, what: str) -> tuple[Region, list[int], list[Any]]:
    """A region with its dimensions larger than 1 and their extents."""
    region = region_of(x, what)
    extents = known_extents(region, what)
    dims = [d for d, e in enumerate(extents) if not is_one(e)]
    return region, dims, [extents[d] for d in dims]
