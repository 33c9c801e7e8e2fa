"""Padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.errors import CheckValueError
from ... import te, tir
from ...ir.primops import match_types
from ...tir import const, if_then_else
from .. import tag as tags
from ..utils import const_int, simplify

__all__ = ["mirror_pad", "pad", "pad_cpp"]


def _target(data: Any, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    return [simplify(d + b + a) for d, b, a in zip(data.shape, before, after)]


def _check(data: Any, before: Sequence[Any], after: Sequence[Any]) -> None:
    ndim = len(data.shape)
    if len(before) != ndim:
        raise CheckValueError(f"Input dimension and pad_before dismatch : {ndim} vs {len(before)}")
    if len(after) != ndim:
        raise CheckValueError(f"Input dimension and pad_after dismatch : {ndim} vs {len(after)}")


def pad(
    data: Any,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """``data`` with a border of ``pad_value``; both bounds of every padded axis are tested."""
    after = pad_before if pad_after is None else pad_after
    _check(data, pad_before, after)
    value = pad_value if isinstance(pad_value, tir.PrimExpr) else const(pad_value, data.dtype)

    def body(*indices: Any) -> Any:
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
    data: Any, before: Sequence[Any], after: Sequence[Any], value: Any, name: str = "T_pad", mode: str = "constant"
) -> Any:
    """Padding as pooling needs it: only the sides that are padded are tested, and no axis means no copy."""
    if all(const_int(b) == 0 for b in before) and all(const_int(a) == 0 for a in after):
        return data

    def body(*indices: Any) -> Any:
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
    data: Any,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Any:
    """A border that mirrors the inside; ``REFLECT`` leaves the edge itself out."""
    after = pad_before if pad_after is None else pad_after
    _check(data, pad_before, after)
    edge = 0 if mode == "SYMMETRIC" else 1

    def body(*indices: Any) -> Any:
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
    data: Any, before: Sequence[Any], after: Sequence[Any], name: str, source_of: Callable[[Any, Any, Any], Any]
) -> Any:
    """A border of elements of the data: ``source_of(index, before, extent)`` says which, for each padded axis."""
    _check(data, before, after)

    def body(*indices: Any) -> Any:
        source = [
            index if const_int(b) == 0 and const_int(a) == 0 else source_of(index, b, extent)
            for index, b, a, extent in zip(indices, before, after, data.shape)
        ]
        return data(*source)

    return te.compute(_target(data, before, after), body, name, tags.INJECTIVE)


def replicate_pad(
    data: Any, pad_before: Sequence[Any], pad_after: Sequence[Any], name: str = "ReplicatePadInput"
) -> Any:
    """A border that repeats the nearest edge element."""

    def nearest(index: Any, before: Any, extent: Any) -> Any:
        return tir.min(tir.max(index - before, const(0, str(index.dtype))), extent - 1)

    return _pad_from_inside(data, pad_before, pad_after, name, nearest)


def circular_pad(data: Any, pad_before: Sequence[Any], pad_after: Sequence[Any], name: str = "CircularPadInput") -> Any:
    """A border that wraps around."""

    def wrapped(index: Any, before: Any, extent: Any) -> Any:
        return tir.floormod(index - before + extent, extent)

    return _pad_from_inside(data, pad_before, pad_after, name, wrapped)
