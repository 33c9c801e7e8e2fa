"""Padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.errors import CheckValueError
from ... import te, tir
from ...ir.primops import match_types
from ...tir import const, if_then_else, PrimExpr
from .. import tag as tags
from ..utils import const_int, simplify
from ...te.tensor import Dim, ExprLike

__all__ = ["mirror_pad", "pad", "pad_cpp"]


def _target(data: te.Tensor, before: Sequence[Dim], after: Sequence[Dim]) -> list[PrimExpr]:
    return [simplify(d + b + a) for d, b, a in zip(data.shape, before, after)]


def _check(data: te.Tensor, before: Sequence[Dim], after: Sequence[Dim]) -> None:
    ndim = len(data.shape)
    if len(before) != ndim:
        raise CheckValueError(f"Input dimension and pad_before dismatch : {ndim} vs {len(before)}")
    if len(after) != ndim:
        raise CheckValueError(f"Input dimension and pad_after dismatch : {ndim} vs {len(after)}")


def pad(
    data: te.Tensor,
    pad_before: Sequence[Dim],
    pad_after: Sequence[Dim] | None = None,
    pad_value: ExprLike = 0.0,
    name: str = "PadInput",
    attrs: dict[str, Any] | None = None,
) -> te.Tensor:
    """``data`` with a border of ``pad_value``; both bounds of every padded axis are tested."""
    after = pad_before if pad_after is None else pad_after
    _check(data, pad_before, after)
    value = pad_value if isinstance(pad_value, tir.PrimExpr) else const(pad_value, data.dtype)

    def body(*indices: PrimExpr) -> PrimExpr:
        tests: list[Any] = []
        source: list[Any] = []
        for index, b, a, dim in zip(indices, pad_before, after, data.shape):
            if const_int(b) == 0 and const_int(a) == 0:
                source.append(index)
                continue
            source.append(index - b)
            tests += [index >= b, index < dim + b]
        if not tests:
            return data(*source)
        return if_then_else(tir.all(*tests), data(*source), value)

    return te.compute(_target(data, pad_before, after), body, name, "injective,pad", attrs)


def pad_cpp(
    data: te.Tensor,
    before: Sequence[Dim],
    after: Sequence[Dim],
    value: ExprLike,
    name: str = "T_pad",
    mode: str = "constant",
) -> te.Tensor:
    """Padding as pooling needs it: only the sides that are padded are tested, and no axis means no copy."""
    if all(const_int(b) == 0 for b in before) and all(const_int(a) == 0 for a in after):
        return data

    def body(*indices: PrimExpr) -> PrimExpr:
        tests: list[Any] = []
        source: list[Any] = []
        for index, b, a, dim in zip(indices, before, after, data.shape):
            if const_int(b) != 0:
                tests.append(tir.GE(*match_types(index, tir.convert(b))))
                source.append(index - b)
            else:
                source.append(index)
            if const_int(a) != 0:
                tests.append(simplify(index < dim + b))
        return if_then_else(tir.all(*tests), data(*source), value) if tests else data(*source)

    names = [f"ax{i}" for i in range(len(data.shape))]
    return te.compute(_target(data, before, after), body, name, tags.INJECTIVE, None, names)


def mirror_pad(
    data: te.Tensor,
    pad_before: Sequence[Dim],
    pad_after: Sequence[Dim] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> te.Tensor:
    """A border that mirrors the inside; ``REFLECT`` leaves the edge itself out."""
    after = pad_before if pad_after is None else pad_after
    _check(data, pad_before, after)
    edge = 0 if mode == "SYMMETRIC" else 1

    def body(*indices: PrimExpr) -> PrimExpr:
        source: list[Any] = []
        for index, b, a, dim in zip(indices, pad_before, after, data.shape):
            if const_int(b) == 0 and const_int(a) == 0:
                source.append(index)
                continue
            above = index >= dim + b
            below = index < b
            mapped = if_then_else(below, b + edge - 1 - index, index - b)
            mapped = if_then_else(above, 2 * dim - edge + b - 1 - index, mapped)
            source.append(mapped)
        return data(*source)

    return te.compute(_target(data, pad_before, after), body, name, tags.INJECTIVE)


def _pad_from_inside(
    data: te.Tensor,
    before: Sequence[Dim],
    after: Sequence[Dim],
    name: str,
    source_of: Callable[[PrimExpr, Dim, PrimExpr], PrimExpr],
) -> te.Tensor:
    """A border of elements of the data: ``source_of(index, before, extent)`` says which, for each padded axis."""
    _check(data, before, after)

    def body(*indices: PrimExpr) -> PrimExpr:
        source = [
            index if const_int(b) == 0 and const_int(a) == 0 else source_of(index, b, extent)
            for index, b, a, extent in zip(indices, before, after, data.shape)
        ]
        return data(*source)

    return te.compute(_target(data, before, after), body, name, tags.INJECTIVE)


def replicate_pad(
    data: te.Tensor, pad_before: Sequence[Dim], pad_after: Sequence[Dim], name: str = "ReplicatePadInput"
) -> te.Tensor:
    """A border that repeats the nearest edge element."""

    def nearest(index: PrimExpr, before: Dim, extent: PrimExpr) -> PrimExpr:
        return tir.min(tir.max(index - before, const(0, str(index.dtype))), extent - 1)

    return _pad_from_inside(data, pad_before, pad_after, name, nearest)


def circular_pad(
    data: te.Tensor, pad_before: Sequence[Dim], pad_after: Sequence[Dim], name: str = "CircularPadInput"
) -> te.Tensor:
    """A border that wraps around."""

    def wrapped(index: PrimExpr, before: Dim, extent: PrimExpr) -> PrimExpr:
        return tir.floormod(index - before + extent, extent)

    return _pad_from_inside(data, pad_before, pad_after, name, wrapped)
