"""Products as factors times a constant."""

from __future__ import annotations

from math import gcd
from typing import Any

from . import build as B
from ._ir import IntImm, Mul, PrimExpr


def product_terms(e: PrimExpr) -> tuple[list[Any], int]:
    """The factors of a product in order, and its constants multiplied."""
    if type(e) is Mul:
        left, right = product_terms(e.a), product_terms(e.b)
        return [*left[0], *right[0]], left[1] * right[1]
    return ([], e.value) if type(e) is IntImm else ([e], 1)


def _product(dtype: str, factors: list[Any], constant: int) -> PrimExpr:
    """The product, its constant at the end."""
    if not factors:
        return B.const(dtype, constant)
    result: PrimExpr = factors[0]
    for factor in factors[1:]:
        result = Mul(result, factor)
    return result if constant == 1 else B.mul(result, B.const(dtype, constant))


def multiply(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """A product with its constant factors gathered at the end."""
    (left, p), (right, q) = product_terms(a), product_terms(b)
    return _product(a.dtype, [*left, *right], p * q)


def cancel(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    """Two products without their common factors, and those factors; None where there are none."""
    (left, p), (right, q) = product_terms(a), product_terms(b)
    if q == 0:
        return None
    common: list[Any] = []
    rest: list[Any] = []
    left = list(left)
    for factor in right:
        place = next((i for i, other in enumerate(left) if B.deep_equal(factor, other)), None)
        if place is None:
            rest.append(factor)
        else:
            common.append(left.pop(place))
    if not common:
        return None
    unit = gcd(p, q)
    dtype = a.dtype
    return _product(dtype, left, p // unit), _product(dtype, rest, q // unit), _product(dtype, common, unit)
