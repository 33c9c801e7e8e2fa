"""Operators on tiles: copies, products, fills, and columns of images."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import ExprLike, PrimExpr, as_expr
from ...ir.prim import And, const, const_int
from ...ir.primops import cast
from ...script.ir_builder import tir as B
from ...tir import Buffer, if_then_else
from ...tir.transform.tiles.names import CLEAR, FRAGMENT, OPTIONS, EVICTIONS, POLICY, SHARED, WIDTH
from .blocks import at, inside_kernel, tile_block
from .regions import Region, Tile, TileError, as_dtype, pair_regions, region_of, takes_regions, tile_region, width_of

__all__ = [
    "GemmWarpPolicy", "async_copy", "c2d_im2col", "clear", "copy", "fill", "gemm", "im2col", "tcgen05_gemm",
    "tma_copy", "transpose", "wgmma_gemm",
]  # fmt: skip


class GemmWarpPolicy(IntEnum):
    """Division of a product's result among the warps of a block."""

    Square = 0
    FullRow = 1
    FullCol = 2


@takes_regions
def copy(
    src: Tile,
    dst: Tile,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy a region. ``A[i, j]`` is the first element of one whose extents come from the other side.

    Outside of an argument, loads give its safe value (0) and stores do nothing. The keywords say how it is done, never what:
    ``coalesced_width`` how many elements a thread copies at once at most, ``disable_tma`` that no bulk copy is taken,
    ``eviction_policy`` what the second-level cache is to keep (sm_80 and later). ``prefer_instruction`` is a wish.
    """
    if loop_layout is not None:
        raise TileError("T.copy(loop_layout=...): layouts are chosen by the compiler; leave it out")
    a, b = region_of(src, "T.copy"), region_of(dst, "T.copy")
    extents, dims_a, dims_b = pair_regions(a, b, "T.copy")
    options: dict[str, Any] = {}
    if coalesced_width is not None:
        options[WIDTH] = width_of(coalesced_width)
    if eviction_policy is not None and eviction_policy not in EVICTIONS:
        raise TileError(f"T.copy(eviction_policy={eviction_policy!r}): policies are {', '.join(sorted(EVICTIONS))}")
    words = [w for w, on in (("disable_tma", disable_tma), (eviction_policy, eviction_policy)) if on]
    if prefer_instruction is not None:
        words.append(f"prefer_{prefer_instruction}")
    if words:
        options[OPTIONS] = [str(w) for w in words]

    def body(v: list[Any]) -> None:
        value = B.BufferLoad(a.buffer, at(a, dims_a, v))
        B.buffer_store(b.buffer, cast(b.dtype, value), at(b, dims_b, v))

    tile_block("copy", extents, "S" * len(extents), body, options)


@takes_regions
def async_copy(src: Tile, dst: Tile, **options: Any) -> None:
    """``T.copy``; whether it waits is the compiler's business, and it is complete where it is needed."""
    copy(src, dst, **options)


@takes_regions
def tma_copy(src: Tile, dst: Tile, **options: Any) -> None:
    """``T.copy`` that asks for the tensor memory accelerator where there is one."""
    copy(src, dst, prefer_instruction="tma", **options)


@takes_regions
def transpose(src: Tile, dst: Tile) -> None:
    """``dst[j, i] = src[i, j]`` of two tiles in the memory of the block."""
    a, dims_a, extents = tile_region(src, "T.transpose")
    b, dims_b, other = tile_region(dst, "T.transpose")
    if len(extents) != 2 or len(other) != 2 or values_of(extents) != values_of(other)[::-1]:
        raise TileError(f"T.transpose: {a.text()} is not the transpose of {b.text()}")

    def body(v: list[Any]) -> None:
        value = B.BufferLoad(a.buffer, at(a, dims_a, v[::-1]))
        B.buffer_store(b.buffer, cast(b.dtype, value), at(b, dims_b, v))

    tile_block("copy", other, "SS", body, name="transpose")


def values_of(extents: Sequence[Any]) -> list[Any]:
    """Constants as numbers, other extents as they are."""
    return [const_int(e, e) for e in extents]


@takes_regions
def fill(buffer: Tile, value: ExprLike) -> None:
    """Set every element of a region."""
    region, dims, extents = tile_region(buffer, "T.fill")

    def body(v: list[Any]) -> None:
        B.buffer_store(region.buffer, _scalar(value, region.dtype), at(region, dims, v))

    tile_block("fill", extents, "S" * len(extents), body)


def _scalar(value: ExprLike, dtype: str) -> PrimExpr:
    return const(value, dtype) if isinstance(value, (int, float)) else cast(dtype, as_expr(value))


@takes_regions
def clear(buffer: Tile) -> None:
    """Set every element of a region to zero."""
    fill(buffer, 0)


# -- products

_PRODUCTS = {
    "float16": ("float16", "float32"), "bfloat16": ("float32",), "float32": ("float32",), "float64": ("float64",),
    "int8": ("int32",), "uint8": ("int32",), "int4": ("int32",), "uint4": ("int32",), "int32": ("int32",),
    "float8_e4m3fn": ("float16", "float32"), "float8_e5m2": ("float16", "float32"),
}  # fmt: skip


@takes_regions
def gemm(
    A: Tile,
    B_: Tile | None = None,
    C: Tile | None = None,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: bool = False,
    k_pack: int = 1,
    mbar: Any = None,
    wg_wait: int = 0,
    **named: Any,
) -> None:
    """``C += op(A) @ op(B)``, or ``C =`` with ``clear_accum``, where ``op`` transposes if so asked.

    A lies in shared memory or a fragment, B in shared memory, C in a fragment. ``policy`` says how warps share C.
    """
    if "B" in named:
        B_ = named.pop("B")
    if named:
        raise TypeError(f"T.gemm got an unexpected argument {next(iter(named))!r}")
    if mbar is not None:
        raise TileError("T.gemm(mbar=...): products are complete where they are read; leave it out")
    del k_pack, wg_wait
    a, dims_a, shape_a = matrix_of(A, "T.gemm", "A")
    b, dims_b, shape_b = matrix_of(B_, "T.gemm", "B")
    c, dims_c, shape_c = matrix_of(C, "T.gemm", "C")
    m, k = values_of(shape_a)[::-1] if transpose_A else values_of(shape_a)
    n, depth = values_of(shape_b) if transpose_B else values_of(shape_b)[::-1]
    if [m, n] != values_of(shape_c) or k != depth:
        raise TileError(
            f"T.gemm: C{values_of(shape_c)} += {'A^T' if transpose_A else 'A'}{values_of(shape_a)} @ "
            f"{'B^T' if transpose_B else 'B'}{values_of(shape_b)} does not fit"
        )
    check_product("T.gemm", a, b, c)

    def body(v: list[Any]) -> None:
        i, j, r = v
        left = B.BufferLoad(a.buffer, at(a, dims_a, [r, i] if transpose_A else [i, r]))
        right = B.BufferLoad(b.buffer, at(b, dims_b, [j, r] if transpose_B else [r, j]))
        place = at(c, dims_c, [i, j])
        if clear_accum:
            with B.init():
                B.buffer_store(c.buffer, const(0, c.dtype), place)
        B.buffer_store(c.buffer, B.BufferLoad(c.buffer, place) + cast(c.dtype, left) * cast(c.dtype, right), place)

    attrs: dict[str, Any] = {POLICY: int(policy)}
    if clear_accum:
        attrs[CLEAR] = 1
    tile_block("gemm", [as_expr(m), as_expr(n), as_expr(k)], "SSR", body, attrs)


def matrix_of(x: Tile | None, op: str, what: str) -> tuple[Region, list[int], list[Any]]:
    """An operand as a matrix: dimensions of size 1 count where there are not two others. Raises TileError."""
    region, dims, shape = tile_region(x, op)
    rank = len(region.bases)
    if len(dims) > 2 or rank < 2:
        raise TileError(f"{op}: {what} is a matrix, not {region.text()}")
    if len(dims) < 2:
        dims = [rank - 2, rank - 1]
        assert region.extents is not None
        shape = [region.extents[d] for d in dims]
    return region, dims, shape


def check_product(op: str, a: Region, b: Region, c: Region) -> None:
    """Raise TileError where operands lie in other memory than a product takes, or have types that it does not sum."""
    if c.buffer.scope() != FRAGMENT:
        raise TileError(f"{op}: C is a fragment (T.alloc_fragment), {c.buffer.name} has scope {c.buffer.scope()!r}")
    if a.buffer.scope() not in (*SHARED, FRAGMENT):
        raise TileError(f"{op}: A lies in shared memory or a fragment, {a.buffer.name} has scope {a.buffer.scope()!r}")
    if b.buffer.scope() not in SHARED:
        raise TileError(
            f"{op}: B lies in shared memory (T.alloc_shared), {b.buffer.name} has scope {b.buffer.scope()!r}"
        )
    same = a.dtype == b.dtype or {a.dtype, b.dtype} <= {"int8", "uint8"} or (dt.bits(a.dtype) == dt.bits(b.dtype) == 8)
    if not same or c.dtype not in _PRODUCTS.get(a.dtype, ()):
        raise TileError(
            f"{op}: no product of {a.dtype} and {b.dtype} with sums of {c.dtype}; sums of {a.dtype} are "
            f"{' or '.join(_PRODUCTS.get(a.dtype, ('not made',)))}"
        )


@takes_regions
def wgmma_gemm(A: Tile, B: Tile, C: Tile, **options: Any) -> None:
    """``T.gemm``: the planner takes ``wgmma`` where the target has it and the tile fits."""
    gemm(A, B, C, **options)


def tcgen05_gemm(*args: Any, **options: Any) -> None:
    """Products in tensor memory are Blackwell's (sm_100), which this compiler does not write for."""
    raise TileError(
        "T.tcgen05_gemm needs the tensor memory of sm_100; programs here are for sm_53 to sm_90a: use T.gemm, which takes the unit "
        "that the target has"
    )


# -- images


def im2col(
    img: Buffer,
    col: Tile,
    nhw_step: PrimExpr | int,
    c_step: PrimExpr | int,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
) -> None:
    """Fetch a tile of the matrix that a convolution multiplies: rows are places of the output, columns (kernel row, kernel
    column, channel). ``img`` is NHWC; the tile begins at row ``nhw_step * rows`` and column ``c_step * columns``."""
    inside_kernel("T.im2col")
    if len(img.shape) != 4:
        raise TileError(f"T.im2col: images are NHWC, {img.name} has {len(img.shape)} dimensions")
    region, dims, extents = tile_region(col, "T.im2col")
    if len(extents) != 2:
        raise TileError(f"T.im2col: {region.text()} is no matrix")
    _, height, width, channels = img.shape
    reach = dilation * (kernel - 1) + 1
    out_h = (height + 2 * pad - reach) // stride + 1
    out_w = (width + 2 * pad - reach) // stride + 1

    def body(v: list[Any]) -> None:
        row, column = nhw_step * extents[0] + v[0], c_step * extents[1] + v[1]
        tap = column // channels
        h = row % (out_h * out_w) // out_w * stride + tap // kernel * dilation - pad
        w = row % out_w * stride + tap % kernel * dilation - pad
        load = B.BufferLoad(img, [row // (out_h * out_w), h, w, column % channels])
        inside = And(And(h >= 0, h < height), And(And(w >= 0, w < width), tap < kernel * kernel))
        value = if_then_else(inside, load, const(0, img.dtype))
        B.buffer_store(region.buffer, cast(region.dtype, value), at(region, dims, v))

    tile_block("copy", extents, "SS", body, name="im2col")


c2d_im2col = im2col
_ = as_dtype
