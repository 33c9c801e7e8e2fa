"""Complex tensors of PyTorch, held as two real ones while a program is imported, and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import op
from ...ir.expr import as_expr
from ...relax.expr import Expr
from ...support.errors import OpNotImplemented
from ..fourier import FourierTransform
from .importer import Dim, dtype_of, Importer, torch_dtype
from .table import converter, Converter, find

__all__ = ["ComplexPair", "complex_of", "for_pairs"]


class ComplexPair:
    """The real and the imaginary part of a complex tensor."""

    def __init__(self, real: Expr, imaginary: Expr) -> None:
        self.real, self.imaginary = real, imaginary

    def map(self, change: Callable[[Expr], Any]) -> ComplexPair:
        """Both parts changed in one way."""
        return ComplexPair(change(self.real), change(self.imaginary))


#: An operand of arithmetic of which one is complex.
_Operand = ComplexPair | Expr | complex

#: Converters that are called if an argument is complex.
_OF_PAIRS: dict[str, Converter] = {}

#: Operators that move elements: what they do to a complex tensor they do to both parts.
_MOVES = (
    "view", "reshape", "_unsafe_view", "transpose", "permute", "unsqueeze", "squeeze", "slice", "select", "expand",
    "clone", "flatten", "t", "roll", "flip", "neg", "index_select",
)  # fmt: skip


def for_pairs(name: str, args: Sequence[Any]) -> Converter | None:
    """The converter of an operator, if one of its arguments is complex; else None.

    Raises OpNotImplemented for an operator that is none of complex numbers here.
    """
    parts = [p for a in args for p in (a if isinstance(a, (list, tuple)) else [a])]
    if not any(isinstance(p, ComplexPair) for p in parts):
        return None
    base = name.partition(".")[0]
    if base in _MOVES:
        inner = find(name)
        assert inner is not None
        return lambda self, x, *more, **options: x.map(lambda part: inner(self, part, *more, **options))
    if base not in _OF_PAIRS:
        raise OpNotImplemented(f"{name} of complex numbers")
    return _OF_PAIRS[base]


def _paired(*names: str) -> Callable[[Converter], Converter]:
    def register(function: Converter) -> Converter:
        for name in names:
            _OF_PAIRS[name] = function
        return function

    return register


# ---- from real numbers and back


@converter("complex")
def _complex(self: Importer, real: Expr, imaginary: Expr) -> Any:
    return ComplexPair(real, imaginary)


@converter("polar")
def _polar(self: Importer, size: Expr, angle: Expr) -> Any:
    return ComplexPair(*(self.emit(op.multiply(size, self.emit(f(angle)))) for f in (op.cos, op.sin)))


def complex_of(self: Importer, x: Expr, dtype: torch.dtype) -> ComplexPair:
    """A real tensor as a complex one."""
    real = self.cast(x, torch_dtype(dtype.to_real()))
    return ComplexPair(real, self.emit(op.zeros_like(real)))


@converter("view_as_complex")
def _as_complex(self: Importer, x: Expr) -> Any:
    last = self.rank(x) - 1
    parts = [self.emit(op.strided_slice(x, [last], [k], [k + 1])) for k in range(2)]
    return ComplexPair(*(self.emit(op.squeeze(p, [last])) for p in parts))


@converter("view_as_real")
@_paired("view_as_real")
def _as_real(self: Importer, x: ComplexPair) -> Expr:
    rank = self.rank(x.real)
    return self.emit(op.concat([self.emit(op.expand_dims(p, rank)) for p in (x.real, x.imaginary)], rank))


@converter("real")
@_paired("real")
def _real(self: Importer, x: ComplexPair | Expr) -> Expr:
    return x.real if isinstance(x, ComplexPair) else x


@converter("imag")
@_paired("imag")
def _imaginary(self: Importer, x: ComplexPair) -> Expr:
    return x.imaginary


@_paired("abs")
def _size(self: Importer, x: ComplexPair) -> Expr:
    return self.emit(op.sqrt(_power(self, x)))


def _power(self: Importer, x: ComplexPair) -> Expr:
    return self.emit(op.add(*(self.emit(op.multiply(p, p)) for p in (x.real, x.imaginary))))


@converter("_conj", "conj", "_conj_physical")
@_paired("_conj", "conj", "_conj_physical")
def _conjugate(self: Importer, x: ComplexPair | Expr) -> Any:
    return ComplexPair(x.real, self.emit(op.negative(x.imaginary))) if isinstance(x, ComplexPair) else x


@_paired("resolve_conj", "resolve_neg")
def _resolved(self: Importer, x: ComplexPair) -> Any:
    return x


# ---- arithmetic


def _as_pair(self: Importer, x: _Operand, like: ComplexPair) -> ComplexPair:
    if isinstance(x, ComplexPair):
        return x
    kind = dtype_of(like.real)
    if isinstance(x, complex):
        return ComplexPair(self.scalar(x.real, kind), self.scalar(x.imag, kind))
    return ComplexPair(self.cast(self.tensor(x, like.real), kind), self.scalar(0.0, kind))


def _pairs(self: Importer, a: _Operand, b: _Operand) -> tuple[ComplexPair, ComplexPair]:
    like = a if isinstance(a, ComplexPair) else b
    assert isinstance(like, ComplexPair)
    return _as_pair(self, a, like), _as_pair(self, b, like)


def _sum(sign: Callable[[Expr, Expr], Expr]) -> Converter:
    def convert(self: Importer, a: _Operand, b: _Operand, *, alpha: float = 1) -> Any:
        left, right = _pairs(self, a, b)
        if alpha != 1:
            right = right.map(lambda p: self.emit(op.multiply(p, self.scalar(alpha, dtype_of(p)))))
        real = self.emit(sign(left.real, right.real))
        return ComplexPair(real, _wide(self, self.emit(sign(left.imaginary, right.imaginary)), real))

    return convert


def _wide(self: Importer, x: Expr, like: Expr) -> Expr:
    """A part of the other part's shape: numbers have no imaginary part of their own shape."""
    return x if self.rank(x) == self.rank(like) else self.emit(op.broadcast_to(x, self.shape(like)))


