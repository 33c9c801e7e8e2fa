"""Matrices of Winograd's convolutions, made by the construction of Cook and Toom.

``tile`` outputs of a filter of ``kernel`` taps are the coefficients of a product of polynomials. Both factors are
evaluated at ``n - 1`` points and at infinity (``n = tile + kernel - 1``), the values multiplied, the product
interpolated. Read backwards (transposed) that is a convolution::

    y = A^T ((G g) * (B^T d))

``A`` and ``G`` hold the points' powers, ``B`` the coefficients of the interpolating polynomials.

Source: Lavin and Gray, "Fast algorithms for convolutional neural networks" (CVPR 2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...ir.dtype import numpy_dtype
from ...ir.errors import CheckValueError
from ..utils import const_matrix

__all__ = ["cook_toom", "interpolation_points", "winograd_transform_matrices"]

# For each number of points those with the least rounding error (Barabasz and others, arXiv 1803.10986).
_BEGIN = "0 -1 1 1/2"
_SEVEN = "0 -1 1 1/2 -1/2 2 -2"
_POINTS = {
    3: "0 -1 1", 4: _BEGIN, 5: f"{_BEGIN} -2", 6: f"{_BEGIN} -2 -1/2", 7: _SEVEN, 8: f"{_SEVEN} -1/4",
    9: f"{_SEVEN} -1/4 4", 10: f"{_SEVEN} -1/4 3/4 -4/3", 11: f"{_SEVEN} -1/4 4 3/4 -4/3",
    12: f"{_SEVEN} -1/4 4 3/4 -4/3 1/4", 13: f"{_SEVEN} -1/4 4 1/4 -3/4 4/3 -4",
}  # fmt: skip


def interpolation_points(count: int) -> tuple[Fraction, ...]:
    """The points to use, infinity apart, where ``count`` of them are needed."""
    return tuple(Fraction(text) for text in _POINTS[count].split())


def cook_toom(points: Sequence[Fraction | int], tile: int, kernel: int) -> tuple[Any, Any, Any]:
    """The matrices ``A`` (n, tile), ``B`` (n, n) and ``G`` (n, kernel) in double precision, computed exactly.

    >>> a, b, g = cook_toom([0, 1, -1], 2, 3)
    >>> signal, taps = np.array([1.0, 2, 3, 4]), np.array([1.0, 10, 100])
    >>> (a.T @ ((g @ taps) * (b.T @ signal))).tolist()
    [321.0, 432.0]
    """
    at = [Fraction(point) for point in points]
    n = tile + kernel - 1
    if len(at) != n - 1:
        raise ValueError(f"{tile} outputs of {kernel} taps need {n - 1} points, {len(at)} given")
    scale = [_product(at[i] - other for k, other in enumerate(at) if k != i) for i in range(n - 1)]
    columns = [_polynomial(at[:i] + at[i + 1 :]) + [Fraction(0)] for i in range(n - 1)]
    if scale[0] < 0:
        scale[0] = -scale[0]
        columns[0] = [-x for x in columns[0]]
    columns.append(_polynomial(at))

    def powers(count: int, divisors: Sequence[Fraction]) -> list[list[Fraction]]:
        rows = [[point**j / divisor for j in range(count)] for point, divisor in zip(at, divisors, strict=True)]
        return [*rows, [Fraction(int(j == count - 1)) for j in range(count)]]

    ones = [Fraction(1)] * (n - 1)
    return _array(powers(tile, ones)), _array(columns).T, _array(powers(kernel, scale))


def winograd_transform_matrices(tile_size: int, kernel_size: int, out_dtype: str) -> tuple[Any, Any, Any]:
    """The matrices ``A``, ``B`` and ``G`` as computed tensors of that data type."""
    if not 1 < tile_size < 9:
        raise CheckValueError(f"Unsupported tile size for Winograd: {tile_size}")
    if not 2 < kernel_size < 8:
        raise CheckValueError(f"Unsupported kernel size for Winograd: {kernel_size}")
    a, b, g = cook_toom(interpolation_points(tile_size + kernel_size - 2), tile_size, kernel_size)
    held = numpy_dtype(out_dtype)
    return const_matrix(a.astype(held), "A"), const_matrix(b.astype(held), "B"), const_matrix(g.astype(held), "G")


def _product(factors: Iterable[Fraction]) -> Fraction:
    result = Fraction(1)
    for factor in factors:
        result *= factor
    return result


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of ``x - root``, lowest power first."""
    made = [Fraction(1)]
    for root in roots:
        made = [low - root * high for low, high in zip([Fraction(0), *made], [*made, Fraction(0)], strict=True)]
    return made


def _array(rows: Sequence[Sequence[Fraction]]) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in rows])
