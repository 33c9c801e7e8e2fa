"""KillAfterLastUse: says where memory is free again."""

from __future__ import annotations

from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import Op, op_name_of
from ..relax.analysis.variables import direct_uses
from ..relax.expr import Binding, Call, Constant, Function, If, SeqExpr, Var, VarBinding
from ..relax.struct_info import (
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .base import map_relax_functions
from .canonicalize_bindings import canonicalize_function
from ..ir.declared_pass import ModuleRewrite

__all__ = ["KillAfterLastUse"]

_STORAGE = ("relax.memory.alloc_storage", "relax.vm.alloc_storage")
_KILLS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")
#: In the order in which they go where several end at one binding.
_RANKS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")
#: These live elsewhere than in registers of the virtual machine.
_UNMANAGED = (FuncStructInfo, ShapeStructInfo, PrimStructInfo)


def _kill(name: str, var: Var) -> VarBinding:
    call = Call(Op.get(name), (var,))
    call.struct_info_ = TupleStructInfo(())
    return VarBinding(Var("_", call.struct_info_), call)


def _kill_op(binding: Binding) -> str | None:
    """The operator that frees what a binding makes; None for what is never freed."""
    if op_name_of(binding.value) in _STORAGE:
        return _RANKS[1]
    if isinstance(binding.value, Constant) or isinstance(binding.var.struct_info_, _UNMANAGED):
        return None
    return _RANKS[0] if isinstance(binding.var.struct_info_, TensorStructInfo) else _RANKS[2]


def _ends(seq: SeqExpr) -> dict[Var, list[VarBinding]]:
    """From the variable of a binding to the kills that follow it."""
    last: dict[Var, Var] = {}
    killed: set[Var] = set()
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    for binding in bindings:
        uses = direct_uses(binding.value)
        if op_name_of(binding.value) in _KILLS:
            killed.update(uses)
        else:
            last.update((used, binding.var) for used in uses)
    for used in direct_uses(seq.body):
        last.pop(used, None)
    ends: dict[Var, list[tuple[int, VarBinding]]] = {}
    for binding in bindings:
        point, op = last.get(binding.var), _kill_op(binding)
        if point is not None and op is not None and binding.var not in killed:
            ends.setdefault(point, []).append((_RANKS.index(op), _kill(op, binding.var)))
    return {point: [kill for _, kill in sorted(kills, key=lambda k: k[0])] for point, kills in ends.items()}


def _without_unused_names(seq: SeqExpr) -> set[Var]:
    """Variables that only rename another and that nobody uses."""
    names: set[Var] = set()
    used: set[Var] = set(direct_uses(seq.body))
    for block in seq.blocks:
        for binding in block.bindings:
            used.update(direct_uses(binding.value))
            if isinstance(binding.value, Var) and isinstance(binding, VarBinding):
                names.add(binding.var)
    return names - used


def _insert(seq: SeqExpr) -> SeqExpr:
    ends, unused = _ends(seq), _without_unused_names(seq)
    blocks = []
    for block in seq.blocks:
        out: list[Any] = []
        changed = False
        for binding in block.bindings:
            if binding.var in unused:
                changed = True
                continue
            new = _in_branches(binding)
            kills = ends.get(binding.var, [])
            changed = changed or new is not binding or bool(kills)
            out += [new, *kills]
        if not changed:
            blocks.append(block)
        elif out:
            blocks.append(type(block)(out, block.span))
    if len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks)):
        return seq
    made = SeqExpr(blocks, seq.body, seq.span)
    made.struct_info_ = seq.struct_info_
    return made


def _in_branches(binding: Binding) -> Binding:
    value = binding.value
    if not isinstance(value, If) or not isinstance(binding, VarBinding):
        return binding
    branches = _insert(value.true_branch), _insert(value.false_branch)
    if branches[0] is value.true_branch and branches[1] is value.false_branch:
        return binding
    made = If(value.cond, branches[0], branches[1], value.span)
    made.struct_info_ = value.struct_info_
    return VarBinding(binding.var, made, binding.span)


class KillAfterLastUse(ModuleRewrite):
    """Insert ``R.memory.kill_tensor``, ``R.memory.kill_storage`` and ``R.vm.kill_object`` right after the last use of
    a tensor, storage or other object (tuples among them) that the function does not return.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        def run(_: GlobalVar, func: Function) -> Function:
            func = canonicalize_function(func)
            body = _insert(func.body)
            if body is func.body:
                return func
            return Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)

        return map_relax_functions(mod, run)
