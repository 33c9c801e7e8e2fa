"""Sorting and sums by packed functions named after Thrust, where the target asks for them and somebody registered them."""

from __future__ import annotations


from ... import te, tir
from ...runtime.registry import get_global_func
from ...support.log import get_logger
from ...tir import Buffer, decl_buffer, PrimExpr
from ..shape import reshape
from ..transform_last import with_last_axis
from ..utils import normalize_axis, prod
from .sort import argsort, first_elements
from ...target import Target
from ...te.tensor import Dim

__all__ = ["argsort_thrust", "can_use_thrust", "cumsum_thrust", "sort_thrust", "topk_thrust"]

_LOG = get_logger("topi")


def can_use_thrust(target: Target | None, func_name: str) -> bool:
    """Whether the target has ``-libs=thrust`` and the packed function is there; a warning if it is not."""
    if target is None or target.kind.name not in ("cuda", "rocm", "vulkan") or "thrust" not in target.libs:
        return False
    if get_global_func(func_name, allow_missing=True) is None:
        _LOG.warning("the target asks for thrust, but there is no function %s: a generated kernel is used", func_name)
        return False
    return True


def _by_thrust(
    data: te.Tensor, is_ascend: bool, dtype: str, workspace: te.Tensor | None
) -> tuple[te.Tensor, te.Tensor]:
    """Sorted values and positions along the last axis."""
    inputs = [data, *([workspace] if workspace is not None else [])]
    ins = [
        decl_buffer(t.shape, t.dtype, name, data_alignment=8)
        for t, name in zip(inputs, ("data_buf", "workspace_buf"), strict=False)
    ]
    outs = [
        decl_buffer(data.shape, data.dtype, "value_buf", data_alignment=8),
        decl_buffer(data.shape, dtype, "indices_buf", data_alignment=8),
    ]

    def call(given: list[Buffer], made: list[Buffer]) -> PrimExpr:
        return tir.call_packed("tvm.contrib.thrust.sort", given[0], *made, bool(is_ascend), *given[1:])

    values, places = te.extern(
        [tuple(data.shape)] * 2, inputs, call, "topk_gpu", [data.dtype, dtype], in_buffers=ins, out_buffers=outs,
        tag="topk_gpu",
    )  # fmt: skip
    return values, places


def _in_order(
    data: te.Tensor, axis: int, is_ascend: bool, dtype: str, workspace: te.Tensor | None
) -> tuple[te.Tensor, te.Tensor]:
    """Sorted values and positions along an axis."""
    moved, back = with_last_axis(data, normalize_axis(axis, len(data.shape)))
    values, places = _by_thrust(moved, is_ascend, dtype, workspace)
    return back(values), back(places)


def topk_thrust(
    data: te.Tensor, k: Dim = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64",
    workspace: te.Tensor | None = None,
) -> te.Tensor | list[te.Tensor]:  # fmt: skip
    """As :func:`topk`, by the packed function ``tvm.contrib.thrust.sort``."""
    values, places = _in_order(data, axis, is_ascend, dtype, workspace)
    return first_elements(values, places, k, normalize_axis(axis, len(data.shape)), ret_type)


def sort_thrust(
    data: te.Tensor, axis: int = -1, is_ascend: bool = True, workspace: te.Tensor | None = None
) -> te.Tensor:
    """As :func:`sort`, by Thrust."""
    return _in_order(data, axis, is_ascend, "int32", workspace)[0]


def argsort_thrust(
    data: te.Tensor, valid_count: te.Tensor | None = None, axis: int = -1, is_ascend: bool = True, dtype: str = "float32",
    workspace: te.Tensor | None = None,
) -> te.Tensor:  # fmt: skip
    """As :func:`argsort`, by Thrust, which sorts whole lines only: with ``valid_count`` it is :func:`argsort` itself."""
    if valid_count is not None:
        return argsort(data, valid_count, axis, is_ascend, dtype)
    return _in_order(data, axis, is_ascend, dtype, workspace)[1]


def cumsum_thrust(
    data: te.Tensor, axis: int | None, dtype: str, exclusive: bool | None, workspace: te.Tensor
) -> te.Tensor:
    """Running sums by the packed function ``tvm.contrib.thrust.sum_scan``."""
    if axis is None:
        data, axis = reshape(data, [prod(data.shape)]), 0
    moved, back = with_last_axis(data, normalize_axis(axis, len(data.shape)))
    ins = [
        decl_buffer(t.shape, t.dtype, n, data_alignment=8)
        for t, n in ((moved, "data_buf"), (workspace, "workspace_buf"))
    ]
    out = decl_buffer(moved.shape, dtype, "output_buf", data_alignment=8)

    def call(given: list[Buffer], made: list[Buffer]) -> PrimExpr:
        return tir.call_packed("tvm.contrib.thrust.sum_scan", given[0], made[0], bool(exclusive), given[1])

    total = te.extern(
        [tuple(moved.shape)], [moved, workspace], call, "exclusive_scan_thrust", [dtype], in_buffers=ins,
        out_buffers=[out], tag="exclusive_scan_thrust_gpu",
    )  # fmt: skip
    return back(total)
