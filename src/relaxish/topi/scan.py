"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..ir.prim import const_int
from ..tir import Buffer, IfThenElse, LetStmt, PrimExpr, Stmt, Var, const, floordiv
from .loops import in_parallel, loop, loops, read, seq, write
from .shape import reshape
from .utils import normalize_axis, prod

__all__ = ["cumprod", "cumsum", "scanop"]

Combine = Callable[[Any, Any], Any]

#: Elements of the last axis that are combined at once.
_BLOCK = 8


class _Scan:
    """The statements that scan the lines at one place of the axes before the scanned one."""

    def __init__(
        self, source: Buffer, out: Buffer, combine: Combine, axis: int, outer: list[PrimExpr], identity: PrimExpr | None
    ) -> None:
        """``identity`` is the first value of an exclusive scan, None of an inclusive one."""
        self.source, self.out, self.combine, self.outer, self.identity = source, out, combine, outer, identity
        self.n, self.after = source.shape[axis], source.shape[axis + 1 :]
        self.one = const(1, str(self.n.dtype))

    def element(self, k: PrimExpr, inner: list[PrimExpr]) -> PrimExpr:
        """Operand that is combined into the result at ``k``."""
        source = k if self.identity is None else k - self.one
        return read(self.source, *self.outer, source, *inner).astype(self.out.dtype)

    def first(self, inner: list[PrimExpr]) -> Stmt:
        zero = const(0, str(self.n.dtype))
        value = self.element(zero, inner) if self.identity is None else self.identity
        return write(self.out, value, *self.outer, zero, *inner)

    def step(self, k: PrimExpr, inner: list[PrimExpr]) -> Stmt:
        before = read(self.out, *self.outer, k - self.one, *inner)
        return write(self.out, self.combine(before, self.element(k, inner)), *self.outer, k, *inner)

    def block(self, begin: PrimExpr) -> Stmt:
        """Elements of the last axis one after the other in registers.

        Combining them among themselves first would shorten the chain, but products of 0 and sums of both signs could
        overflow on the way.
        """
        parts = [Var(f"part{t}", self.out.dtype) for t in range(_BLOCK + 1)]
        made: Stmt = seq(*(write(self.out, p, *self.outer, begin + t) for t, p in enumerate(parts[1:])))
        for t in reversed(range(_BLOCK)):
            made = LetStmt(parts[t + 1], self.combine(parts[t], self.element(begin + t, [])), made)
        return LetStmt(parts[0], read(self.out, *self.outer, begin - self.one), made)

    def following(self) -> Stmt:
        """All but the first."""
        count = self.n - self.one
        if self.after:
            # Whole rows of the axes behind are combined at once: they are neighbours in memory.
            return loop("k", count, lambda k: loops(self.after, lambda inner: self.step(k + self.one, inner), "j"))
        blocks = floordiv(count, _BLOCK)
        rest = blocks * _BLOCK
        return seq(
            loop("b", blocks, lambda b: self.block(b * _BLOCK + self.one)),
            loop("k", count - rest, lambda k: self.step(rest + k + self.one, [])),
        )

    def whole(self) -> Stmt:
        scanned = seq(loops(self.after, self.first, "j"), self.following())
        return scanned if const_int(self.n, 0) > 0 else IfThenElse(self.n > 0, scanned)


def scanop(
    data: te.Tensor,
    combine: Combine,
    identity: float,
    name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> te.Tensor:
    """A running combination along ``axis`` (of the flat data, if none is given).

    Elements are combined one after the other, as they come; ``exclusive`` begins with ``identity`` and leaves out the last.
    """
    if axis is None:
        data, axis = reshape(data, [prod(data.shape)]), 0
    axis = normalize_axis(axis, len(data.shape))
    out_dtype = dtype or data.dtype
    begin = const(identity, out_dtype) if exclusive else None

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def lines(outer: list[PrimExpr]) -> Stmt:
            return _Scan(ins[0], outs[0], combine, axis, outer, begin).whole()

        return in_parallel(loops(data.shape[:axis], lines))

    return te.extern([tuple(data.shape)], [data], body, name, [out_dtype])


def cumsum(
    data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> te.Tensor:
    """Running sum; truth values count as int32."""
    out = dtype or ("int32" if data.dtype == "bool" else data.dtype)
    return scanop(data, lambda a, b: a + b, 0, "cumsum_generic", axis, out, exclusive)


def cumprod(
    data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> te.Tensor:
    """Running product; truth values count as int32."""
    out = dtype or ("int32" if data.dtype == "bool" else data.dtype)
    return scanop(data, lambda a, b: a * b, 1, "cumprod_generic", axis, out, exclusive)
