"""Two-dimensional convolutions with 3x3 kernels by Winograd's algorithm.

Six stages: the image padded, cut into overlapping tiles, the tiles transformed (``data_pack``), one small matrix
product for each element of a transformed tile (``bgemm``), its results transformed back (``inverse``), and put together.
The two transforms name the schedule rules that are made for them (``meta_schedule.cuda.conv2d_nhwc_winograd_data_pack``
and so on); products with the constant matrices become additions when their loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import te
from ...target.generic_func import generic_func
from ..utils import get_const_int, get_const_tuple, int_pair, Steps
from .pad import pad
from .utils import get_pad_tuple
from .winograd_util import winograd_transform_matrices
from ...te.tensor import Dim
from ...tir import PrimExpr

__all__ = [
    "conv2d_winograd_nchw", "conv2d_winograd_nchw_without_weight_transform", "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_weight_transform",
]  # fmt: skip

_TILE = 4
_HINT = "auto_scheduler_simplify_const_tensor_indices"


@generic_func
def conv2d_winograd_nhwc(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str, pre_computed: bool = False,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    """Convolution of an NHWC image.

    ``weight`` is ``(3, 3, in, out)``; with ``pre_computed`` the transformed ``(6, 6, out, in)``.
    """
    return _conv2d_winograd_nhwc_impl(
        data, weight, strides, padding, dilation, out_dtype, _TILE, pre_computed, 2, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape,
    )  # fmt: skip


@conv2d_winograd_nhwc.register("gpu")
def _conv2d_winograd_nhwc_gpu(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str, pre_computed: bool = False,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    """The matrix product keeps its results in registers, one level of tiles further in than on CPUs."""
    return _conv2d_winograd_nhwc_impl(
        data, weight, strides, padding, dilation, out_dtype, _TILE, pre_computed, 3, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape,
    )  # fmt: skip


@generic_func
def conv2d_winograd_nchw(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str, pre_computed: bool = False,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    """Convolution of an NCHW image.

    ``weight`` is ``(out, in, 3, 3)``; with ``pre_computed`` the transformed ``(6, 6, in, out)``.
    """
    return _conv2d_winograd_nchw_impl(
        data, weight, strides, padding, dilation, out_dtype, _TILE, pre_computed, None, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape,
    )  # fmt: skip


def conv2d_winograd_nhwc_without_weight_transform(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    """``conv2d_winograd_nhwc`` of a weight that was transformed before."""
    return conv2d_winograd_nhwc(
        data, weight, strides, padding, dilation, out_dtype, True, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape,
    )  # fmt: skip


def conv2d_winograd_nchw_without_weight_transform(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    """``conv2d_winograd_nchw`` of a weight that was transformed before."""
    return conv2d_winograd_nchw(
        data, weight, strides, padding, dilation, out_dtype, True, auto_scheduler_rewritten_layout,
        meta_schedule_original_shape,
    )  # fmt: skip


def conv2d_winograd_weight_transform(kernel: te.Tensor, tile_size: int) -> te.Tensor:
    """The weight ``(out, in, k, k)`` transformed for tiles of ``tile_size``: ``(n, n, in, out)``."""
    out_channels, in_channels = kernel.shape[:2]
    height, width = map(get_const_int, kernel.shape[2:])
    assert height == width, "Only support NxN kernel"
    _, _, g = winograd_transform_matrices(tile_size, height, kernel.dtype)
    r_kh, r_kw = te.reduce_axis((0, height), name="r_kh"), te.reduce_axis((0, width), name="r_kw")
    span = tile_size + height - 1
    return te.compute(
        (span, span, in_channels, out_channels),
        lambda eps, nu, ci, co: te.sum(
            kernel[co, ci, r_kh, r_kw] * g[eps, r_kh] * g[nu, r_kw], axis=[r_kh, r_kw]),
        name="transform_weight",
    )  # fmt: skip


# ---- the computations


@dataclass(frozen=True)
class _Tiles:
    """How images of a batch are cut: output tiles of ``size``, input tiles of ``span``, borders that make all whole."""

    size: int
    span: int
    rows: int
    columns: int
    height: int
    width: int
    before: tuple[int, int]
    after: tuple[int, int]

    def source(self, tile: PrimExpr, eps: PrimExpr, nu: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """Image, row and column of an element of an input tile; tiles of all images are numbered in order."""
        per_image, m = self.rows * self.columns, self.size
        return tile // per_image, tile // self.columns % self.rows * m + eps, tile % self.columns * m + nu

    def place(self, image: PrimExpr, row: PrimExpr, column: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """Tile of an output, and its row and column in the tile."""
        m = self.size
        tile = image * self.rows * self.columns + row // m * self.columns + column // m
        return tile, row % m, column % m


def _cut(
    height: int, width: int, kernel: tuple[int, int], strides: Steps, padding: Steps, dilation: Steps, size: int,
    spare: bool,
) -> _Tiles:  # fmt: skip
    """The tiles of a convolution. ``spare``: the border is never less than what NHWC programs have always had."""
    assert int_pair(dilation) == (1, 1), "Does not support dilation"
    assert int_pair(strides) == (1, 1) and kernel == (3, 3), "only 3x3 kernels that move by one"
    top, left, bottom, right = map(get_const_int, get_pad_tuple(padding, kernel))
    out = height + top + bottom - 2, width + left + right - 2
    rows, columns = -(-out[0] // size), -(-out[1] // size)
    span = size + 2
    extra = (columns - 1) * size + span - (out[0] + top + bottom) if spare else 0
    # What the last tiles reach beyond the padded image.
    more = [(count - 1) * size + span - n - 2 for count, n in zip((rows, columns), out, strict=True)]
    after = bottom + max(extra, more[0]), right + max(extra, more[1])
    return _Tiles(size, span, rows, columns, *out, (top, left), after)


def _product_attrs(weight: te.Tensor, pre_computed: bool, write_cache_level: int | None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"layout_free_placeholders": [weight]} if pre_computed else {}
    if write_cache_level is not None:
        levels = [write_cache_level] if isinstance(write_cache_level, int) else write_cache_level
        attrs["meta_schedule.write_cache_level"] = levels
    return attrs


def _refuse_rewritten(layout: str, shape: Sequence[Dim] | None) -> None:
    if layout or shape:
        raise ValueError("weights whose layout another scheduler has rewritten are not supported")


def _two_axes(extent: int, names: Sequence[str] = ("r_a", "r_b")) -> list[Any]:
    return [te.reduce_axis((0, extent), name=name) for name in names]


def _conv2d_winograd_nhwc_impl(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str, tile_size: int,
    pre_computed: bool = False, write_cache_level: int | None = None, auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    _refuse_rewritten(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    batch, height, width, in_channels = get_const_tuple(data.shape)
    kernel = get_const_int(weight.shape[0]), get_const_int(weight.shape[1])
    *_, x, y = get_const_tuple(weight.shape)
    out_channels = x if pre_computed else y
    if pre_computed:
        kernel = kernel[0] - tile_size + 1, kernel[1] - tile_size + 1
    tiles = _cut(get_const_int(height), get_const_int(width), kernel, strides, padding, dilation, tile_size, spare=True)
    a, b, g = winograd_transform_matrices(tile_size, kernel[1], out_dtype)
    n, count = tiles.span, batch * tiles.rows * tiles.columns
    before, after = [0, *tiles.before, 0], [0, *tiles.after, 0]
    data_pad = pad(data, before, after, name="data_pad", attrs={"schedule_rule": "None"})
    kernel_pack = weight
    if not pre_computed:
        kh, kw = _two_axes(3, ("r_kh", "r_kw"))
        kernel_pack = te.compute(
            (n, n, out_channels, in_channels),
            lambda eps, nu, co, ci: te.sum(weight[kh, kw, ci, co] * g[eps, kh] * g[nu, kw], axis=[kh, kw]),
            name="kernel_pack",
        )
    input_tile = te.compute(
        (n, n, count, in_channels),
        lambda eps, nu, p, ci: data_pad[(*tiles.source(p, eps, nu), ci)],
        name="input_tile",
        attrs={"schedule_rule": "None"},
    )
    ra, rb = _two_axes(n)
    data_pack = te.compute(
        (n, n, count, in_channels),
        lambda eps, nu, p, ci: te.sum(input_tile[ra, rb, p, ci] * b[ra, eps] * b[rb, nu], axis=[ra, rb]),
        name="data_pack",
        attrs={_HINT: ["eps", "nu", "r_a", "r_b"], "schedule_rule": "conv2d_nhwc_winograd_data_pack"},
    )
    rc = te.reduce_axis((0, in_channels), name="ci")
    bgemm = te.compute(
        (n, n, count, out_channels),
        lambda eps, nu, p, co: te.sum(data_pack[eps, nu, p, rc] * kernel_pack[eps, nu, co, rc], axis=[rc]),
        name="bgemm",
        attrs=_product_attrs(kernel_pack, pre_computed, write_cache_level),
    )
    sa, sb = _two_axes(n)
    inverse = te.compute(
        (tile_size, tile_size, count, out_channels),
        lambda vh, vw, p, co: te.sum(bgemm[sa, sb, p, co] * a[sa, vh] * a[sb, vw], axis=[sa, sb]),
        name="inverse",
        attrs={_HINT: ["vh", "vw", "r_a", "r_b"], "schedule_rule": "conv2d_nhwc_winograd_inverse"},
    )

    def result(n: PrimExpr, h: PrimExpr, w: PrimExpr, co: PrimExpr) -> PrimExpr:
        tile, vh, vw = tiles.place(n, h, w)
        return inverse[vh, vw, tile, co]

    return te.compute((batch, tiles.height, tiles.width, out_channels), result, name="conv2d_winograd")


def _conv2d_winograd_nchw_impl(
    data: te.Tensor, weight: te.Tensor, strides: Steps, padding: Steps, dilation: Steps, out_dtype: str, tile_size: int,
    pre_computed: bool = False, write_cache_level: int | None = None, auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Sequence[Dim] | None = None,
) -> te.Tensor:  # fmt: skip
    _refuse_rewritten(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    batch, in_channels, height, width = get_const_tuple(data.shape)
    sizes = get_const_tuple(weight.shape)
    first, second = map(get_const_int, sizes[:2] if pre_computed else sizes[2:])
    kernel = (first - tile_size + 1, second - tile_size + 1) if pre_computed else (first, second)
    out_channels = sizes[3] if pre_computed else sizes[0]
    tiles = _cut(
        get_const_int(height), get_const_int(width), kernel, strides, padding, dilation, tile_size, spare=False
    )
    data_pad = pad(data, [0, 0, *tiles.before], [0, 0, *tiles.after], name="data_pad")
    a, b, g = winograd_transform_matrices(tile_size, kernel[1], out_dtype)
    n, count = tiles.span, batch * tiles.rows * tiles.columns
    kernel_pack = weight
    if not pre_computed:
        kh, kw = _two_axes(3, ("r_kh", "r_kw"))
        kernel_pack = te.compute(
            (n, n, in_channels, out_channels),
            lambda eps, nu, ci, co: te.sum(weight[co, ci, kh, kw] * g[eps, kh] * g[nu, kw], axis=[kh, kw]),
            name="kernel_pack",
        )

    def element(ci: PrimExpr, p: PrimExpr, eps: PrimExpr, nu: PrimExpr) -> PrimExpr:
        image, row, column = tiles.source(p, eps, nu)
        return data_pad(image, ci, row, column)

    input_tile = te.compute((in_channels, count, n, n), element, name="input_tile", attrs={"schedule_rule": "None"})
    ra, rb = _two_axes(n)
    data_pack = te.compute(
        (n, n, in_channels, count),
        lambda eps, nu, ci, p: te.sum(input_tile[ci, p, ra, rb] * b[ra, eps] * b[rb, nu], axis=[ra, rb]),
        name="data_pack",
        attrs={"schedule_rule": "conv2d_nchw_winograd_data_pack"},
    )
    rc = te.reduce_axis((0, in_channels), name="ci")
    bgemm = te.compute(
        (n, n, out_channels, count),
        lambda eps, nu, co, p: te.sum(data_pack[eps, nu, rc, p] * kernel_pack[eps, nu, rc, co], axis=[rc]),
        name="bgemm",
        attrs=_product_attrs(kernel_pack, pre_computed, write_cache_level),
    )
    sa, sb = _two_axes(n)
    inverse = te.compute(
        (out_channels, count, tile_size, tile_size),
        lambda co, p, vh, vw: te.sum(bgemm[sa, sb, co, p] * a[sa, vh] * a[sb, vw], axis=[sa, sb]),
        name="inverse",
        attrs={"schedule_rule": "conv2d_nchw_winograd_inverse"},
    )

    def result(n: PrimExpr, co: PrimExpr, h: PrimExpr, w: PrimExpr) -> PrimExpr:
        tile, vh, vw = tiles.place(n, h, w)
        return inverse[co, tile, vh, vw]

    return te.compute((batch, out_channels, tiles.height, tiles.width), result, name="conv2d_winograd")
