"""estimate_memory_usage: how much memory a function allocates, before and after planning."""

from __future__ import annotations

import math

from ...ir import dtype as dtypes
from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import op_name_of
from ..expr import Call, Expr, Function, ShapeExpr
from ..expr_functor import PyExprVisitor
from ..scalars import const_int

__all__ = ["estimate_memory_usage"]


class _Estimator(PyExprVisitor):
    """Adds up tensors (what there would be without planning) and storages."""

    def __init__(self) -> None:
        self.tensors = 0
        self.tensor_bytes = 0
        self.dynamic_tensors = 0
        self.planned = 0
        self.planned_bytes = 0

    def visit_call_(self, op: Call) -> None:
        name = op_name_of(op)
        if name == "relax.builtin.alloc_tensor":
            size = self.tensor(op.args[0], op.args[1].value)
            if size is not None:
                self.planned += 1
                self.planned_bytes += size
        elif name == "relax.memory.alloc_tensor":
            self.tensor(op.args[2], op.args[3].value)
        elif name == "relax.memory.alloc_storage":
            if not isinstance(op.args[0], ShapeExpr):
                raise TypeError("The size of relax.memory.alloc_storage is expected to be ShapeExpr")
            self.planned += 1
            self.planned_bytes += const_int(op.args[0].values[0]) or 0

    def tensor(self, shape: Expr | None, dtype: str) -> int | None:
        """Count one tensor; returns its size, or None if its shape is dynamic."""
        if not isinstance(shape, ShapeExpr):
            raise TypeError(
                "The shape of relax.builtin.alloc_tensor and relax.memory.alloc_tensor is expected to be ShapeExpr"
            )
        dims = [const_int(d) for d in shape.values]
        if any(d is None for d in dims):
            self.dynamic_tensors += 1
            return None
        size = math.prod(d for d in dims if d is not None) * dtypes.nbytes(dtype)
        self.tensors += 1
        self.tensor_bytes += size
        return size

    def report(self, name: str) -> str:
        """The lines about one function."""
        dynamic = f", and {self.dynamic_tensors} dynamic-size allocation(s)" if self.dynamic_tensors else ""
        lines = [
            f"- Function {name}:",
            f" * Without memory planning, there are {self.tensors} constant-size memory allocation(s) with total size "
            f"{self.tensor_bytes / 2**30:.4} GB{dynamic}.",
            f" * With memory planning, there are {self.planned} constant-size memory allocation(s) with total size "
            f"{self.planned_bytes / 2**30:.4} GB.",
            "",
        ]
        if self.tensor_bytes:
            share = f"{self.planned_bytes / self.tensor_bytes:.1%}"
            lines[-1] = f" * Memory planning reduces constant memory size to {share}."
        return "\n".join(lines)


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """A report of the allocations in each function: as if every tensor were allocated alone, and as planned.

    Run it after StaticPlanBlockMemory.  Branches and calls are not followed: everything counts once.
    """
    if isinstance(mod, Function):
        mod = IRModule({GlobalVar("foo"): mod})
    out = []
    for var, func in mod.functions_items():
        if isinstance(func, Function):
            found = _Estimator()
            found.visit_expr(func)
            out.append(found.report(var.name_hint) + "\n")
    return "Memory usage estimation:\n" + "".join(out) if out else ""
