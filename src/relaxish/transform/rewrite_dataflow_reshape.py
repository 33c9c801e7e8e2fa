"""RewriteDataflowReshape: kernels that only reshape become ``reshape``, which copies nothing."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.functor import post_order_visit
from ..ir.module import IRModule
from ..ir.op import Op
from ..relax.analysis.tir_pattern import has_reshape_pattern
from ..relax.expr import BindingBlock, Call, DataflowBlock, Expr, Tuple, VarBinding, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import product, prove_equal
from ..relax.struct_info import TensorStructInfo
from ..tir import BufferLoad, PrimFunc
from .base import mutated
from ..ir.declared_pass import ModuleRewrite

__all__ = ["RewriteDataflowReshape"]


class _ReshapeRewriter(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.known: dict[str, bool] = {}
        self.in_dataflow = False

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        outer, self.in_dataflow = self.in_dataflow, True
        new = super().visit_dataflow_block_(block)
        self.in_dataflow = outer
        return new

    def _is_reshape(self, name: GlobalVar, used: int, count: int) -> bool:
        """Whether the function, of whose ``count`` arguments it reads only one, is a reshape of that one."""
        known = self.known.get(name.name_hint)
        if known is None:
            func = self.mod[name]
            if count > 1:
                params = [func.params[used], *func.params[count:]]
                buffers = {p: func.buffer_map[p] for p in params if p in func.buffer_map}
                func = PrimFunc(params, func.body, func.ret_type, buffers, func.attrs)
            known = self.known[name.name_hint] = has_reshape_pattern(func)
        return known

    def _read_arguments(self, name: GlobalVar, count: int) -> list[int]:
        """Which arguments the function reads; fusion may hand it more of a tuple than it needs."""
        func = self.mod[name] if name in self.mod else None
        if not isinstance(func, PrimFunc):
            return []
        if count == 1:
            return [0]
        read: set[Any] = set()
        post_order_visit(func.body, lambda node: read.add(node.buffer) if isinstance(node, BufferLoad) else None)
        return [i for i, p in enumerate(func.params[:count]) if func.buffer_map.get(p) in read]

    def visit_var_binding_(self, binding: VarBinding) -> None:
        # What leaves the block keeps memory of its own.
        outer = self.in_dataflow
        self.in_dataflow = outer and binding.var.is_dataflow
        super().visit_var_binding_(binding)
        self.in_dataflow = outer

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not self.in_dataflow or not is_call_of(call, "relax.call_tir"):
            return call
        if not isinstance(call.args[1], Tuple):
            return call
        used = self._read_arguments(call.args[0], len(call.args[1].fields))
        if len(used) != 1:
            return call
        arg = call.args[1].fields[used[0]]
        out, source = call.sinfo_args[0], arg.struct_info_
        if not isinstance(out, TensorStructInfo) or not isinstance(source, TensorStructInfo):
            return call
        if out.dtype != source.dtype or out.dims() is None or source.dims() is None:
            return call
        if not prove_equal(product(out.dims() or ()), product(source.dims() or ()), self.builder_.get_analyzer()):
            return call
        if not self._is_reshape(call.args[0], used[0], len(call.args[1].fields)):
            return call
        return Call(Op.get("relax.reshape"), (arg, out.shape), None, None, call.span)


class RewriteDataflowReshape(ModuleRewrite):
    """In dataflow blocks, ``call_tir`` to a function that only moves its input in row-major order becomes
    ``R.reshape``, which later shares the input's memory. Outputs of a block stay as they are.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return mutated(_ReshapeRewriter(mod), mod)
