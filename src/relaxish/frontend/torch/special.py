"""Special functions of PyTorch: of two arguments, the inverse of erf, the logarithm of gamma."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import op, te, tir
from ...ir import dtype as dt
from ...relax.expr import Expr
from .importer import dtype_of, Importer, Value
from .table import CONVERTERS, converter

__all__: list[str] = []

# M. Giles' approximations of erfinv(x) / x in w = -log(1 - x * x): around w = 2.5, and for large w in its square root.
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
# Lanczos' series of gamma for g = 7.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _of_two(name: str, scalar: Callable[[Any, Any], Any]) -> None:
    """An operator that TIR has and Relax has not: loops over the common shape."""

    def convert(self: Importer, a: Value, b: Value) -> Expr:
        a, b = (self.floating(v) for v in self.promote(a, b))
        a, b = op_like(self, a, b), op_like(self, b, a)
        return self.builder.emit_te(
            lambda x, y: te.compute(x.shape, lambda *at: scalar(x(*at), y(*at)), name=name),
            a,
            b,
            primfunc_name_hint=name,
        )

    CONVERTERS[name] = convert


def op_like(self: Importer, a: Expr, b: Expr) -> Expr:
    """``a`` in the shape that it has in common with ``b``."""
    sizes: list[Any] = []
    left, right = ([*[1] * (max(self.rank(a), self.rank(b)) - self.rank(v)), *self.shape(v)] for v in (a, b))
    for x, y in zip(left, right, strict=True):
        sizes.append(y if isinstance(x, int) and x == 1 else x)
    return a if sizes == self.shape(a) else self.emit(op.broadcast_to(a, sizes))


_of_two("atan2", tir.atan2)
_of_two("copysign", tir.copysign)


def _number(self: Importer, value: float, x: Expr) -> Expr:
    return self.scalar(value, dtype_of(x))


def _polynomial(self: Importer, coefficients: Sequence[float], x: Expr) -> Expr:
    """Horner's scheme, highest power first."""
    total = _number(self, coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = self.emit(op.add(self.emit(op.multiply(total, x)), _number(self, coefficient, x)))
    return total


@converter("hypot")
def _hypot(self: Importer, a: Expr, b: Expr) -> Expr:
    """Squares of ratios to the larger side do not overflow."""
    a, b = (self.emit(op.abs(self.floating(v))) for v in self.promote(a, b))
    large, small = self.emit(op.maximum(a, b)), self.emit(op.minimum(a, b))
    is_zero = self.emit(op.equal(large, _number(self, 0.0, large)))
    ratio = self.emit(op.divide(small, self.emit(op.where(is_zero, _number(self, 1.0, large), large))))
    one_and = self.emit(op.add(self.emit(op.multiply(ratio, ratio)), _number(self, 1.0, large)))
    return self.emit(op.multiply(large, self.emit(op.sqrt(one_and))))


def _in_float32(convert: Callable[[Importer, Any], Any]) -> Callable[[Importer, Any], Any]:
    """Approximations for float32 serve the narrower types as well."""

    def converted(self: Importer, x: Expr) -> Expr:
        kind = dtype_of(x) if dt.is_float(dtype_of(x)) else "float32"
        return self.cast(convert(self, self.cast(x, "float32")), kind)

    return converted


def _erfinv(self: Importer, x: Expr) -> Expr:
    one = _number(self, 1.0, x)
    inside = self.emit(op.multiply(self.emit(op.subtract(one, x)), self.emit(op.add(one, x))))
    w = self.emit(op.negative(self.emit(op.log(inside))))
    centre = _polynomial(self, _ERFINV_CENTRE, self.emit(op.subtract(w, _number(self, 2.5, x))))
    root = self.emit(op.sqrt(self.emit(op.maximum(w, _number(self, 5.0, x)))))
    tail = _polynomial(self, _ERFINV_TAIL, self.emit(op.subtract(root, _number(self, 3.0, x))))
    near = self.emit(op.less(w, _number(self, 5.0, x)))
    made = self.emit(op.multiply(self.emit(op.where(near, centre, tail)), x))
    ends = self.emit(op.equal(self.emit(op.abs(x)), one))
    return self.emit(op.where(ends, self.emit(op.multiply(x, _number(self, math.inf, x))), made))


def _log_gamma(self: Importer, x: Expr) -> Expr:
    """Lanczos' series for ``x >= 0.5``; below, by reflection."""
    half, one = _number(self, 0.5, x), _number(self, 1.0, x)
    reflected = self.emit(op.less(x, half))
    z = self.emit(op.subtract(self.emit(op.where(reflected, self.emit(op.subtract(one, x)), x)), one))
    total = _number(self, _LANCZOS[0], x)
    for n, coefficient in enumerate(_LANCZOS[1:], 1):
        term = self.emit(op.divide(_number(self, coefficient, x), self.emit(op.add(z, _number(self, float(n), x)))))
        total = self.emit(op.add(total, term))
    base = self.emit(op.add(z, _number(self, 7.5, x)))
    power = self.emit(op.multiply(self.emit(op.add(z, half)), self.emit(op.log(base))))
    rest = self.emit(op.subtract(_number(self, 0.5 * math.log(2 * math.pi), x), base))
    made = self.emit(op.add(self.emit(op.add(power, rest)), self.emit(op.log(total))))
    sine = self.emit(op.abs(self.emit(op.sin(self.emit(op.multiply(x, _number(self, math.pi, x)))))))
    mirror = self.emit(op.subtract(_number(self, math.log(math.pi), x), self.emit(op.log(sine))))
    return self.emit(op.where(reflected, self.emit(op.subtract(mirror, made)), made))


CONVERTERS["erfinv"] = CONVERTERS["erf_inv"] = CONVERTERS["special_erfinv"] = _in_float32(_erfinv)
CONVERTERS["lgamma"] = CONVERTERS["special_gammaln"] = _in_float32(_log_gamma)


@converter("rrelu_with_noise", "rrelu_with_noise_functional")
def _rrelu(
    self: Importer, x: Expr, noise: Expr, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any, **__: Any
) -> list[Expr]:
    """Outside of training, the slope is the mean of the bounds."""
    slope = _number(self, (lower + upper) / 2, x)
    positive = self.emit(op.greater(x, _number(self, 0.0, x)))
    return [self.emit(op.where(positive, x, self.emit(op.multiply(x, slope)))), noise]
