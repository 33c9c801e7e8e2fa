"""``R.dist``: what distributed graph functions are written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import relax as _relax
from ....relax.distributed import DeviceMesh, Placement, device_mesh
from ....relax.expr import Expr
from ....relax.struct_info import StructInfoLike
from ....support.entry_points import load
from ..ir import lookup_global_info

__all__ = ["annotate_sharding", "as_mesh", "as_placement", "call_tir", "const", "device_mesh", "redistribute"]


def as_mesh(value: DeviceMesh | str) -> Any:
    """``"mesh[1]"`` as that mesh of the module; meshes as they are."""
    if not isinstance(value, str):
        return value
    kind, _, index = value.partition("[")
    return lookup_global_info(kind, int(index.rstrip("]") or 0))


def as_placement(value: Placement | str) -> Any:
    """``"S[0], R"`` as a placement; placements as they are."""
    return Placement.from_text(value) if isinstance(value, str) else value


def _ops() -> Any:
    return load("operators").distributed


def annotate_sharding(value: Any, device_mesh: DeviceMesh | str, placement: Placement | str) -> Any:
    """A wish: the tensor is to be placed on the mesh like this."""
    return _ops().annotate_sharding(value, as_mesh(device_mesh), as_placement(placement))


def redistribute(value: Any, device_mesh: DeviceMesh | str, placement: Placement | str) -> Any:
    """A distributed tensor under another placement."""
    return _ops().redistribute(value, as_mesh(device_mesh), as_placement(placement))


def call_tir(
    func: Any, args: Expr | Sequence[Expr], out_sinfo: StructInfoLike | Sequence[StructInfoLike], tir_vars: Any = None
) -> Any:
    """Call a tensor function; its results are distributed."""
    from ....relax.call_forms import call_tir as plain
    from . import resolve

    return plain(func, args, resolve(out_sinfo), tir_vars)


def const(value: Any, struct_info: StructInfoLike) -> Any:
    """A distributed constant."""
    from . import resolve

    info = resolve(struct_info)
    return _relax.Constant(_relax.const(value, info.tensor_sinfo.dtype).data, info)
