"""Places in sorted sequences, and the different elements of a tensor."""

from __future__ import annotations

from .. import te, tir
from ..ir.errors import CheckValueError
from ..tir import Buffer, const, IfThenElse, PrimExpr, Stmt
from .loops import in_parallel, loop, loops, read, seq, write
from .sort import sorted_positions
from .utils import const_int

__all__ = ["searchsorted", "unique"]


def searchsorted(
    sorted_sequence: te.Tensor, values: te.Tensor, right: bool = False, out_dtype: str = "int64"
) -> te.Tensor:
    """How many elements of a sorted sequence come before each value; equal ones do if ``right``.

    A sequence of several dimensions has a row for each row of values.

    >>> from relaxish import te, topi
    >>> topi.searchsorted(te.placeholder((9,)), te.placeholder((2, 5))).shape
    (2, 5)
    """
    lead = len(sorted_sequence.shape) - 1
    if lead not in (0, len(values.shape) - 1):
        raise CheckValueError("searchsorted takes one sequence, or one for each row of values")
    count = sorted_sequence.shape[-1].astype("int64")
    known = const_int(count)
    bits = 62 if known is None else known.bit_length()

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        sequence, wanted = ins

        def look(at: list[PrimExpr]) -> Stmt:
            found = read(outs[0], *at).astype("int64")

            def halve(turn: PrimExpr) -> Stmt:
                # As many elements as the bits so far say come before: does the next bit hold as well?
                place = found + tir.shift_left(const(1, "int64"), const(bits - 1, "int64") - turn.astype("int64"))
                element, value = read(sequence, *at[:lead], place - 1), read(wanted, *at)
                before = element <= value if right else element < value
                step = write(outs[0], place.astype(out_dtype), *at)
                return IfThenElse(place <= count, IfThenElse(before, step))

            start = write(outs[0], const(0, out_dtype), *at)
            return seq(start, loop("turn", const(bits, "int64"), halve)) if bits else start

        return in_parallel(loops(list(values.shape), look, "i"))

    made: te.Tensor = te.extern([values.shape], [sorted_sequence, values], body, "searchsorted", [out_dtype])
    return made


def unique(data: te.Tensor, is_sorted: bool = True, return_counts: bool = False) -> list[te.Tensor]:
    """The different elements of a vector: ``[elements, first places, which one each is, how many]``, and how often
    each of them is there if ``return_counts``.

    They are sorted, or else in the order of their first places.  The tensors of elements, places and counts are as long
    as ``data``; what is behind their number is not written.
    """
    if len(data.shape) != 1:
        raise CheckValueError(f"unique takes a vector, not {len(data.shape)} dimensions")
    size = data.shape[0]
    order = sorted_positions(data, 0, False)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        values, ranks = ins
        found, places, which, number = outs[:4]
        zero, one = const(0, "int32"), const(1, "int32")
        total = read(number, zero)

        def opened(place: PrimExpr) -> Stmt:
            """One more different element, which is first at ``place``."""
            stores = [
                write(found, read(values, place), total),
                write(places, place.astype("int32"), total),
                *([write(outs[4], zero, total)] if return_counts else []),
            ]
            return seq(*stores, write(number, total + one, zero))

        def counted(group: PrimExpr) -> list[Stmt]:
            return [write(outs[4], read(outs[4], group) + one, group)] if return_counts else []

        def in_order(at: PrimExpr) -> Stmt:
            here, last = read(ranks, at), read(ranks, tir.max(at - 1, const(0, at.dtype)))
            new = tir.Or(at == 0, read(values, here) != read(values, last))
            if is_sorted:
                group = total - one
                return seq(IfThenElse(new, opened(here)), write(which, group, here), *counted(group))
            # For now, the first place of what is equal: the sort keeps equal elements in their order.
            first = read(which, last)
            return IfThenElse(new, write(which, here.astype("int32"), here), write(which, first, here))

        def by_place(at: PrimExpr) -> Stmt:
            first = read(which, at)
            group = read(which, at)
            # Those before have their numbers already.
            taken = IfThenElse(
                first == at.astype("int32"),
                seq(opened(at), write(which, total - one, at)),
                write(which, read(which, first), at),
            )
            return seq(taken, *counted(group))

        steps = [write(number, zero, zero), loop("rank", size, in_order)]
        if not is_sorted:
            steps.append(loop("place", size, by_place))
        return seq(*steps)

    shapes = [(size,), (size,), (size,), (const(1, "int32"),)] + [(size,)] * return_counts
    kinds = [data.dtype, "int32", "int32", "int32"] + ["int32"] * return_counts
    return list(te.extern(shapes, [data, order], body, "unique", kinds))
