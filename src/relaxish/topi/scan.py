"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..tir import IfThenElse, const
from .loops import loop, loops, read, seq, write
from .shape import reshape
from .utils import normalize_axis, prod

__all__ = ["cumprod", "cumsum", "scanop"]


def scanop(
    data: Any,
    combine: Callable[[Any, Any], Any],
    identity: float,
    name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Any:
    """A running combination along ``axis`` (of the flat data, if none is given)."""
    if axis is None:
        data, axis = reshape(data, [prod(data.shape)]), 0
    axis = normalize_axis(axis, len(data.shape))
    out_dtype = dtype or data.dtype
    others = [d for k, d in enumerate(data.shape) if k != axis]

    def body(ins: Any, outs: Any) -> Any:
        def row(outer: list[Any]) -> Any:
            def at(k: Any) -> list[Any]:
                return [*outer[:axis], k, *outer[axis:]]

            def step(k: Any) -> Any:
                zero, one = const(0, str(k.dtype)), const(1, str(k.dtype))
                source = k - one if exclusive else k
                first = const(identity, out_dtype) if exclusive else read(ins[0], *at(k)).astype(out_dtype)
                value = combine(read(outs[0], *at(k - one)), read(ins[0], *at(source)).astype(out_dtype))
                return IfThenElse(k.equal(zero), write(outs[0], first, *at(k)), write(outs[0], value, *at(k)))

            return loop("k", data.shape[axis], step)

        return seq(loops(others, row)) if others else row([])

    return te.extern([tuple(data.shape)], [data], body, name, [out_dtype])


def cumsum(data: Any, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Any:
    """Running sum; truth values count as int32."""
    out = dtype or ("int32" if data.dtype == "bool" else data.dtype)
    return scanop(data, lambda a, b: a + b, 0, "cumsum_generic", axis, out, exclusive)


def cumprod(data: Any, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Any:
    """Running product; truth values count as int32."""
    out = dtype or ("int32" if data.dtype == "bool" else data.dtype)
    return scanop(data, lambda a, b: a * b, 1, "cumprod_generic", axis, out, exclusive)
