"""Passes that change the signatures of private functions: tuples apart, unused parameters and outputs gone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..ir.prim import FloatImm
from ..ir.transform import Pass
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.analysis.struct_info import definable_tir_vars_in_struct_info
from ..relax.analysis.variables import free_symbolic_vars, free_vars
from ..relax.block_builder import BlockBuilder
from ..relax.expr import BindingBlock, Call, Expr, Function, PrimValue, SeqExpr, Tuple, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from ..relax.struct_info import PrimStructInfo, TupleStructInfo
from ..relax.utils import field_at
from ..support.sequences import of_kind
from .base import as_module_pass, symbol_of
from .canonicalize_bindings import CanonicalizeBindings
from .dead_code_elimination import DeadCodeElimination
from ..ir.declared_pass import ModuleRewrite, StepsPass

__all__ = ["ExpandTupleArguments", "RemoveUnusedOutputs", "RemoveUnusedParameters"]

#: New form of a function, and what becomes of a call of it: ``(builder, new name, args) -> value``.
Change = tuple[Function, Callable[[Any, GlobalVar, Sequence[Any]], Any]]


class _CallSites(PyExprMutator):
    def __init__(self, mod: IRModule, changes: Mapping[str, tuple[GlobalVar, Any]]) -> None:
        super().__init__(mod)
        self.changes = changes

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        change = self.changes.get(call.op.name_hint) if isinstance(call.op, GlobalVar) else None
        return call if change is None else change[1](self.builder_, change[0], call.args)


class _Values(PyExprVisitor):
    """Names of functions that are passed on rather than called, such as those of closures: who calls them is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def visit_call_(self, op: Call) -> None:
        if isinstance(op.op, GlobalVar):
            for arg in op.args:
                self.visit_expr(arg)
        else:
            super().visit_call_(op)

    def visit_global_var_(self, op: GlobalVar) -> None:
        self.names.add(op.name_hint)


def _functions_as_values(mod: IRModule) -> set[str]:
    visitor = _Values()
    for func in of_kind(mod.functions.values(), Function):
        visitor.visit_expr(func)
    return visitor.names


def _apply(mod: IRModule, analyse: Callable[[GlobalVar, Function], Change | None], *, tidy: bool = False) -> IRModule:
    """The module with changed private functions and their callers; ``tidy``: without what callers no longer use."""
    out = mod.clone()
    changes: dict[str, tuple[GlobalVar, Any]] = {}
    values = _functions_as_values(mod)
    for var, func in functions_of(mod, Function):
        if symbol_of(func) is not None or var.name_hint in values:
            continue
        change = analyse(var, func)
        if change is not None:
            name = GlobalVar(var.name_hint)
            del out[var]
            out.update_func(name, change[0])
            changes[var.name_hint] = (name, change[1])
    if not changes:
        return mod
    sites = _CallSites(out, changes)
    for var, func in functions_of(out, Function):
        new = sites.visit_expr(func)
        if new is not func:
            sites.builder_.update_func(var, remove_all_unused(new) if tidy else new)
    return sites.builder_.get()


def _prefixed(func: Function, params: Sequence[Var], bindings: Sequence[Any]) -> Function:
    """The function with other parameters and bindings in front."""
    blocks = [BindingBlock(bindings), *func.body.blocks] if bindings else list(func.body.blocks)
    body = SeqExpr(blocks, func.body.body, func.body.span)
    body.struct_info_ = func.body.struct_info_
    return Function(params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)


class _Tidied(StepsPass):
    """A change of signatures, and what tidies up after it."""

    def change(self, mod: IRModule) -> IRModule:
        """The module with other signatures."""
        raise NotImplementedError(f"{type(self).__name__} defines no change")

    def steps(self) -> list[Pass]:
        inner = as_module_pass(self.change, f"{self.info.name}Inner")
        return [inner, CanonicalizeBindings(), DeadCodeElimination()]


def _expanded(_: GlobalVar, func: Function) -> Change | None:
    if not any(isinstance(p.struct_info, TupleStructInfo) for p in func.params):
        return None
    params: list[Var] = []
    bindings: list[Any] = []

    def expand(param: Var) -> None:
        info = param.struct_info
        if not isinstance(info, TupleStructInfo):
            params.append(param)
            return
        items = [Var(f"{param.name_hint}_{i}", field) for i, field in enumerate(info.fields)]
        for item in items:
            expand(item)
        bindings.append(VarBinding(param, Tuple(items)))

    for param in func.params:
        expand(param)

    def call(_: BlockBuilder, name: GlobalVar, args: Sequence[Any]) -> Expr:
        flat: list[Any] = []

        def spread(arg: Expr) -> None:
            if isinstance(arg.struct_info, TupleStructInfo):
                for i in range(len(arg.struct_info.fields)):
                    spread(field_at(arg, i))
            else:
                flat.append(arg)

        for arg in args:
            spread(arg)
        return Call(name, flat)

    return _prefixed(func, params, bindings), call


