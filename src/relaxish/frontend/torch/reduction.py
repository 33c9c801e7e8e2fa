"""Reductions and scans of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
import torch

from ... import op
from ...ir import dtype as dt
from ...relax.expr import Expr
from .importer import Dim, dtype_of, Importer, Steps, torch_dtype
from .table import Converter, converter, CONVERTERS, Made

__all__: list[str] = []


def _axes(dim: Steps | None) -> list[int] | None:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return [dim] if isinstance(dim, int) else list(dim)


def _reduce(function: Callable[..., Any], widen: bool = False) -> Callable[..., Any]:
    def convert(
        self: Importer,
        x: Expr,
        dim: Steps | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
        **_: Any,
    ) -> Expr:
        if dtype is not None:
            x = self.cast(x, torch_dtype(dtype))
        elif widen and not dt.is_float(dtype_of(x)):
            x = self.cast(x, "int64")
        return self.emit(function(x, _axes(dim), keepdim))

    return convert


CONVERTERS.update(
    sum=_reduce(op.sum, widen=True), mean=_reduce(op.mean), amax=_reduce(op.max), amin=_reduce(op.min),
    prod=_reduce(op.prod, widen=True),
)  # fmt: skip


def _extreme(reduce: Callable[..., Any], arg: Callable[..., Any]) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, dim: Steps | None = None, keepdim: bool = False) -> Made:
        if dim is None:
            return self.emit(reduce(x))
        if self.is_tensor(dim):
            return self.emit((op.maximum if reduce is op.max else op.minimum)(*self.promote(x, dim)))
        return [self.emit(reduce(x, [dim], keepdim)), self.emit(arg(x, dim, keepdim))]

    return convert


CONVERTERS["max"] = _extreme(op.max, op.argmax)
CONVERTERS["min"] = _extreme(op.min, op.argmin)


def _arg_reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, dim: Steps | None = None, keepdim: bool = False) -> Expr:
        return self.emit(function(x, dim, keepdim))

    return convert


CONVERTERS["argmax"] = _arg_reduce(op.argmax)
CONVERTERS["argmin"] = _arg_reduce(op.argmin)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def convert(
        self: Importer,
        x: Expr,
        dim: bool | Steps | None = None,
        unbiased: bool | float = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Expr:
        if isinstance(dim, bool):
            unbiased, dim = dim, None
        correction = (1 if unbiased else 0) if correction is None else correction
        axes = _axes(dim)
        variance = self.emit(op.variance(x, axes, keepdim))
        if correction:
            count: Any = 1
            for axis in range(self.rank(x)) if axes is None else axes:
                count = count * self.shape(x)[axis]
            variance = self.emit(op.multiply(variance, _bessel(self, count, correction, dtype_of(x))))
        return variance if function is op.variance else self.emit(op.sqrt(variance))

    return convert


def _bessel(self: Importer, count: Dim, correction: float, kind: str) -> Expr:
    """What makes the variance of a population that of a sample."""
    if isinstance(count, int):
        factor = count / (count - correction) if count > correction else math.inf if count else math.nan
        # The variance of a single element is zero: times infinity, that is NaN, as in PyTorch.
        return self.scalar(factor, kind)
    size = self.scalar(count, kind)
    others = self.emit(op.maximum(self.emit(op.subtract(size, self.scalar(correction, kind))), self.scalar(0, kind)))
    return self.emit(op.divide(size, others))


CONVERTERS["var"] = _spread(op.variance)
CONVERTERS["std"] = _spread(op.std)


@converter("any")
def _any(self: Importer, x: Expr, dim: Steps | None = None, keepdim: bool = False) -> Expr:
    return self.cast(self.emit(op.max(_as_int(self, x), _axes(dim), keepdim)), "bool")


@converter("all")
def _all(self: Importer, x: Expr, dim: Steps | None = None, keepdim: bool = False) -> Expr:
    return self.cast(self.emit(op.min(_as_int(self, x), _axes(dim), keepdim)), "bool")


def _as_int(self: Importer, x: Expr) -> Expr:
    if dtype_of(x) != "bool":
        x = self.emit(op.not_equal(x, self.scalar(0, dtype_of(x))))
    return self.cast(x, "int8")


def _scan(function: Callable[..., Any]) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, dim: int, *, dtype: torch.dtype | None = None) -> Expr:
        kind = torch_dtype(dtype) if dtype is not None else None
        if kind is None and not dt.is_float(dtype_of(x)):
            kind = "int64"
        return self.emit(function(x, dim, kind))

    return convert


CONVERTERS["cumsum"] = _scan(op.cumsum)
CONVERTERS["cumprod"] = _scan(op.cumprod)


def _along_axis(function: Callable[..., Expr]) -> Converter:
    """``function(x, dim)``, in another dtype if one is given; PyTorch's own variants have further arguments before it."""

    def convert(self: Importer, x: Expr, dim: int, *args: Any, dtype: torch.dtype | None = None) -> Expr:
        for arg in args:
            dtype = arg if str(arg).startswith("torch.") else dtype
        return self.emit(function(x if dtype is None else self.cast(x, torch_dtype(dtype)), dim))

    return convert


