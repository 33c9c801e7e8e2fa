"""Description of the product of row-major matrices that two arrays ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....support.errors import RelaxishError

__all__ = ["Gemm", "describe", "product_shape"]


@dataclass(frozen=True)
class Gemm:
    """``out[b] = activation(scale * lhs[b] @ op(rhs[b]) + bias)`` of row-major matrices.

    Strides are in elements, 0 where all of the batch use one matrix. ``epilogue`` is "", "bias", "bias_relu" or
    "bias_gelu". ``scales`` is "", "one" (a number on the device for the whole product) or "both" (one for each side).
    """

    m: int
    n: int
    k: int
    lhs_dtype: str
    rhs_dtype: str
    out_dtype: str
    transposed_rhs: bool = False
    batch: int = 1
    lhs_stride: int = 0
    rhs_stride: int = 0
    out_stride: int = 0
    epilogue: str = ""
    bias_dtype: str = ""
    scales: str = ""
    tf32: bool = False

    @property
    def accumulator(self) -> str:
        """Type of the accumulators: "float32" also for narrower floats, "tf32" if products may be rounded to it."""
        if self.lhs_dtype in ("int8", "float64"):
            return {"int8": "int32", "float64": "float64"}[self.lhs_dtype]
        return "tf32" if self.tf32 and self.lhs_dtype == "float32" else "float32"

    @property
    def scale_dtype(self) -> str:
        """The dtype of the factors of the product."""
        return "float32" if self.accumulator == "tf32" else self.accumulator


def product_shape(lhs: Sequence[int], rhs: Sequence[int], transposed_rhs: bool = False) -> tuple[int, ...]:
    """The shape of ``lhs @ op(rhs)``, batches broadcast."""
    longer, shorter = (lhs[:-2], rhs[:-2]) if len(lhs) >= len(rhs) else (rhs[:-2], lhs[:-2])
    padded = (1,) * (len(longer) - len(shorter)) + tuple(shorter)
    batch = tuple(b if a == 1 else a for a, b in zip(longer, padded, strict=True))
    return (*batch, lhs[-2], rhs[-2] if transposed_rhs else rhs[-1])


def describe(
    lhs: Sequence[int], rhs: Sequence[int], dtypes: tuple[str, str, str], transposed_rhs: bool = False, **options: Any
) -> Gemm:
    """The product of two arrays of these shapes; ``dtypes`` are those of both sides and of the result.

    Raises RelaxishError for shapes that do not fit, and for batches that one stride does not walk through.
    """
    m, k = lhs[-2:]
    n, other_k = rhs[-2:] if transposed_rhs else (rhs[-1], rhs[-2])
    if k != other_k:
        raise RelaxishError(f"cannot multiply matrices of shapes {tuple(lhs)} and {tuple(rhs)}")
    made = Gemm(m, n, k, *dtypes, transposed_rhs, **options)
    batch = product_shape(lhs, rhs, transposed_rhs)[:-2]
    count = prod(batch)
    if count == 1:
        return made
    walks = [_without_ones(axes[:-2]) == _without_ones(batch) for axes in (lhs, rhs)]
    if walks[0] and prod(rhs[:-2]) == 1:
        return replace(made, m=m * count)  # one right side for all: the batch is just more rows
    if not all(walked or prod(axes[:-2]) == 1 for walked, axes in zip(walks, (lhs, rhs), strict=True)):
        raise RelaxishError(f"batches of shapes {tuple(lhs)} and {tuple(rhs)} have no common stride")
    lhs_stride, rhs_stride = (size if walked else 0 for walked, size in zip(walks, (m * k, k * n), strict=True))
    return replace(made, batch=count, lhs_stride=lhs_stride, rhs_stride=rhs_stride, out_stride=m * n)


def _without_ones(axes: Sequence[int]) -> list[int]:
    """Axes from the first that has more than one element."""
    first = next((i for i, dim in enumerate(axes) if dim != 1), len(axes))
    return list(axes[first:])
