"""Running sums and products on a GPU.

Along the last axis a block takes one line, stretch by stretch: a scan in shared memory, in which each element takes over
from 1, 2, 4, ... before, and a carry from stretch to stretch. Along other axes a thread takes one line: neighbouring
threads then read neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...tir import Buffer, const, decl_buffer, floordiv, PrimExpr, Stmt
from ...tir.ir_builder import BufferVar, create, IRBuilder
from ..shape import reshape
from ..utils import normalize_axis, prod
from .grid import Lines, barrier, launch, max_threads

__all__ = ["cumprod", "cumsum", "exclusive_scan", "inclusive_scan", "scanop"]

Combine = Callable[[Any, Any], Any]
_STRETCH = 256


def _i64(value: int) -> PrimExpr:
    return const(value, "int64")


def _scan_by_blocks(
    ib: IRBuilder, data: BufferVar, out: BufferVar, lines: Lines, combine: Combine, first: PrimExpr, exclusive: bool
) -> None:
    threads = max_threads(_STRETCH)
    n, dtype = lines.length, str(out.dtype)
    with launch(ib, lines.count, threads) as (line, tx):
        shared = [ib.allocate(dtype, (threads,), name="part", scope="shared") for _ in range(2)]
        carry = ib.allocate(dtype, (1,), name="carry", scope="local")
        carry[0] = first
        with ib.for_range(
            _i64(0), floordiv(n + (threads - 1), _i64(threads)), name="stretch", dtype="int64"
        ) as stretch:
            place = ib.let("place", stretch * threads + tx)
            shared[0][tx] = first
            with ib.if_scope(place < n):
                shared[0][tx] = data[lines.at(line, place)].astype(dtype)
            barrier(ib)
            source, target = shared
            step = 1
            while step < threads:
                target[tx] = source[tx]
                with ib.if_scope(tx >= step):
                    target[tx] = combine(source[tx - step], source[tx])
                barrier(ib)
                source, target, step = target, source, step * 2
            with ib.if_scope(place < n):
                if exclusive:
                    out[lines.at(line, place)] = carry[0]
                    with ib.if_scope(tx > 0):
                        out[lines.at(line, place)] = combine(carry[0], source[tx - 1])
                else:
                    out[lines.at(line, place)] = combine(carry[0], source[tx])
            carry[0] = combine(carry[0], source[threads - 1])
            barrier(ib)


def _scan_by_threads(
    ib: IRBuilder, data: BufferVar, out: BufferVar, lines: Lines, combine: Combine, first: PrimExpr, exclusive: bool
) -> None:
    threads = max_threads(_STRETCH)
    dtype = str(out.dtype)
    with launch(ib, floordiv(lines.count + (threads - 1), _i64(threads)), threads) as (block, tx):
        line = ib.let("line", block * threads + tx)
        carry = ib.allocate(dtype, (1,), name="carry", scope="local")
        with ib.if_scope(line < lines.count):
            carry[0] = first
            with ib.for_range(_i64(0), lines.length, name="k", dtype="int64") as k:
                at = lines.at(line, k)
                if exclusive:
                    out[at] = carry[0]
                    carry[0] = combine(carry[0], data[at].astype(dtype))
                else:
                    carry[0] = combine(carry[0], data[at].astype(dtype))
                    out[at] = carry[0]


def scanop(
    data: te.Tensor,
    binop: Combine,
    identity_value: float,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    workspace: te.Tensor | None = None,
) -> te.Tensor:
    """A running combination along ``axis`` (of the flat data, if none is given).

    ``workspace`` is what Thrust would need; this program needs none.
    """
    if axis is None:
        data, axis = reshape(data, [prod(data.shape)]), 0
    axis = normalize_axis(axis, len(data.shape))
    out_dtype = dtype or data.dtype
    last = axis == len(data.shape) - 1

    def program(source: Buffer, target: Buffer) -> Stmt:
        ib = create()
        lines = Lines(source.shape, axis)
        write = _scan_by_blocks if last else _scan_by_threads
        first = const(identity_value, out_dtype)
        write(ib, ib.buffer_ptr(source), ib.buffer_ptr(target), lines, binop, first, bool(exclusive))
        return ib.get()

    out = decl_buffer(data.shape, out_dtype, "output_buf", data_alignment=8)
    name = "exclusive_scan" if exclusive else "inclusive_scan"
    return te.extern(
        [tuple(data.shape)], [data], lambda ins, outs: program(ins[0], outs[0]), name, [out_dtype], out_buffers=[out],
        tag=f"{name}_gpu",
    )  # fmt: skip


def _plus(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return a + b


def _times(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return a * b


def inclusive_scan(
    data: te.Tensor, axis: int = -1, output_dtype: str | None = None, binop: Combine = _plus, identity_value: float = 0,
    workspace: te.Tensor | None = None,
) -> te.Tensor:  # fmt: skip
    """Each element combined with all before it."""
    return scanop(data, binop, identity_value, axis, output_dtype, False, workspace)


def exclusive_scan(
    data: te.Tensor, axis: int = -1, return_reduction: bool = False, output_dtype: str | None = None, binop: Combine = _plus,
    identity_value: float = 0, workspace: te.Tensor | None = None,
) -> te.Tensor | tuple[te.Tensor, te.Tensor]:  # fmt: skip
    """All elements before each; with ``return_reduction`` also the combination of each whole line."""
    out = scanop(data, binop, identity_value, axis, output_dtype, True, workspace)
    if not return_reduction:
        return out
    axis = normalize_axis(axis, len(data.shape))
    last = data.shape[axis] - 1
    shape = [d for k, d in enumerate(data.shape) if k != axis]

    def whole(*i: PrimExpr) -> PrimExpr:
        at = (*i[:axis], last, *i[axis:])
        return binop(out(*at), data(*at).astype(out.dtype))

    return out, te.compute(tuple(shape), whole, name="ex_scan_reduction")


def cumsum(
    data: te.Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    workspace: te.Tensor | None = None,
) -> te.Tensor:
    """Running sum; truth values count as int32."""
    kind = dtype or ("int32" if data.dtype == "bool" else data.dtype)
    if workspace is not None:
        from .thrust import cumsum_thrust

        return cumsum_thrust(data, axis, kind, exclusive, workspace)
    return scanop(data, _plus, 0, axis, kind, exclusive)


def cumprod(
    data: te.Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    workspace: te.Tensor | None = None,
) -> te.Tensor:
    """Running product; truth values count as int32."""
    kind = dtype or ("int32" if data.dtype == "bool" else data.dtype)
    return scanop(data, _times, 1, axis, kind, exclusive, workspace)
