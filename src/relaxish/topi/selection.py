"""The first k elements of lines, without sorting the rest: a short sorted list, and one look at every element.

Blocks in which no element comes before the last of the list are passed over after a vectorised count, so that long lines
are read at the speed of memory: of n random numbers only about k ln(n / k) enter the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import te, tir
from ..tir import IfThenElse, LetStmt, Stmt, Var, While, const
from .loops import loop, loops, read, seq, write

__all__ = ["first_elements", "is_worth_selecting"]

#: Elements that are counted before any is looked at.
_BLOCK = 64
#: Nanoseconds: of one step of an insertion, and of sorting one element by radix.
_STEP, _SORTED = 1.5, 10.0
#: Without a known length, lists at most so long are inserted into.
_LONGEST = 64

Before = Callable[[Any, Any], Any]


def is_worth_selecting(k: int, n: Any) -> bool:
    """Whether inserting k elements into a list takes less time than sorting all n, for numbers in random order."""
    if not isinstance(n, tir.IntImm):
        return 1 <= k <= _LONGEST
    length = int(n.value)
    if not 1 <= k < length:
        return False
    insertions = k * (1 + math.log(length / k))
    return insertions * k / 2 * _STEP < length * _SORTED


def first_elements(data: Any, axis: int, k: int, before: Before, extent: Any) -> tuple[Any, Any]:
    """(values, int64 positions) of the k elements that come first; of equal ones those with lower positions do.

    ``before(a, b)`` is a strict order; ``extent`` is ``k`` in the type of the sizes. Of a line that turns out to be
    shorter than k only so many elements are written as it has.
    """
    others = [d for d_axis, d in enumerate(data.shape) if d_axis != axis]
    index_dtype = str(data.shape[axis].dtype)
    n = data.shape[axis].astype("int64")
    limit = tir.min(extent.astype("int64"), n)
    zero, one = const(0, "int64"), const(1, "int64")

    def body(ins: Any, outs: Any) -> Any:
        values, positions, state = outs

        def row(outer: list[Any]) -> Stmt:
            def at(j: Any) -> list[Any]:
                return [*outer[:axis], j.astype(index_dtype), *outer[axis:]]

            def element(j: Any) -> Any:
                return read(ins[0], *at(j))

            def place() -> Any:
                return read(state, zero)

            def previous() -> list[Any]:
                return at(tir.max(place() - 1, zero))

            def insert(j: Any, hole: Any) -> Stmt:
                """Element ``j`` into the list, whose elements from the hole on are lost or not there yet."""
                shift = seq(
                    write(values, read(values, *previous()), *at(place())),
                    write(positions, read(positions, *previous()), *at(place())),
                    write(state, place() - 1, zero),
                )
                x = Var("x", str(data.dtype))
                moved = seq(
                    write(state, hole, zero),
                    While(tir.And(place() > 0, before(x, read(values, *previous()))), shift),
                    write(values, x, *at(place())),
                    write(positions, j, *at(place())),
                )
                return LetStmt(x, element(j), moved)

            def offer(j: Any) -> Stmt:
                return IfThenElse(before(element(j), read(values, *at(limit - 1))), insert(j, limit - 1))

            def block(b: Any) -> Stmt:
                worst = Var("worst", str(data.dtype))
                begin = limit + b * _BLOCK

                def count(t: Any) -> Stmt:
                    comes = before(element(begin + t), worst).astype("int64")
                    return write(state, read(state, one) + comes, one)

                length = const(_BLOCK, "int64")
                counted = LetStmt(worst, read(values, *at(limit - 1)), loop("t", length, count))
                each = loop("t", length, lambda t: offer(begin + t))
                return seq(write(state, zero, one), counted, IfThenElse(read(state, one) > 0, each))

            blocks = tir.floordiv(n - limit, _BLOCK)
            rest = limit + blocks * _BLOCK
            return seq(
                loop("j", limit, lambda j: insert(j, j)),
                loop("b", blocks, block),
                loop("j", n - rest, lambda j: offer(rest + j)),
            )

        return loops(others, row) if others else row([])

    shape = [extent if d_axis == axis else d for d_axis, d in enumerate(data.shape)]
    source = tir.decl_buffer(tuple(data.shape), data.dtype, "data_buf", data_alignment=8)
    shapes: list[tuple[Any, str]] = [
        (tuple(shape), str(data.dtype)),
        (tuple(shape), "int64"),
        ((const(2, "int64"),), "int64"),
    ]
    buffers = [tir.decl_buffer(s, dtype, "out_buf", data_alignment=8) for s, dtype in shapes]
    made = te.extern(
        [s for s, _ in shapes],
        [data],
        body,
        "topk",
        [dtype for _, dtype in shapes],
        in_buffers=[source],
        out_buffers=buffers,
    )
    return made[0], made[1]
