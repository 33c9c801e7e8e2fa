"""Passes for memory shared between GPUs: storage in the scope ``ipc_memory`` and all-reduce kernels that use it."""

from __future__ import annotations

import math

from ..ir import dtype as dtypes
from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op.memory import alloc_tensor
from ..relax.expr import Call, Expr, ExternFunc, Function, PrimValue, ShapeExpr, StringImm, Var, VarBinding
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from ..relax.scalars import const_int
from ..relax.struct_info import ObjectStructInfo
from ..runtime.registry import get_global_func
from ..support.errors import RelaxishError
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["IPCAllReduceRewrite", "LowerGPUIPCAllocStorage"]

_SCOPE = "ipc_memory"
_ALLOC = "runtime.disco.cuda_ipc.alloc_storage"


class _IpcAllocationLowerer(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        name = op_name_of(call)
        if name == "relax.builtin.alloc_tensor" and call.args[3].value == _SCOPE:
            shape, dtype = call.args[0], call.args[1]
            sizes = [const_int(d) for d in shape.values]
            if any(s is None for s in sizes):
                raise RelaxishError(f"memory shared between GPUs has a static size, not {shape}")
            size = math.prod(s for s in sizes if s is not None) * dtypes.nbytes(dtype.value)
            storage = self.builder_.emit(_allocation(ShapeExpr([size]), dtype), "storage")
            return alloc_tensor(storage, PrimValue(0), shape, dtype.value)
        if name == "relax.memory.alloc_storage" and call.args[2].value == _SCOPE:
            return _allocation(call.args[0], call.args[3])
        return call


def _allocation(size: Expr, dtype: Expr) -> Call:
    return Call(ExternFunc(_ALLOC), [size, dtype], None, [ObjectStructInfo()])


class LowerGPUIPCAllocStorage(ModuleRewrite):
    """Allocations in the scope ``ipc_memory`` become calls of the runtime function that makes them visible to all GPUs."""

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: _IpcAllocationLowerer().visit_expr(func))


_CUSTOM = "runtime.disco.cuda_ipc.custom_allreduce"


class _AllReduces(PyExprVisitor):
    """Sums over all workers of tensors that are allocated here, and what replaces their calls and allocations."""

    def __init__(self, strategy: int) -> None:
        self.strategy = strategy
        self.allocations: dict[Var, Call] = {}
        self.replaced: dict[Call, Call] = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        super().visit_var_binding_(binding)
        value = binding.value
        name = op_name_of(value)
        source = value.args[0] if name == "relax.reshape" else value
        if name == "relax.builtin.alloc_tensor":
            self.allocations[binding.var] = value
        elif isinstance(source, Var) and source in self.allocations:
            self.allocations[binding.var] = self.allocations[source]

    def visit_call_(self, op: Call) -> None:
        if not isinstance(op.op, ExternFunc) or op.op.global_symbol != "runtime.disco.allreduce":
            return
        if const_int(op.args[1].values[0]) != 0:
            return
        source, _, _, target = op.args
        allocation = self.allocations.get(source)
        if allocation is None or allocation.args[3].value != "global":
            return
        shape, dtype, device, _ = allocation.args
        self.replaced[allocation] = Call(allocation.op, (shape, dtype, device, StringImm(_SCOPE)))
        self.replaced[op] = Call(ExternFunc(_CUSTOM), (source, PrimValue(self.strategy), target))


class _Replace(PyExprMutator):
    def __init__(self, replaced: dict[Call, Call]) -> None:
        super().__init__()
        self.replaced = replaced

    def visit_call_(self, op: Call) -> Expr:
        return super().visit_call_(self.replaced.get(op, op))


class IPCAllReduceRewrite(ModuleRewrite):
    """Sums over all workers by ``runtime.disco.cuda_ipc.custom_allreduce``, on memory in the scope ``ipc_memory``.

    Strategy 1 is one-shot, 2 two-shot.  Without that function in the runtime the module stays as it is.
    """

    allreduce_strategy: int

    def rewrite(self, mod: IRModule) -> IRModule:
        if get_global_func(_CUSTOM, True) is None:
            return mod

        def rewrite(_: GlobalVar, func: Function) -> Function:
            found = _AllReduces(self.allreduce_strategy)
            found.visit_expr(func)
            made: Function = _Replace(found.replaced).visit_expr(func) if found.replaced else func
            return made

        return map_relax_functions(mod, rewrite)
