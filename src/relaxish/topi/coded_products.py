"""Products with weights of few bits, decoded in registers: what is read from memory is the codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import te, tir
from ..ir.prim import const_int
from ..tir import Block, BlockRealize, Buffer, const, For, ForKind, PrimExpr, Stmt, Var
from .loops import in_parallel, loop, read, seq, write

__all__ = ["coded_product"]

#: Rows of the data that share what is decoded.
_ROWS = 4


def coded_product(x: te.Tensor, codes: te.Tensor, scales: te.Tensor, zeros: te.Tensor, group: int) -> te.Tensor:
    """``x`` (rows, depth) times weights ``(code - zero) * scale`` as (rows, columns) in float32.

    Columns come in tiles: ``codes`` (tiles, depth or depth / 2, width) are bytes, or pairs of four bits of which the lower
    are those of the first depth; ``scales`` and ``zeros`` (tiles, depth / group, width) belong to ``group`` elements of the
    depth each (one row of ``zeros`` is for all), and ``group`` is even.
    """
    rows, depth = x.shape
    tiles, coded, width = codes.shape
    work = _Tile(group, int(const_int(depth, 0)) // int(const_int(coded, 1)), int(const_int(width, 0)))
    blocks = int(const_int(scales.shape[1], 0))
    known = const_int(rows)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def one(tile: PrimExpr) -> Stmt:
            def chunk(count: int) -> Callable[[PrimExpr], Stmt]:
                return lambda row: work.block(ins, outs[0], tile, row, count, blocks)

            if known is not None:
                whole, rest = divmod(known, _ROWS)
                parts = [loop("m", const(whole, "int64"), lambda m: chunk(_ROWS)(m * _ROWS))] if whole else []
                parts += [chunk(rest)(const(known - rest, "int64"))] if rest else []
                return seq(*parts)
            whole_blocks = tir.floordiv(rows, _ROWS)
            return seq(
                loop("m", whole_blocks, lambda m: chunk(_ROWS)(m * _ROWS)),
                loop("r", rows - whole_blocks * _ROWS, lambda r: chunk(1)(whole_blocks * _ROWS + r)),
            )

        return in_parallel(loop("tile", tiles, one))

    made: te.Tensor = te.extern([(rows, tiles * width)], [x, codes, scales, zeros], body, "coded_product", ["float32"])
    return made


class _Tile:
    """The columns of one tile: ``per_byte`` codes are in a byte."""

    def __init__(self, group: int, per_byte: int, width: int) -> None:
        self.group, self.per_byte, self.width = group, per_byte, width

    def lanes(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Something for every column."""
        var = Var("lane", "int64")
        return For(var, const(0, "int64"), const(self.width, "int64"), ForKind.VECTORIZED, body(var))

    def block(self, ins: Sequence[Buffer], out: Buffer, tile: PrimExpr, row: PrimExpr, count: int, blocks: int) -> Stmt:
        """``count`` rows of the result."""
        x, codes, scales, zeros = ins
        # One row alone would wait for its own sums: it keeps those of even and odd places apart.
        chains = 2 if count == 1 else 1
        totals = [tir.decl_buffer((self.width,), "float32", f"total{k}", scope="local") for k in range(count)]
        parts = [tir.decl_buffer((self.width,), "float32", f"part{k}", scope="local") for k in range(count * chains)]
        nothing = const(0, "float32")

        def fill(buffers: Sequence[Buffer]) -> Stmt:
            return seq(*(self.lanes(lambda lane, b=b: write(b, nothing, lane)) for b in buffers))  # type: ignore[misc]

        def step(block: PrimExpr, at: PrimExpr) -> Stmt:
            pair = block * (self.group // 2) + at
            stmts = []
            for turn in range(2 // self.per_byte):
                place = pair if self.per_byte == 2 else pair * 2 + turn
                for half in range(self.per_byte):
                    depth = place * self.per_byte + half
                    number = (turn + half) % 2
                    stmts += [
                        self.lanes(
                            lambda lane, k=k, p=place, h=half, d=depth, n=number: self._add(  # type: ignore[misc]
                                parts[k * chains + n % chains], x, codes, zeros, (tile, p, block, lane), row + k, d, h
                            )
                        )
                        for k in range(count)
                    ]
            return seq(*stmts)

        def whole(block: PrimExpr) -> Stmt:
            def scaled(k: int, lane: PrimExpr) -> Stmt:
                part = read(parts[k * chains], lane)
                for n in range(1, chains):
                    part = part + read(parts[k * chains + n], lane)
                return write(totals[k], read(totals[k], lane) + part * read(scales, tile, block, lane), lane)

            return seq(
                fill(parts),
                loop("k", const(self.group // 2, "int64"), lambda at: step(block, at)),
                *(self.lanes(lambda lane, k=k: scaled(k, lane)) for k in range(count)),  # type: ignore[misc]
            )

        stores = [
            self.lanes(lambda lane, k=k: write(out, read(totals[k], lane), row + k, tile * self.width + lane))  # type: ignore[misc]
            for k in range(count)
        ]
        inner = seq(fill(totals), loop("g", const(blocks, "int64"), whole), *stores)
        made = Block((), (), (), "tile", inner, alloc_buffers=(*totals, *parts))
        return BlockRealize((), const(True, "bool"), made)

    def _add(
        self,
        part: Buffer,
        x: Buffer,
        codes: Buffer,
        zeros: Buffer,
        at: tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr],
        row: PrimExpr,
        depth: PrimExpr,
        half: int,
    ) -> Stmt:
        """One place of the depth added to the sums of a row."""
        tile, place, block, lane = at
        zero = const(0, "int64") if const_int(zeros.shape[1]) == 1 else block
        code = read(codes, tile, place, lane)
        if self.per_byte == 2:
            wide = code.astype("int32")
            code = tir.shift_right(wide, const(4, "int32")) if half else tir.bitwise_and(wide, const(15, "int32"))
        number = code.astype("int32").astype("float32") - read(zeros, tile, zero, lane)
        return write(part, read(part, lane) + read(x, row, depth) * number, lane)
