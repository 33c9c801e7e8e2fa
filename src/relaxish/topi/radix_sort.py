"""Stable sorting of lines by radix: keys whose unsigned order is the order wanted, a digit at a time.

A line is read once for keys and the histograms of all digits, then moved once for each digit (D. Knuth, TAOCP 3, 5.2.5).
Time is linear in its length and hardly depends on the numbers: about 8 ns an element for 32-bit types, where merging by
comparisons needs 100 ns and mispredicts half of its branches.
"""

from __future__ import annotations

from typing import Any
from collections.abc import Sequence

from .. import te, tir
from ..ir import dtype as dt
from ..ir.prim import const_int
from ..tir import Buffer, const, PrimExpr, Select, Stmt, While
from .loops import loop, loops, read, seq, write

__all__ = ["can_sort_by_radix", "positions_by_radix"]

#: Bits of infinity, above which NaN lies, of the floating-point types that are ordered by sign and bits.
_INFINITY = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}
#: Shorter lines are sorted by insertion: clearing the histograms would take longer.
_INSERTED = 40
#: Lines at least so long use fewer and wider digits.
_WIDE_FROM = 8192


def can_sort_by_radix(dtype: str) -> bool:
    """Whether elements of a type have keys of at most 64 bits."""
    whole = dt.is_int(dtype) or dt.is_uint(dtype) or dtype == "bool"
    return dtype in _INFINITY or (whole and dt.bits(dtype) in (1, 8, 16, 32, 64))


def _key(value: PrimExpr, descending: bool) -> PrimExpr:
    """An unsigned number that is ordered as the value is: NaN above all, both zeros alike."""
    dtype = str(value.dtype)
    bits = 8 if dtype == "bool" else dt.bits(dtype)
    unsigned = f"uint{bits}"
    highest, everything = const(1 << (bits - 1), unsigned), const((1 << bits) - 1, unsigned)
    if dtype in _INFINITY:
        plain = tir.reinterpret(unsigned, value)
        magnitude = plain & (everything >> const(1, unsigned))
        negative = (plain & highest) != const(0, unsigned)
        key: PrimExpr = Select(negative, everything - plain, plain | highest)
        key = Select(magnitude == const(0, unsigned), highest, key)
        key = Select(magnitude > const(_INFINITY[dtype], unsigned), everything, key)
    elif dt.is_int(dtype):
        key = value.astype(unsigned) ^ highest
    else:
        key = value.astype(unsigned)
    return everything - key if descending else key


