"""``R.dist``: what distributed graph functions are written with."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .... import relax as _relax
from ....ir.expr import ExprLike, GlobalVar
from ....relax.distributed import DeviceMesh, Placement, device_mesh
from ....relax.expr import Constant, Expr
from ....relax.struct_info import StructInfoLike
from ....support.entry_points import load
from ..ir import lookup_global_info

__all__ = ["annotate_sharding", "as_mesh", "as_placement", "call_tir", "const", "device_mesh", "redistribute"]


def as_mesh(value: DeviceMesh | str) -> DeviceMesh:
    """``"mesh[1]"`` as that mesh of the module; meshes as they are."""
    if not isinstance(value, str):
        return value
    kind, _, index = value.partition("[")
    found = lookup_global_info(kind, int(index.rstrip("]") or 0))
    if not isinstance(found, DeviceMesh):
        raise ValueError(f"{value} is no mesh of devices but a {type(found).__name__}")
    return found


def as_placement(value: Placement | str) -> Placement:
    """``"S[0], R"`` as a placement; placements as they are."""
    return Placement.from_text(value) if isinstance(value, str) else value


def _ops() -> ModuleType:
    return load("operators").distributed


def annotate_sharding(value: Expr, device_mesh: DeviceMesh | str, placement: Placement | str) -> Expr:
    """A wish: the tensor is to be placed on the mesh like this."""
    return _ops().annotate_sharding(value, as_mesh(device_mesh), as_placement(placement))


def redistribute(value: Expr, device_mesh: DeviceMesh | str, placement: Placement | str) -> Expr:
    """A distributed tensor under another placement."""
    return _ops().redistribute(value, as_mesh(device_mesh), as_placement(placement))


def call_tir(
    func: GlobalVar,
    args: Expr | Sequence[Expr],
    out_sinfo: StructInfoLike | Sequence[StructInfoLike],
    tir_vars: Expr | Sequence[ExprLike] | None = None,
) -> Expr:
    """Call a tensor function; its results are distributed."""
    from ....relax.call_forms import call_tir as plain
    from . import resolve

    return plain(func, args, resolve(out_sinfo), tir_vars)


def const(value: np.ndarray[Any, Any] | ExprLike | Sequence[Any], struct_info: StructInfoLike) -> Constant:
    """A distributed constant."""
    from . import resolve

    info = resolve(struct_info)
    return _relax.Constant(_relax.const(value, info.tensor_sinfo.dtype).data, info)