class ExpandTupleArguments(_Tidied):
    """Private functions take the fields of their tuple parameters one by one.

    ``cls.func((a, b))`` becomes ``cls.func(a, b)``.
    """

    def change(self, mod: IRModule) -> IRModule:
        return _apply(mod, _expanded)


def _without_unused(_: GlobalVar, func: Function) -> Change | None:
    used = set(free_vars(func.body))
    mask = [p in used for p in func.params]
    if all(mask):
        return None
    params = [p for p, keep in zip(func.params, mask) if keep]
    known = {s for p in params for s in definable_tir_vars_in_struct_info(p.struct_info)}
    bare = Function([], func.body, func.ret_struct_info, func.is_pure, func.attrs)
    symbols = [s for s in free_symbolic_vars(bare) if s not in known]
    params += [Var(f"param_{s.name}", PrimStructInfo(value=s)) for s in symbols]

    def call(_: BlockBuilder, name: GlobalVar, args: Sequence[Any]) -> Expr:
        kept = [a for a, keep in zip(args, mask) if keep]
        if symbols:
            values: dict[Any, Any] = {}
            for param, arg in zip(func.params, args):
                param.struct_info.bind(arg.struct_info, values, {})
            kept += [PrimValue(values[s]) for s in symbols]
        return Call(name, kept)

    return _prefixed(func, params, []), call


class RemoveUnusedParameters(ModuleRewrite):
    """Private functions lose the parameters they do not use, and callers what they computed for them only; symbolic
    variables that only those defined are passed as scalars.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return _apply(mod, _without_unused, tidy=True)


class _TupleUses(PyExprVisitor):
    """Which fields of each private function's result are used."""

    def __init__(self, mod: IRModule) -> None:
        self.masks: dict[str, list[bool]] = {}
        self.results: dict[Var, str] = {}
        for var, func in functions_of(mod, Function):
            if symbol_of(func) is None:
                if isinstance(func.ret_struct_info, TupleStructInfo):
                    self.masks[var.name_hint] = [False] * len(func.ret_struct_info.fields)
        for func in of_kind(mod.functions.values(), Function):
            self.visit_expr(func)

    def _whole(self, name: str) -> None:
        self.masks[name] = [True] * len(self.masks[name])

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        match value:
            case Call() if isinstance(value.op, GlobalVar) and value.op.name_hint in self.masks:
                self.results[binding.var] = value.op.name_hint
                for arg in value.args:
                    self.visit_expr(arg)
            case TupleGetItem() if value.tuple_value in self.results:
                self.masks[self.results[value.tuple_value]][value.index] = True
            case _:
                super().visit_var_binding_(binding)

    def visit_var_(self, op: Var) -> None:
        if op in self.results:
            self._whole(self.results[op])

    def visit_global_var_(self, op: GlobalVar) -> None:
        if op.name_hint in self.masks:
            self._whole(op.name_hint)  # used as a value


def _without_outputs(mask: Sequence[bool], func: Function) -> Change:
    before = Var("previous_outputs", func.ret_struct_info)
    kept = [i for i, keep in enumerate(mask) if keep]
    outputs = [
        VarBinding(Var(f"output_{i}", item.struct_info), item) for i in kept for item in [TupleGetItem(before, i)]
    ]
    result: Any = outputs[0].var if len(outputs) == 1 else Tuple([binding.var for binding in outputs])
    blocks = [*func.body.blocks, BindingBlock([VarBinding(before, func.body.body), *outputs])]
    body = SeqExpr(blocks, result)
    body.struct_info_ = result.struct_info
    changed = Function(func.params, body, result.struct_info, func.is_pure, func.attrs, func.span)

    def call(builder: BlockBuilder, name: GlobalVar, args: Sequence[Any]) -> Expr:
        made = builder.emit(Call(name, args))
        items = {i: made if len(kept) == 1 else TupleGetItem(made, n) for n, i in enumerate(kept)}
        nothing = PrimValue(FloatImm("float64", math.nan))
        return Tuple([items.get(i, nothing) for i in range(len(mask))])

    return changed, call


def _remove_outputs(mod: IRModule) -> IRModule:
    masks = _TupleUses(mod).masks

    def analyse(var: GlobalVar, func: Function) -> Change | None:
        mask = masks.get(var.name_hint)
        return None if mask is None or all(mask) else _without_outputs(mask, func)

    return _apply(mod, analyse)


class RemoveUnusedOutputs(_Tidied):
    """Private functions that return tuples lose the fields that no caller uses; a single field left is returned bare."""

    def change(self, mod: IRModule) -> IRModule:
        return _remove_outputs(mod)
