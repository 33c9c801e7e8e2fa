"""Upsampling of images by factors."""

from __future__ import annotations

from collections.abc import Sequence

from ... import te, tir
from ...arith import Analyzer
from ...tir import PrimExpr
from ..image import resize2d, resize3d

__all__ = ["upsampling", "upsampling3d"]


def upsampling(
    data: te.Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Sequence[int | PrimExpr] | None = None,
) -> te.Tensor:
    """Images with height and width multiplied by ``scale_h`` and ``scale_w``, or of ``output_shape``.

    ``method`` is "nearest_neighbor", "bilinear" or "bicubic"; corners are aligned or coordinates are asymmetric
    (``x_in = x_out / scale``). Raises ValueError for a layout other than NCHW, NHWC and NCHW with blocks of channels.
    """
    base = layout[:4]
    if base not in ("NCHW", "NHWC"):
        raise ValueError(f"not support this layout {layout} yet")
    first = base.index("H")
    if output_shape:
        size: list[int | PrimExpr] = list(output_shape[first : first + 2])
    else:
        size = [_scaled(data.shape[first + i], scale) for i, scale in enumerate((scale_h, scale_w))]
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, [0.0] * 4, size, layout, method.removeprefix("bi"), mode)


def upsampling3d(
    data: te.Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[int | PrimExpr] | None = None,
) -> te.Tensor:
    """Volumes with depth, height and width multiplied by factors, or of ``output_shape``.

    ``method`` is "nearest_neighbor" or "trilinear". Raises ValueError for a layout other than NCDHW and NDHWC.
    """
    if layout not in ("NCDHW", "NDHWC"):
        raise ValueError(f"not support this layout {layout} yet")
    first = layout.index("D")
    if output_shape:
        size: list[int | PrimExpr] = list(output_shape[first : first + 3])
    else:
        size = [_scaled(data.shape[first + i], scale) for i, scale in enumerate((scale_d, scale_h, scale_w))]
    return resize3d(data, [0.0] * 6, size, layout, method.removeprefix("tri"), coordinate_transformation_mode)


def _scaled(extent: PrimExpr, scale: float) -> PrimExpr:
    made = extent * scale
    return Analyzer().simplify(made if made.dtype == extent.dtype else tir.Cast(extent.dtype, tir.round(made)))
