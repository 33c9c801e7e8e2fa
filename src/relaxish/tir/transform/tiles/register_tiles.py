"""Products on CPUs: register tiles, whose sums stay in registers for the depth of the operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....arith.affine import coefficient
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import Var, const
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import For, ForKind, Stmt
from .nests import serial_loops
from .product import Product

__all__ = ["RegisterTile", "product_loops", "register_tile", "tile_of"]

_MAX_ROWS = 16
_MAX_VECTORS = 6


@dataclass(frozen=True)
class RegisterTile:
    """``rows`` times ``vectors`` vectors of ``width`` sums."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        """Sums of a row."""
        return self.vectors * self.width


def tile_of(p: Product, bits: int, registers: int) -> RegisterTile:
    """The register tile of a product on a CPU with so many vector registers of ``bits``."""
    width = max(1, bits // dt.bits(p.c.dtype))
    while width > 1 and p.n % width:
        width //= 2
    if coefficient(p.b.indices[-1], p.j) != 1 or coefficient(p.store.indices[-1], p.j) != 1:
        width = 1
    return RegisterTile(*register_tile(p.m, p.n // width, registers), width)


def register_tile(height: int, vectors: int, registers: int) -> tuple[int, int]:
    """(rows, vectors) of the tile with the fewest loads for each multiply-add that fits the registers."""
    best, best_cost = (1, 1), float("inf")
    for wide in range(1, min(vectors, _MAX_VECTORS) + 1):
        if vectors % wide:
            continue
        for rows in range(1, min(height, _MAX_ROWS) + 1):
            if rows * wide + wide + 1 > registers:
                continue
            waste = -(-height // rows) * rows / height
            cost = ((rows + wide) / (rows * wide) + max(0.0, 8 / (rows * wide) - 1.0)) * waste
            if cost < best_cost - 1e-9:
                best, best_cost = (rows, wide), cost
    return best


def product_loops(p: Product, tile: RegisterTile) -> list[Stmt]:
    """Loops over register tiles; the rows that are left over make lower ones."""
    whole = p.m // tile.rows * tile.rows
    made = [_tiles(p, tile, 0, whole)]
    if p.m > whole:
        made.append(_tiles(p, RegisterTile(p.m - whole, tile.vectors, tile.width), whole, p.m))
    return made


def _tiles(p: Product, tile: RegisterTile, begin: int, end: int) -> Stmt:
    """Register tiles over the rows ``begin..end``."""
    dtype = p.i.dtype
    jo, io, ii, jj, lane, k = (Var(name, dtype) for name in ("jo", "io", "ii", "jj", "lane", "k"))
    column = jj * tile.width + lane
    counts = {
        jo: p.n // tile.columns, io: (end - begin) // tile.rows, ii: tile.rows, jj: tile.vectors, lane: tile.width,
    }  # fmt: skip
    at = {p.i: io * tile.rows + ii + begin, p.j: jo * tile.columns + column, p.k: k}
    analyzer = Analyzer()
    for var, count in counts.items():
        analyzer.bind(var, Range(0, count))
    body: Any = _Places(analyzer).visit(substitute(p.store, at))
    if tile.width > 1:
        body = For(lane, const(0, dtype), const(tile.width, dtype), ForKind.VECTORIZED, body)
    else:
        body = substitute(body, {lane: const(0, dtype)})
    body = serial_loops([(ii, tile.rows), (jj, tile.vectors)], body, ForKind.UNROLLED)
    body = For(k, const(0, dtype), const(p.depth, dtype), ForKind.SERIAL, body)
    return serial_loops([(jo, counts[jo]), (io, counts[io])], body)


class _Places(Mutator):
    """Indices of loads in their plain form."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self.analyzer = analyzer

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return BufferLoad(node.buffer, [self.analyzer.simplify(i) for i in node.indices])
