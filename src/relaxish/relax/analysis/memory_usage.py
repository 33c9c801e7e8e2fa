"""estimate_memory_usage: how much memory a function allocates, before and after planning."""

from __future__ import annotations

import math
from typing import Any

from ...ir import dtype as dtypes
from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ..expr import Call, Function, ShapeExpr
from ..expr_functor import PyExprVisitor
from ..scalars import const_int

__all__ = ["estimate_memory_usage"]


def _bytes(shape: Any, dtype: str) -> int | None:
    """Size of a tensor, or None if its shape is dynamic."""
    dims = [const_int(d) for d in shape.values] if isinstance(shape, ShapeExpr) else [None]
    if any(d is None for d in dims):
        return None
    return math.prod(d for d in dims if d is not None) * dtypes.nbytes(dtype)


class _Estimator(PyExprVisitor):
    """Adds up tensors (what there would be without planning) and storages."""

    def __init__(self) -> None:
        self.total_alloc_tensor = 0
        self.total_const_size = 0
        self.total_dyn_size_tensor = 0
        self.planned_alloc = 0
        self.planned_num = 0

    def visit_call_(self, op: Call) -> None:
        name = op.op.name if isinstance(op.op, Op) else ""
        if name == "relax.memory.alloc_storage":
            self.planned_alloc += _bytes(op.args[0], "uint8") or 0
            self.planned_num += 1
        elif name in ("relax.memory.alloc_tensor", "relax.builtin.alloc_tensor"):
            shape, dtype = (op.args[2], op.args[3]) if name == "relax.memory.alloc_tensor" else op.args[:2]
            size = _bytes(shape, dtype.value)
            self.total_alloc_tensor += 1
            if size is None:
                self.total_dyn_size_tensor += 1
            else:
                self.total_const_size += size
                if name == "relax.builtin.alloc_tensor":
                    self.planned_alloc += size
                    self.planned_num += 1


def _report(name: str, func: Function) -> str:
    found = _Estimator()
    found.visit_expr(func)
    lines = [
        f" * Without memory planning, there are {found.total_alloc_tensor - found.total_dyn_size_tensor} "
        f"constant-size memory allocation(s) with total size {found.total_const_size / 2**30:.4} GB.",
    ]
    if found.total_dyn_size_tensor:
        lines.append(f" * Without memory planning, there are {found.total_dyn_size_tensor} dynamic-size memory allocation(s).")
    lines.append(
        f" * With memory planning, there are {found.planned_num} constant-size memory allocation(s) with total size "
        f"{found.planned_alloc / 2**30:.4} GB."
    )
    if found.total_const_size:
        lines.append(
            f" * Memory planning reduces constant memory size to {found.planned_alloc / found.total_const_size:.1%}."
        )
    return f"Function {name}:\n" + "\n".join(lines) + "\n"


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """A report of the allocations in each function: as if every tensor were allocated alone, and as planned.

    Run it after StaticPlanBlockMemory.
    """
    if isinstance(mod, Function):
        mod = IRModule({GlobalVar("foo"): mod})
    functions = {v: f for v, f in mod.functions.items() if isinstance(f, Function)}
    return "Memory usage estimation:\n" + "".join(f"- {_report(v.name_hint, f)}" for v, f in functions.items())
