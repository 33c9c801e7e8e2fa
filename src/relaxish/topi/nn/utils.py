"""Paddings and strides of convolutions: what the notations mean, and what gave shapes their sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import CheckValueError
from ...tir import PrimExpr
from ..utils import get_const_tuple, Padding, simplify
from .conv import pad_pair
from ... import te
from ...te.tensor import Dim

__all__ = [
    "get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d", "get_pad_tuple_generic", "infer_pad", "infer_pad3d",
    "infer_stride",
]  # fmt: skip


def get_pad_tuple_generic(padding: Padding, kernel: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Borders before and after every axis of a kernel of any rank."""
    if isinstance(padding, (tuple, list)) and len(padding) not in (len(kernel), 2 * len(kernel)):
        raise CheckValueError(f"Size of padding can only be {len(kernel)} or {2 * len(kernel)}")
    return pad_pair(padding, kernel)


def get_pad_tuple(padding: Padding, kernel: Sequence[Dim]) -> tuple[Dim, Dim, Dim, Dim]:
    """Borders at the top, left, bottom and right.

    >>> get_pad_tuple("SAME", (3, 4))
    (1, 2, 1, 1)
    """
    before, after = get_pad_tuple_generic(padding, kernel)
    return (before[0], before[1], after[0], after[1])


def get_pad_tuple1d(padding: Padding, kernel: Dim | Sequence[Dim]) -> tuple[Dim, Dim]:
    """Borders at the left and right."""
    size = kernel if isinstance(kernel, (int, PrimExpr)) else kernel[0]
    before, after = get_pad_tuple_generic(padding, [size])
    return before[0], after[0]


def get_pad_tuple3d(padding: Padding, kernel: Sequence[Dim]) -> tuple[Dim, Dim, Dim, Dim, Dim, Dim]:
    """Borders at the front, top, left, back, bottom and right."""
    before, after = get_pad_tuple_generic(padding, kernel)
    return (before[0], before[1], before[2], after[0], after[1], after[2])


def infer_pad(data: te.Tensor, data_pad: te.Tensor | None) -> tuple[Dim, Dim]:
    """Half of what padding added to the two spatial axes of an NCHW tensor; ``data_pad`` is ``None`` without padding."""
    if data_pad is None:
        return 0, 0
    pads = _halves(data, data_pad, 2)
    return pads[0], pads[1]


def infer_pad3d(data: te.Tensor, data_pad: te.Tensor | None, layout: str) -> tuple[Dim, Dim, Dim]:
    """Half of what padding added to the three spatial axes."""
    if data_pad is None:
        return 0, 0, 0
    if layout not in ("NDHWC", "NCDHW"):
        raise CheckValueError(f"Layout {layout} is not supported")
    pads = _halves(data, data_pad, layout.index("D"), 3)
    return pads[0], pads[1], pads[2]


def infer_stride(data: te.Tensor, kernel: te.Tensor, out: te.Tensor) -> tuple[Dim, Dim]:
    """The strides of an NCHW convolution, from the shapes of its padded input, kernel and output."""
    sizes = [get_const_tuple(t.shape)[2:4] for t in (data, kernel, out)]
    steps = [simplify((n - k) // (o - 1)) for n, k, o in zip(*sizes, strict=True)]
    return steps[0], steps[1]


def _halves(data: te.Tensor, padded: te.Tensor, first: int, count: int = 2) -> list[Dim]:
    shapes = [get_const_tuple(t.shape)[first : first + count] for t in (data, padded)]
    return [(wide - narrow) // 2 for narrow, wide in zip(*shapes, strict=True)]
