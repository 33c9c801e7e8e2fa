"""Passes for memory shared between GPUs: storage in the scope ``ipc_memory`` and all-reduce kernels that use it."""

from __future__ import annotations

import math
from typing import Any

from ..ir import dtype as dtypes
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..op.memory import alloc_tensor
from ..relax.expr import Call, ExternFunc, Function, PrimValue, ShapeExpr
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int
from ..relax.struct_info import ObjectStructInfo
from ..runtime.registry import get_global_func
from ..support.errors import RelaxishError
from .base import as_module_pass, map_relax_functions

__all__ = ["IPCAllReduceRewrite", "LowerGPUIPCAllocStorage"]

_SCOPE = "ipc_memory"
_ALLOC = "runtime.disco.cuda_ipc.alloc_storage"


class _Lower(PyExprMutator):
    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        name = call.op.name if isinstance(call.op, Op) else ""
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


def _allocation(size: Any, dtype: Any) -> Call:
    return Call(ExternFunc(_ALLOC), [size, dtype], None, [ObjectStructInfo()])


def LowerGPUIPCAllocStorage() -> Pass:  # noqa: N802  (public name of the pass)
    """Allocations in the scope ``ipc_memory`` become calls of the runtime function that makes them visible to all GPUs."""

    def lower(_: Any, func: Function) -> Function:
        made: Function = _Lower().visit_expr(func)
        return made

    return as_module_pass(lambda mod: map_relax_functions(mod, lower), "LowerGPUIPCAllocStorage")


def IPCAllReduceRewrite(allreduce_strategy: int) -> Pass:  # noqa: N802  (public name of the pass)
    """Use the kernels of ``runtime.disco.cuda_ipc.custom_allreduce`` for all-reduce; without that function in the
    runtime the module stays as it is.

    Raises RelaxishError where the function is registered: its kernels are not supported yet.
    """

    def run(mod: IRModule) -> IRModule:
        if get_global_func("runtime.disco.cuda_ipc.custom_allreduce", True) is not None:
            raise RelaxishError(f"custom all-reduce kernels (strategy {allreduce_strategy}) are not supported")
        return mod

    return as_module_pass(run, "IPCAllReduceRewrite")
