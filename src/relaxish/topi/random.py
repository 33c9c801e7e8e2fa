"""Random numbers by place: element ``i`` is a hash of a key and ``i``, whatever the order of computing.

Source of the hash: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import te, tir
from ..tir import const, PrimExpr

__all__ = ["bernoulli", "multinomial", "normal", "uniform"]


def _mixed(value: PrimExpr) -> PrimExpr:
    """All bits of a 64-bit number depend on all of ``value`` (the finish of SplitMix64)."""

    def u(v: int) -> PrimExpr:
        return const(v, "uint64")

    value = (value ^ (value >> u(30))) * u(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> u(27))) * u(0x94D049BB133111EB)
    return value ^ (value >> u(31))


def _bits(key: te.Tensor, number: PrimExpr) -> PrimExpr:
    """64 bits for the ``number``-th draw of a key, an int64 tensor of one element."""
    seed = tir.reinterpret("uint64", key(0))
    return _mixed(seed + (number.astype("uint64") + const(1, "uint64")) * const(0x9E3779B97F4A7C15, "uint64"))


def _unit(key: te.Tensor, number: PrimExpr, kind: str) -> PrimExpr:
    """A number of [0, 1) of as many random bits as its type has."""
    digits = 53 if kind == "float64" else 24
    drawn = _bits(key, number) >> const(64 - digits, "uint64")
    return drawn.astype("int64").astype(kind) * const(2.0**-digits, kind)


def _place(at: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    flat: PrimExpr = const(0, "int64")
    for i, size in zip(at, shape):
        flat = flat * size + i
    return flat


def _wide(dtype: str) -> str:
    return dtype if dtype == "float64" else "float32"


def uniform(key: te.Tensor, shape: Sequence[PrimExpr], low: float, high: float, dtype: str) -> te.Tensor:
    """Numbers of [low, high), all equally likely."""
    kind = _wide(dtype)

    def body(*at: PrimExpr) -> PrimExpr:
        value = _unit(key, _place(at, shape), kind) * const(high - low, kind) + const(low, kind)
        return value.astype(dtype)

    return te.compute(shape, body, "uniform")


def normal(key: te.Tensor, shape: Sequence[PrimExpr], mean: float, scale: float, dtype: str) -> te.Tensor:
    """Numbers of the normal distribution, by Box and Muller."""
    kind = _wide(dtype)

    def body(*at: PrimExpr) -> PrimExpr:
        number = _place(at, shape) * 2
        radius = tir.sqrt(const(-2, kind) * tir.log(const(1, kind) - _unit(key, number, kind)))
        turn = tir.cos(const(2 * math.pi, kind) * _unit(key, number + 1, kind))
        return (radius * turn * const(scale, kind) + const(mean, kind)).astype(dtype)

    return te.compute(shape, body, "normal")


def bernoulli(key: te.Tensor, chances: te.Tensor, dtype: str) -> te.Tensor:
    """1 as often as each element of ``chances`` says, else 0."""
    kind = _wide(chances.dtype)

    def body(*at: PrimExpr) -> PrimExpr:
        drawn = _unit(key, _place(at, chances.shape), kind) < chances(*at).astype(kind)
        return tir.if_then_else(drawn, const(1, dtype), const(0, dtype))

    return te.compute(chances.shape, body, "bernoulli")


def multinomial(key: te.Tensor, weights: te.Tensor, count: int, dtype: str) -> te.Tensor:
    """``count`` numbers of a class for each row of running sums of the classes' weights."""
    rows, classes = weights.shape
    step = te.reduce_axis((0, classes), "c")
    kind = weights.dtype
    drawn = te.compute(
        [rows, const(count, "int64")],
        lambda i, j: _unit(key, i * count + j, kind) * weights(i, classes - 1),
        "drawn",
    )
    before = te.compute(
        [rows, const(count, "int64")],
        lambda i, j: te.sum(
            tir.if_then_else(weights(i, step.var) <= drawn(i, j), const(1, dtype), const(0, dtype)), axis=step
        ),
        "before",
    )
    last = (classes - 1).astype(dtype)
    return te.compute(before.shape, lambda i, j: tir.min(before(i, j), last), "multinomial")