converter("softmax", "_softmax")(_along_axis(op.nn.softmax))
converter("log_softmax", "_log_softmax")(_along_axis(op.nn.log_softmax))


@converter("_safe_softmax")
def _safe_softmax(self: Importer, x: Expr, dim: int, dtype: torch.dtype | None = None) -> Expr:
    """A row of nothing but -inf gives zeros."""
    x = x if dtype is None else self.cast(x, torch_dtype(dtype))
    lowest = self.scalar(-math.inf, dtype_of(x))
    closed = self.cast(self.emit(op.equal(x, lowest)), "int8")
    empty = self.cast(self.emit(op.min(closed, [dim], True)), "bool")
    return self.emit(op.where(empty, self.scalar(0.0, dtype_of(x)), self.emit(op.nn.softmax(x, dim))))


@converter("logsumexp")
def _logsumexp(self: Importer, x: Expr, dim: Steps | None, keepdim: bool = False) -> Expr:
    axes = _axes(dim)
    top = self.emit(op.max(x, axes, True))
    total = self.emit(op.sum(self.emit(op.exp(self.emit(op.subtract(x, top)))), axes, True))
    out = self.emit(op.add(self.emit(op.log(total)), top))
    return out if keepdim else self.emit(op.squeeze(out, axes))


@converter("norm", "linalg_vector_norm")
def _norm(
    self: Importer,
    x: Expr,
    ord: float = 2,
    dim: Steps | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    **_: Any,
) -> Expr:
    """Norms of order 0 (a count) and infinity (the extremes of magnitude), too; squares of half precision would
    overflow, they are taken in float32."""
    x = x if dtype is None else self.cast(x, torch_dtype(dtype))
    kind = dtype_of(x)
    if kind in ("float16", "bfloat16"):
        return self.cast(_norm(self, self.cast(x, "float32"), ord, dim, keepdim), kind)
    axes = _axes(dim)
    if ord is None or ord == 2:
        return self.emit(op.sqrt(self.emit(op.sum(self.emit(op.multiply(x, x)), axes, keepdim))))
    if ord == 0:
        there = self.cast(self.emit(op.not_equal(x, self.scalar(0.0, kind))), kind)
        return self.emit(op.sum(there, axes, keepdim))
    magnitude = self.emit(op.abs(x))
    if ord == 1:
        return self.emit(op.sum(magnitude, axes, keepdim))
    if math.isinf(ord):
        return self.emit((op.max if ord > 0 else op.min)(magnitude, axes, keepdim))
    power = self.emit(op.power(magnitude, self.scalar(float(ord), kind)))
    total = self.emit(op.sum(power, axes, keepdim))
    return self.emit(op.power(total, self.scalar(1.0 / ord, kind)))


@converter("aminmax")
def _aminmax(self: Importer, x: Expr, *, dim: int | None = None, keepdim: bool = False) -> list[Any]:
    return [self.emit(op.min(x, _axes(dim), keepdim)), self.emit(op.max(x, _axes(dim), keepdim))]


def _with_mean(name: str) -> Callable[..., Any]:
    def convert(self: Importer, x: Expr, dim: Steps | None = None, *args: Any, **kwargs: Any) -> list[Expr]:
        axes = None if isinstance(dim, bool) else dim
        keepdim = kwargs.get("keepdim", args[1] if len(args) > 1 else False)
        spread = CONVERTERS[name](self, x, dim, *args, **kwargs)
        assert self.is_tensor(spread)
        return [spread, self.emit(op.mean(x, _axes(axes), keepdim))]

    return convert


CONVERTERS["var_mean"] = _with_mean("var")
CONVERTERS["std_mean"] = _with_mean("std")