def _digits(bits: int, n: PrimExpr) -> tuple[int, int]:
    """(how many digits, bits of each) of keys of so many bits; an even count leaves the result where it began."""
    known = const_int(n, 0)
    if bits == 32 and known >= _WIDE_FROM:
        return 3, 11
    return (bits // 8, 8) if bits > 8 else (2, 4)


class _Line:
    """The statements that sort one line; ``words`` hold a key above a position, or keys alone beside ``places``."""

    def __init__(self, n: PrimExpr, key_bits: int, outs: Sequence[Buffer]) -> None:
        self.n, self.key_bits = n, key_bits
        self.words, self.spare, self.counts, self.state, *self.places = outs
        self.packed = key_bits <= 32
        self.digits, self.width = _digits(key_bits, n)

    def digit(self, word: PrimExpr, which: int) -> PrimExpr:
        """A digit of the key, the lowest first, as an index of a histogram."""
        shift = which * self.width + (32 if self.packed else 0)
        low = tir.bitwise_and(tir.shift_right(word, const(shift, "uint64")), const((1 << self.width) - 1, "uint64"))
        return low.astype("int64")

    def counted(self) -> Stmt:
        """Histograms of all digits, then where the elements of each value begin."""
        radix = 1 << self.width
        total = const(self.digits * radix, "int64")
        clear = loop("v", total, lambda v: write(self.counts, const(0, "int64"), v))

        def count(j: PrimExpr) -> Stmt:
            word = read(self.words, j)
            places = [self.digit(word, d) + d * radix for d in range(self.digits)]
            return seq(*(write(self.counts, read(self.counts, p) + 1, p) for p in places))

        zero = const(0, "int64")

        def begin(d: int) -> Stmt:
            def step(v: PrimExpr) -> Stmt:
                here = d * radix + v
                return seq(
                    write(self.state, read(self.counts, here), const(1, "int64")),
                    write(self.counts, read(self.state, zero), here),
                    write(self.state, read(self.state, zero) + read(self.state, const(1, "int64")), zero),
                )

            return seq(write(self.state, zero, zero), loop("v", const(radix, "int64"), step))

        return seq(clear, loop("j", self.n, count), *(begin(d) for d in range(self.digits)))

    def moved(self, which: int) -> Stmt:
        """All elements in the order of one digit, from one array to the other."""
        there = which % 2 == 0
        source, target = (self.words, self.spare) if there else (self.spare, self.words)

        def move(j: PrimExpr) -> Stmt:
            at = self.digit(read(source, j), which) + which * (1 << self.width)
            to = read(self.counts, at)
            steps = [write(target, read(source, j), to)]
            if self.places:
                old, new = self.places if there else reversed(self.places)
                steps.append(write(new, read(old, j), to))
            return seq(*steps, write(self.counts, to + 1, at))

        return loop("j", self.n, move)

    def by_radix(self) -> Stmt:
        """The line sorted, its words and places in the array of :meth:`result`."""
        return seq(self.counted(), *(self.moved(d) for d in range(self.digits)))

    def by_insertion(self) -> Stmt:
        """A short line sorted in place; words are different, for they end in positions."""
        place = const(0, "int64")

        def insert(j: PrimExpr) -> Stmt:
            def at() -> PrimExpr:
                return read(self.state, place)

            def previous() -> PrimExpr:
                return read(self.words, tir.max(at() - 1, const(0, "int64")))

            # The word to insert waits in the first element of the spare array, which nothing else uses.
            word = read(self.spare, const(0, "int64"))
            shift = seq(write(self.words, previous(), at()), write(self.state, at() - 1, place))
            return seq(
                write(self.spare, read(self.words, j), const(0, "int64")),
                write(self.state, j, place),
                While(tir.And(at() > 0, word < previous()), shift),
                write(self.words, word, at()),
            )

        return loop("j", self.n, insert)

    def position(self, j: PrimExpr, sorted_in_place: bool) -> PrimExpr:
        """Original position of the ``j``-th element in sorted order."""
        moved = 0 if sorted_in_place else self.digits % 2
        if self.packed:
            word = read((self.words, self.spare)[moved], j)
            return tir.bitwise_and(word, const(0xFFFFFFFF, "uint64")).astype("int64")
        return read(self.places[moved], j)


def positions_by_radix(data: te.Tensor, axis: int, descending: bool) -> te.Tensor:
    """Positions (int64) that sort ``data`` along ``axis``; equal elements keep their order, NaN is above every number.

    ``can_sort_by_radix`` says for which types. Lines are at most 2**32 elements long.
    """
    others = [d for k, d in enumerate(data.shape) if k != axis]
    n = data.shape[axis].astype("int64")
    bits = max(8, dt.bits(str(data.dtype)))
    short = const_int(n, _INSERTED + 1) <= _INSERTED and bits <= 32

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        order, *scratch = outs
        line = _Line(n, bits, scratch)

        def row(outer: list[PrimExpr]) -> Stmt:
            def at(k: PrimExpr) -> list[Any]:
                return [*outer[:axis], k, *outer[axis:]]

            def load(j: PrimExpr) -> Stmt:
                key = _key(read(ins[0], *at(j.astype(str(data.shape[axis].dtype)))), descending).astype("uint64")
                if line.packed:
                    high = tir.shift_left(key, const(32, "uint64"))
                    return write(line.words, tir.bitwise_or(high, j.astype("uint64")), j)
                return seq(write(line.words, key, j), write(line.places[0], j, j))

            return seq(
                loop("j", n, load),
                line.by_insertion() if short else line.by_radix(),
                loop(
                    "j", n, lambda j: write(order, line.position(j, short), *at(j.astype(str(data.shape[axis].dtype))))
                ),
            )

        return loops(others, row) if others else row([])

    source = tir.decl_buffer(tuple(data.shape), data.dtype, "data_buf", data_alignment=8)
    digits, width = _digits(bits, n)
    shapes: list[tuple[Any, str]] = [(tuple(data.shape), "int64"), ((n,), "uint64"), ((n,), "uint64")]
    shapes += [((const(digits << width, "int64"),), "int64"), ((const(2, "int64"),), "int64")]
    shapes += [((n,), "int64")] * (0 if bits <= 32 else 2)
    buffers = [tir.decl_buffer(shape, dtype, "out_buf", data_alignment=8) for shape, dtype in shapes]
    made = te.extern(
        [shape for shape, _ in shapes],
        [data],
        body,
        "argsort",
        [dtype for _, dtype in shapes],
        in_buffers=[source],
        out_buffers=buffers,
    )
    return made[0]
