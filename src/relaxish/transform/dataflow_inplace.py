"""DataflowUseInplaceCalls: elementwise operators write over inputs that nothing needs any more."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.analysis.variables import direct_uses
from ..relax.call_forms import call_tir_inplace
from ..relax.expr import Call, DataflowBlock, DataflowVar, Function, Tuple, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..relax.scalars import const_int
from ..relax.struct_info import TensorStructInfo
from ..tir import PrimFunc
from ..tir.functor import renew_defs, substitute_buffers
from .base import as_module_pass

__all__ = ["DataflowUseInplaceCalls", "inplace_opportunities"]

_SUPPORTED = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "nn.silu", "nn.relu")
)
_VIEWS = frozenset({"relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset", "relax.call_pure_packed",
                    "relax.invoke_pure_closure", "relax.call_inplace_packed"})  # fmt: skip


def _same_tensor(one: Any, other: Any) -> bool:
    """Whether two tensors have the same static shape and dtype."""
    if not isinstance(one, TensorStructInfo) or not isinstance(other, TensorStructInfo):
        return False
    if one.dims() is None or other.dims() is None or one.dtype != other.dtype:
        return False
    lhs, rhs = [const_int(d) for d in one.dims() or ()], [const_int(d) for d in other.dims() or ()]
    return None not in lhs and lhs == rhs


def _owned(block: DataflowBlock) -> set[Var]:
    """Variables of the block whose memory nothing else refers to."""
    owned: set[Var] = set()
    for binding in block.bindings:
        value = binding.value
        fresh = (
            isinstance(binding, VarBinding)
            and isinstance(value, Call)
            and isinstance(value.op, Op)
            and value.op.name not in _VIEWS
            and isinstance(binding.var, DataflowVar)
        )
        if fresh:
            owned.add(binding.var)
        if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.name in _VIEWS:
            owned.difference_update(direct_uses(value))  # another name for the same memory
    return owned


def inplace_opportunities(block: DataflowBlock) -> dict[Var, int]:
    """For each binding that may work in place: the index of the argument to write over."""
    owned = _owned(block)
    last: dict[Var, Any] = {}
    for binding in block.bindings:
        for used in direct_uses(binding.value):
            last[used] = binding
    found: dict[Var, int] = {}
    for binding in block.bindings:
        value = binding.value
        if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.name not in _SUPPORTED:
            continue
        for index, arg in enumerate(value.args):
            if arg in owned and last[arg] is binding and _same_tensor(arg.struct_info_, binding.var.struct_info_):
                found[binding.var] = index
                break
    return found


def _in_place(func: PrimFunc, index: int) -> PrimFunc:
    """The function that writes its output over parameter ``index``."""
    func = renew_defs(func)
    *inputs, output = func.params
    written, target = func.buffer_map[output], func.buffer_map[inputs[index]]
    body = substitute_buffers(func.body, {written.data: target.data}, {written: target})
    buffers = {p: b for p, b in func.buffer_map.items() if p is not output}
    made: PrimFunc = renew_defs(PrimFunc(inputs, body, func.ret_type, buffers, func.attrs))
    return made


class _Rewrite(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.places: dict[Var, int] = {}
        self.replaced: set[GlobalVar] = set()

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        self.places = inplace_opportunities(block)
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        index = self.places.get(binding.var)
        record = op_record_of(getattr(binding.value, "op", None))
        if index is None or record is None or record.legalize is None:
            super().visit_var_binding_(binding)
            return
        call = self.visit_expr(binding.value)
        lowered: Any = self.builder_.normalize(record.legalize(self.builder_, call))
        name = lowered.args[0]
        made = self.builder_.add_func(_in_place(self.builder_.get()[name], index), f"{name.name_hint}_inplace")
        self.replaced.add(name)
        value = call_tir_inplace(made, Tuple(lowered.args[1].fields), [index], lowered.sinfo_args[0])
        self.reemit_binding(binding, self.builder_.normalize(value))


def _run(mod: IRModule) -> IRModule:
    rewrite = _Rewrite(mod)
    before = {v.name_hint for v in mod.functions}
    for var, func in list(mod.functions.items()):
        if isinstance(func, Function):
            new = rewrite.visit_expr(func)
            if new is not func:
                rewrite.builder_.update_func(var, new)
    for name in rewrite.replaced:
        if name.name_hint not in before:
            rewrite.builder_.remove_func(name)
    return rewrite.builder_.get()


def DataflowUseInplaceCalls() -> Pass:  # noqa: N802  (public name of the pass)
    """Elementwise operators on values of the same block that are used for the last time work in place.

    ::

        z = R.add(x, y)              z = R.add(x, y)
        p = R.add(z, y)       ->     p = R.call_tir_inplace(cls.add_inplace, (z, y), [0], ...)
    """
    return as_module_pass(_run, "DataflowUseInplaceCalls")
