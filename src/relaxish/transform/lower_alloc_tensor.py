"""LowerAllocTensor: allocations that memory planning left become storage plus a tensor in it."""

from __future__ import annotations

from typing import Any

from ..ir import dtype as dt
from ..ir.op import Op
from ..ir.prim import IntImm
from ..relax.expr import Call, Expr, PrimValue, ShapeExpr, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import ShapeStructInfo
from ..support.errors import RelaxishError
from .base import mutated
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import IRModule

__all__ = ["LowerAllocTensor"]


class _AllocTensorLowerer(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.builtin.alloc_tensor"):
            return call
        shape, dtype, device, scope = call.args
        info = shape.struct_info
        if not isinstance(info, ShapeStructInfo) or info.values is None:
            raise RelaxishError(f"cannot allocate a tensor of unknown shape {info}")
        size: Any = IntImm("int64", dt.nbytes(dtype.value))
        for dim in info.values:
            size = size * dim
        storage = self.builder_.emit(
            Call(Op.get("relax.memory.alloc_storage"), (ShapeExpr([size]), device, scope, dtype)), "storage"
        )
        return Call(Op.get("relax.memory.alloc_tensor"), (storage, PrimValue(0), shape, dtype), None, None, call.span)


class LowerAllocTensor(ModuleRewrite):
    """``R.builtin.alloc_tensor`` becomes ``R.memory.alloc_storage`` of the size in bytes plus
    ``R.memory.alloc_tensor`` at offset 0.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return mutated(_AllocTensorLowerer(mod), mod)
