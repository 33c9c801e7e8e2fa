"""How compiled functions are called, whatever compiled them: see "Kernel ABI" in docs/architecture.md."""

from __future__ import annotations

from typing import Any

from ...ir.functor import pre_order_visit
from ...ir.prim import Call, Var
from ...runtime.kernel import KernelSpec, ParamSpec, ShapeVarSource

__all__ = ["kernel_spec", "returned_dtypes", "shape_vars"]


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
    returned = returned_dtypes(func)
    return KernelSpec(name, tuple(params), sources, returned[0] if returned else "")


def returned_dtypes(func: Any) -> list[str]:
    """The types of the values that the function returns by ``T.ret``."""
    found: list[str] = []

    def look(item: Any) -> bool:
        if isinstance(item, Call) and getattr(item.op, "name", "") == "tir.ret" and item.args:
            found.append(item.args[0].dtype)
        return True

    pre_order_visit(func.body, look)
    return found


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
