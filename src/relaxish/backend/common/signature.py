"""How compiled functions are called, whatever compiled them: see "Kernel ABI" in docs/architecture.md."""

from __future__ import annotations

from typing import Any

from ...ir.functor import pre_order_visit
from ...ir.prim import Var
from ...runtime.kernel import KernelSpec, ParamSpec, ShapeVarSource

__all__ = ["kernel_spec", "shape_vars"]


def kernel_spec(name: str, func: Any) -> KernelSpec:
    """How a PrimFunc is called."""
    params = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            params.append(ParamSpec("tensor" if param.dtype == "handle" else "scalar", param.dtype))
            continue
        shape = tuple(_extent(extent) for extent in buffer.shape)
        params.append(ParamSpec("tensor", buffer.dtype, shape))
    sources = tuple(ShapeVarSource(var.name, index, dim) for var, index, dim in shape_vars(func))
    return KernelSpec(name, tuple(params), sources)


def _extent(extent: Any) -> int | str:
    value = getattr(extent, "value", None)
    if isinstance(value, int):
        return value
    name = getattr(extent, "name", None)
    return name if isinstance(name, str) else str(extent)


def shape_vars(func: Any) -> list[tuple[Any, int, int]]:
    """Free shape variables: (variable, parameter index, dimension) in order of first appearance."""
    params = set(func.params)
    found: dict[Any, tuple[int, int]] = {}
    for index, param in enumerate(func.params):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            continue
        for dim, extent in enumerate(buffer.shape):
            if isinstance(extent, Var) and extent not in params:
                found.setdefault(extent, (index, dim))
    for param in func.params:
        buffer = func.buffer_map.get(param)
        for extent in buffer.shape if buffer is not None else ():
            for var in _vars_of(extent):
                if var not in params and var not in found:
                    raise ValueError(f"shape variable {var.name} of {buffer.name} cannot be read from any argument")
    return [(var, index, dim) for var, (index, dim) in found.items()]


def _vars_of(expr: Any) -> list[Any]:
    out: list[Any] = []

    def look(item: Any) -> bool:
        if isinstance(item, Var):
            out.append(item)
        return True

    pre_order_visit(expr, look)
    return out
