"""One-operand element-wise operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from .. import te, tir
from ..tir import const, PrimExpr
from . import tag as tags
from .utils import ax_compute
from ..ir import Span
from ..te.tensor import Dim, ExprLike

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cast", "ceil", "clip", "cos", "cosh", "elemwise_sum",
    "erf", "exp", "fast_erf", "fast_exp", "fast_tanh", "floor", "full", "full_like", "identity", "isfinite", "isinf",
    "isnan", "log", "log10", "log2", "negative", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square",
    "tan", "tanh", "trunc",
]  # fmt: skip

Scalar = Callable[[Any], Any]


def _elemwise(name: str, scalar: Scalar) -> Callable[[te.Tensor], te.Tensor]:
    def apply(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: scalar(x(*i)), "compute", tags.ELEMWISE)

    apply.__name__ = name
    apply.__doc__ = f"Element-wise ``{name}``."
    return apply


abs = _elemwise("abs", tir.abs)
acos = _elemwise("acos", tir.acos)
acosh = _elemwise("acosh", tir.acosh)
asin = _elemwise("asin", tir.asin)
asinh = _elemwise("asinh", tir.asinh)
atan = _elemwise("atan", tir.atan)
atanh = _elemwise("atanh", tir.atanh)
ceil = _elemwise("ceil", tir.ceil)
cos = _elemwise("cos", tir.cos)
cosh = _elemwise("cosh", tir.cosh)
erf = fast_erf = _elemwise("erf", tir.erf)
exp = fast_exp = _elemwise("exp", tir.exp)
floor = _elemwise("floor", tir.floor)
identity = _elemwise("identity", lambda x: x)
isfinite = _elemwise("isfinite", tir.isfinite)
isinf = _elemwise("isinf", tir.isinf)
isnan = _elemwise("isnan", tir.isnan)
log = _elemwise("log", tir.log)
log10 = _elemwise("log10", tir.log10)
log2 = _elemwise("log2", tir.log2)
negative = _elemwise("negative", lambda x: -x)
round = _elemwise("round", tir.round)
rsqrt = _elemwise("rsqrt", tir.rsqrt)
sigmoid = _elemwise("sigmoid", tir.sigmoid)
sin = _elemwise("sin", tir.sin)
sinh = _elemwise("sinh", tir.sinh)
sqrt = _elemwise("sqrt", tir.sqrt)
square = _elemwise("square", lambda x: x * x)
tan = _elemwise("tan", tir.tan)
tanh = fast_tanh = _elemwise("tanh", tir.tanh)
trunc = _elemwise("trunc", tir.trunc)


def sign(x: te.Tensor) -> te.Tensor:
    """-1, 0 or 1 by the sign of each element."""
    zero, one, minus = const(0, x.dtype), const(1, x.dtype), const(-1, x.dtype)

    def scalar(indices: list[PrimExpr]) -> PrimExpr:
        value = x(*indices)
        below = tir.Select(tir.LT(value, zero), minus, zero)
        return tir.Select(tir.LT(zero, value), one, below)

    return ax_compute(x.shape, scalar, "T_sign", tags.ELEMWISE)


@overload
def cast(x: te.Tensor, dtype: str, span: Span | None = None) -> te.Tensor: ...


@overload
def cast(x: ExprLike, dtype: str, span: Span | None = None) -> PrimExpr: ...


def cast(x: te.Tensor | ExprLike, dtype: str, span: Span | None = None) -> te.Tensor | PrimExpr:
    """Every element converted to ``dtype``."""
    if isinstance(x, te.Tensor):
        return te.compute(x.shape, lambda *i: x(*i).astype(dtype), "compute", tags.ELEMWISE)
    return tir.convert(x).astype(dtype)


def clip(x: te.Tensor, a_min: te.Tensor | ExprLike, a_max: te.Tensor | ExprLike) -> te.Tensor:
    """Elements limited to ``[a_min, a_max]``."""

    def limited(*indices: PrimExpr) -> PrimExpr:
        value = x(*indices)
        low = tir.Cast(value.dtype, a_min()) if isinstance(a_min, te.Tensor) else _typed(a_min, value.dtype)
        high = tir.Cast(value.dtype, a_max()) if isinstance(a_max, te.Tensor) else _typed(a_max, value.dtype)
        return tir.max(tir.min(value, high), low)

    return te.compute(x.shape, limited, "compute", tags.ELEMWISE)


def _typed(value: ExprLike, dtype: str) -> PrimExpr:
    if isinstance(value, tir.PrimExpr):
        return value.astype(dtype)
    if dtype.startswith(("int", "uint")) and isinstance(value, float):
        # Bounds outside an integer type's range (infinities included) limit nothing.
        from ..ir import dtype as dt

        low, high = dt.min_value(dtype), dt.max_value(dtype)
        value = high if value >= high else low if value <= low else int(value)
    return const(value, dtype)


def full(shape: Sequence[Dim], dtype: str, fill_value: te.Tensor | ExprLike) -> te.Tensor:
    """A tensor of one value; ``fill_value`` may be a scalar tensor."""

    return ax_compute([tir.convert(s) for s in shape], lambda _: _scalar(fill_value, dtype), "T_full", tags.ELEMWISE)


def full_like(x: te.Tensor, fill_value: te.Tensor | ExprLike) -> te.Tensor:
    """A tensor of one value, shaped and typed as ``x``."""
    return ax_compute(x.shape, lambda i: _scalar(fill_value, x.dtype), "T_full_like", tags.ELEMWISE)


def _scalar(value: te.Tensor | ExprLike, dtype: str) -> PrimExpr:
    match value:
        case te.Tensor():
            return value().astype(dtype)
        case tir.PrimExpr():
            return value.astype(dtype)
    return const(value, dtype)


def elemwise_sum(xs: Sequence[te.Tensor]) -> te.Tensor:
    """The sum of several tensors of one shape."""

    def total(indices: list[PrimExpr]) -> PrimExpr:
        result: PrimExpr = xs[0](*indices)
        for x in xs[1:]:
            result = result + x(*indices)
        return result

    return ax_compute(xs[0].shape, total, "T_elemwise_sum", tags.ELEMWISE)