_OF_PAIRS["add"], _OF_PAIRS["sub"] = _sum(op.add), _sum(op.subtract)


@_paired("mul")
def _product(self: Importer, a: _Operand, b: _Operand) -> Any:
    if not isinstance(a, ComplexPair):
        a, b = b, a
    assert isinstance(a, ComplexPair)
    if not isinstance(b, (ComplexPair, complex)):
        by = self.cast(self.tensor(b, a.real), dtype_of(a.real))
        return a.map(lambda p: self.emit(op.multiply(p, by)))
    b = _as_pair(self, b, a)

    def times(x: Expr, y: Expr) -> Expr:
        return self.emit(op.multiply(x, y))

    return ComplexPair(
        self.emit(op.subtract(times(a.real, b.real), times(a.imaginary, b.imaginary))),
        self.emit(op.add(times(a.real, b.imaginary), times(a.imaginary, b.real))),
    )


@_paired("div")
def _quotient(self: Importer, a: _Operand, b: _Operand) -> Any:
    if isinstance(b, (ComplexPair, complex)):
        left, right = _pairs(self, a, b)
        power = _power(self, right)
        made = _product(self, left, _conjugate(self, right))
        assert isinstance(made, ComplexPair)
        return made.map(lambda p: self.emit(op.divide(p, power)))
    assert isinstance(a, ComplexPair)
    by = self.cast(self.tensor(b, a.real), dtype_of(a.real))
    return a.map(lambda p: self.emit(op.divide(p, by)))


@_paired("cat")
def _joined(self: Importer, parts: Sequence[ComplexPair], dim: int = 0) -> Any:
    axis = self.axis(parts[0].real, dim)
    return ComplexPair(
        self.emit(op.concat([p.real for p in parts], axis)), self.emit(op.concat([p.imaginary for p in parts], axis))
    )


# ---- Fourier transforms


def _scale(self: Importer, x: Expr, sizes: Sequence[Dim], how: int) -> Expr:
    """PyTorch's normalisations: none, by the root of the number of elements, or by their number."""
    if not how:
        return x
    total: Any = math.prod(sizes) if all(isinstance(s, int) for s in sizes) else None
    kind = dtype_of(x)
    if total is not None:
        return self.emit(op.multiply(x, self.scalar(1 / (total if how == 2 else math.sqrt(total)), kind)))
    count: Any = 1
    for size in sizes:
        count = count * size
    by = self.scalar(count, kind)
    return self.emit(op.divide(x, by if how == 2 else self.emit(op.sqrt(by))))


class _Along:
    """A transform along one axis; ``swapped`` has that axis last."""

    def __init__(self, self_: Importer, x: Expr, axis: int, length: Dim, inverse: bool) -> None:
        self.importer, rank = self_, self_.rank(x)
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        self.order = None if axis == rank - 1 else order
        self.work = FourierTransform(self_.builder, as_expr(length), dtype_of(x), inverse)

    def swapped(self, x: Expr) -> Expr:
        return x if self.order is None else self.importer.emit(op.permute_dims(x, self.order))


def _forward(self: Importer, x: Expr | ComplexPair, axis: int, inverse: bool, half: bool = False) -> ComplexPair:
    real, imaginary = (x.real, x.imaginary) if isinstance(x, ComplexPair) else (x, None)
    size = self.shape(real)[axis]
    along = _Along(self, real, axis, size, inverse)
    rows = along.swapped(real)
    made = along.work.forward(
        rows, None if imaginary is None else along.swapped(imaginary), as_expr(size // 2 + 1 if half else size)
    )
    return ComplexPair(*(along.swapped(m) for m in made))


@converter("_fft_r2c")
def _from_real(self: Importer, x: Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    axes = [self.axis(x, d) for d in dim]
    sizes = [self.shape(x)[a] for a in axes]
    made = _forward(self, x, axes[-1], False, onesided)
    for axis in axes[:-1]:
        made = _forward(self, made, axis, False)
    return made.map(lambda p: _scale(self, p, sizes, normalization))


@converter("_fft_c2c")
@_paired("_fft_c2c")
def _complex_transform(self: Importer, x: ComplexPair, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    axes = [self.axis(x.real, d) for d in dim]
    sizes = [self.shape(x.real)[a] for a in axes]
    for axis in axes:
        x = _forward(self, x, axis, not forward)
    return x.map(lambda p: _scale(self, p, sizes, normalization))


@converter("_fft_c2r")
@_paired("_fft_c2r")
def _to_real(self: Importer, x: ComplexPair, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> Expr:
    axes = [self.axis(x.real, d) for d in dim]
    (last,) = self.dims([last_dim_size])
    sizes = [*(self.shape(x.real)[a] for a in axes[:-1]), last]
    for axis in axes[:-1]:
        x = _forward(self, x, axis, True)
    along = _Along(self, x.real, axes[-1], last, True)
    bins = as_expr(self.shape(x.real)[axes[-1]])
    made = along.work.real_again(along.swapped(x.real), along.swapped(x.imaginary), bins)
    return _scale(self, along.swapped(made), sizes, normalization)
