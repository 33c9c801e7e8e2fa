"""The library call ``cublas.gemm``: operands are both sides, then the bias, then the scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...kernels.external import register_kernel
from ...arrays.ndarray import NDArray
from .gemm import run_gemm
from .gemm_problem import product_shape


def _shape(shapes: Sequence[tuple[int, ...]], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    return product_shape(shapes[0], shapes[1], attrs["transposed_rhs"])


def _run(inputs: Sequence[NDArray], out: NDArray, attrs: Mapping[str, Any]) -> None:
    lhs, rhs, *rest = inputs
    bias = rest.pop(0) if attrs["bias"] else None
    run_gemm(
        lhs, rhs, out, transposed_rhs=attrs["transposed_rhs"], bias=bias, activation=attrs["activation"], scales=rest,
        tf32=attrs["tf32"],
    )  # fmt: skip


register_kernel("cublas.gemm", _shape, _run)
