"""The first k elements of lines, without sorting the rest: a short sorted list, and one look at every element.

Blocks in which no element comes before the last of the list are passed over after a vectorised count, so that long lines
are read at the speed of memory: of n random numbers only about k ln(n / k) enter the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import te, tir
from ..tir import AssertStmt, Buffer, const, IfThenElse, LetStmt, PrimExpr, Stmt, Var, While
from .loops import loop, loops, read, seq, write

__all__ = ["first_elements", "is_worth_selecting"]

#: Elements that are counted before any is looked at.
_BLOCK = 64
#: Nanoseconds: of one step of an insertion, and of sorting one element by radix.
_STEP, _SORTED = 1.5, 10.0
#: Without a known length, lists at most so long are inserted into.
_LONGEST = 64

#: Elements of the state of a line.
_HOLE, _ENTERING = const(0, "int64"), const(1, "int64")

Before = Callable[[PrimExpr, PrimExpr], PrimExpr]


def is_worth_selecting(k: int, n: PrimExpr) -> bool:
    """Whether inserting k elements into a list takes less time than sorting all n, for numbers in random order."""
    if not isinstance(n, tir.IntImm):
        return 1 <= k <= _LONGEST
    length = int(n.value)
    if not 1 <= k < length:
        return False
    insertions = k * (1 + math.log(length / k))
    return insertions * k / 2 * _STEP < length * _SORTED


class _Line:
    """The statements that select from one line; ``at`` makes the indices of an element from its place in the line.

    ``state`` holds where the hole in the list is, and how many elements of a block come before the list's last.
    """

    def __init__(
        self,
        ins: Sequence[Buffer],
        outs: Sequence[Buffer],
        at: Callable[[PrimExpr], list[PrimExpr]],
        before: Before,
        limit: PrimExpr,
    ) -> None:
        (self.source,), (self.values, self.positions, self.state) = ins, outs
        self.at, self.before, self.limit = at, before, limit

    def element(self, j: PrimExpr) -> PrimExpr:
        return read(self.source, *self.at(j))

    def hole(self) -> PrimExpr:
        return read(self.state, _HOLE)

    def previous(self) -> list[Any]:
        return self.at(tir.max(self.hole() - 1, const(0, "int64")))

    def last(self) -> PrimExpr:
        """The last of the list: an element enters if it comes before this one."""
        return read(self.values, *self.at(self.limit - 1))

    def insert(self, j: PrimExpr, hole: PrimExpr) -> Stmt:
        """Element ``j`` into the list, whose elements from the hole on are lost or not there yet."""
        shift = seq(
            write(self.values, read(self.values, *self.previous()), *self.at(self.hole())),
            write(self.positions, read(self.positions, *self.previous()), *self.at(self.hole())),
            write(self.state, self.hole() - 1, _HOLE),
        )
        x = Var("x", str(self.source.dtype))
        moved = seq(
            write(self.state, hole, _HOLE),
            While(tir.And(self.hole() > 0, self.before(x, read(self.values, *self.previous()))), shift),
            write(self.values, x, *self.at(self.hole())),
            write(self.positions, j, *self.at(self.hole())),
        )
        return LetStmt(x, self.element(j), moved)

    def offer(self, j: PrimExpr) -> Stmt:
        """Element ``j``, if it comes before the last of the list."""
        return IfThenElse(self.before(self.element(j), self.last()), self.insert(j, self.limit - 1))

    def block(self, begin: PrimExpr) -> Stmt:
        """The elements of a block, if one of them enters the list."""
        worst = Var("worst", str(self.source.dtype))
        length = const(_BLOCK, "int64")

        def count(t: PrimExpr) -> Stmt:
            comes = self.before(self.element(begin + t), worst).astype("int64")
            return write(self.state, read(self.state, _ENTERING) + comes, _ENTERING)

        return seq(
            write(self.state, const(0, "int64"), _ENTERING),
            LetStmt(worst, self.last(), loop("t", length, count)),
            IfThenElse(read(self.state, _ENTERING) > 0, loop("t", length, lambda t: self.offer(begin + t))),
        )

    def selected(self, n: PrimExpr) -> Stmt:
        """The whole line: the list filled, then blocks, then the rest."""
        blocks = tir.floordiv(n - self.limit, _BLOCK)
        rest = self.limit + blocks * _BLOCK
        return seq(
            loop("j", self.limit, lambda j: self.insert(j, j)),
            loop("b", blocks, lambda b: self.block(self.limit + b * _BLOCK)),
            loop("j", n - rest, lambda j: self.offer(rest + j)),
        )


def first_elements(data: te.Tensor, axis: int, before: Before, extent: PrimExpr) -> tuple[te.Tensor, te.Tensor]:
    """(values, int64 positions) of the first ``extent`` elements in order; of equal ones lower positions come first.

    ``before(a, b)`` is a strict order. A line that turns out to be shorter fails when the program runs.
    """
    others = [d for k, d in enumerate(data.shape) if k != axis]
    index_dtype = str(data.shape[axis].dtype)
    n = data.shape[axis].astype("int64")
    limit = tir.min(extent.astype("int64"), n)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def row(outer: list[PrimExpr]) -> Stmt:
            line = _Line(ins, outs, lambda j: [*outer[:axis], j.astype(index_dtype), *outer[axis:]], before, limit)
            return line.selected(n)

        rows = loops(others, row) if others else row([])
        if isinstance(n, tir.IntImm):
            return rows
        return AssertStmt(n >= extent.astype("int64"), "topk wants more elements than there are along its axis", rows)

    shape = tuple(extent if k == axis else d for k, d in enumerate(data.shape))
    shapes: list[tuple[Any, str]] = [(shape, str(data.dtype)), (shape, "int64"), ((const(2, "int64"),), "int64")]
    made = te.extern(
        [s for s, _ in shapes],
        [data],
        body,
        "topk",
        [dtype for _, dtype in shapes],
        in_buffers=[tir.decl_buffer(tuple(data.shape), data.dtype, "data_buf", data_alignment=8)],
        out_buffers=[tir.decl_buffer(s, dtype, "out_buf", data_alignment=8) for s, dtype in shapes],
    )
    return made[0], made[1]
