"""KillAfterLastUse: says where memory is free again."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.analysis.variables import direct_uses
from ..relax.expr import Call, Function, MatchCast, SeqExpr, Var, VarBinding
from ..relax.struct_info import ObjectStructInfo, TensorStructInfo, TupleStructInfo
from .base import as_module_pass, map_relax_functions, rebuild_body
from .canonicalize_bindings import canonicalize_function

__all__ = ["KillAfterLastUse"]

_STORAGE = ("relax.memory.alloc_storage", "relax.vm.alloc_storage")
_KILLS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


def _op_name(value: Any) -> str:
    return value.op.name if isinstance(value, Call) and isinstance(value.op, Op) else ""


def _kill(name: str, var: Var) -> VarBinding:
    call = Call(Op.get(name), (var,))
    call.struct_info_ = TupleStructInfo(())
    return VarBinding(Var("_", call.struct_info_), call)


def _last_uses(body: SeqExpr) -> tuple[dict[Var, Var], list[Var], set[Var]]:
    """The binding at which each bound variable is used last, the variables in order, and what is killed already."""
    last: dict[Var, Var] = {}
    order: list[Var] = []
    killed: set[Var] = set()
    for block in body.blocks:
        for binding in block.bindings:
            for used in direct_uses(binding.value):
                last[used] = binding.var
            if _op_name(binding.value) in _KILLS:
                killed.update(direct_uses(binding.value))
            order.append(binding.var)
    for used in direct_uses(body.body):
        last.pop(used, None)
    return last, order, killed


def _insert(func: Function) -> Function:
    last, order, killed = _last_uses(func.body)
    if not last:
        return func
    values = {b.var: b for block in func.body.blocks for b in block.bindings}
    tensors: dict[Var, list[Any]] = {}
    for rank in ("tensor", "storage", "object"):
        for var in order:
            point = last.get(var)
            if point is None or var in killed:
                continue
            binding = values[var]
            if isinstance(binding, MatchCast):
                continue
            name = _op_name(binding.value)
            if name in _STORAGE:
                kind, op = "storage", "relax.memory.kill_storage"
            elif isinstance(var.struct_info_, TensorStructInfo):
                kind, op = "tensor", "relax.memory.kill_tensor"
            elif type(var.struct_info_) is ObjectStructInfo:
                kind, op = "object", "relax.vm.kill_object"
            else:
                continue
            if kind == rank:
                tensors.setdefault(point, []).append(_kill(op, var))
    if not tensors:
        return func
    blocks = []
    for block in func.body.blocks:
        out: list[Any] = []
        for binding in block.bindings:
            out.append(binding)
            out.extend(tensors.get(binding.var, ()))
        blocks.append(type(block)(out, block.span) if len(out) != len(block.bindings) else block)
    return rebuild_body(func, blocks)


def _run(mod: IRModule) -> IRModule:
    return map_relax_functions(mod, lambda _, func: _insert(canonicalize_function(func)))


def KillAfterLastUse() -> Pass:  # noqa: N802  (public name of the pass)
    """Insert ``R.memory.kill_tensor``, ``R.memory.kill_storage`` and ``R.vm.kill_object`` right after the last use of
    a tensor, storage or other object that the function does not return.
    """
    return as_module_pass(_run, "KillAfterLastUse")


