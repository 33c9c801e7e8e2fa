"""Bindings that only rename disappear; symbolic variables that a cast defines again become what they equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..ir.expr import PrimExpr
from ..ir.prim import Var as TirVar
from ..ir.structural import structural_equal
from ..tir import NE
from .analysis.struct_info import definable_tir_vars_in_struct_info
from .analysis.variables import all_vars, free_vars
from .expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from .expr_functor import PyExprMutator, PyExprVisitor
from .scalars import fresh_analyzer, simplify, substitute_prim
from .struct_info import StructInfo
from .utils import followed

__all__ = ["canonicalize_bindings", "canonicalize_symbols"]

_P = TypeVar("_P", Function, SeqExpr)


class _Symbols(PyExprMutator):
    """``n`` of ``R.match_cast(x, R.Tensor((n,)))`` is what the shape of ``x`` says, where that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[TirVar, tuple[Any, MatchCast]] = {}
        #: Symbols of parameters and of casts of what is not known: a further cast to one of these only checks.
        self.given: set[TirVar] = set()

    def visit_prim_expr(self, value: PrimExpr) -> PrimExpr:
        if not self.known:
            return value
        new = substitute_prim(value, {var: expr for var, (expr, _) in self.known.items() if expr is not var})
        return value if new is value else simplify(new)

    def visit_function_(self, op: Function) -> Expr:
        saved = dict(self.known), set(self.given)
        self.given.update(s for p in op.params for s in definable_tir_vars_in_struct_info(p.struct_info))
        new = super().visit_function_(op)
        self.known, self.given = saved
        return new

    def visit_match_cast_(self, binding: MatchCast) -> None:
        found: dict[TirVar, Any] = {}
        source = self.visit_expr(binding.value).struct_info_
        if source is not None:
            (binding.var.struct_info_ or binding.struct_info).bind(source, found, {})
        for var, expr in found.items():
            if var in self.given:
                continue
            before = self.known.get(var)
            if before is None:
                self.known[var] = (expr, binding)
            elif fresh_analyzer().can_prove(NE(before[0], expr)):
                raise ValueError(
                    f"MatchCast statements must be consistent.  However, the definition of Relax variable "
                    f"{before[1].var.name_hint} implies that TIR variable {var.name} is {before[0]}, while the later "
                    f"definition of Relax variable {binding.var.name_hint} instead implies that TIR variable "
                    f"{var.name} is {expr}"
                )
        new = definable_tir_vars_in_struct_info(binding.struct_info)
        self.given.update(var for var in new if var not in self.known)
        super().visit_match_cast_(binding)

    def visit_if_(self, op: If) -> Expr:
        cond = self.visit_expr(op.cond)
        branches = []
        for branch in (op.true_branch, op.false_branch):
            saved = dict(self.known)
            branches.append(self.visit_with_inner_scope(branch))
            self.known = saved
        if cond is op.cond and branches[0] is op.true_branch and branches[1] is op.false_branch:
            return op
        info = self.visit_struct_info_node(op.struct_info)
        then = _with_info(branches[0], info, "then_branch_with_dyn")
        return If(cond, then, _with_info(branches[1], info, "else_branch_with_dyn"), op.span)


def _with_info(branch: SeqExpr, info: StructInfo, name: str) -> SeqExpr:
    """The branch with a result of the given struct info, by a cast where the branch alone now says something else.

    Branches may know different values of a symbolic variable; what they have in common would say less than before.
    """
    if structural_equal(info, branch.struct_info):
        return branch
    var = Var(name, info)
    cast = MatchCast(var, branch.body, info)
    blocks = list(branch.blocks)
    if blocks and not blocks[-1].is_dataflow:
        blocks[-1] = BindingBlock([*blocks[-1].bindings, cast], blocks[-1].span)
    else:
        blocks.append(BindingBlock([cast]))
    made = SeqExpr(blocks, var, branch.span)
    made.struct_info_ = info
    return made


class _FindsCast(PyExprVisitor):
    found = False

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.found = True


def canonicalize_symbols(func: _P) -> _P:
    """The function with symbolic variables of casts replaced by what they are known to equal.

    Raises ValueError if two casts contradict each other.
    """
    finder = _FindsCast()
    finder.visit_expr(func)
    if not finder.found:
        return func
    return _Symbols().visit_expr(func)


@dataclass
class _Plan:
    usage: dict[Var, Var] = field(default_factory=dict)
    binding: dict[Var, Var] = field(default_factory=dict)
    removed: set[Var] = field(default_factory=set)
    constants: dict[Var, Constant] = field(default_factory=dict)


class _Planner(PyExprVisitor):
    """Which variables are names for others or for constants, and which leave their dataflow block."""

    def __init__(self) -> None:
        self.trivial: dict[Var, Var] = {}
        self.known: dict[Var, Any] = {}
        self.home: dict[Var, BindingBlock] = {}
        self.outside: set[Var] = set()
        self.block: BindingBlock | None = None

    def visit_binding_block(self, block: BindingBlock) -> None:
        self.block = block
        super().visit_binding_block(block)
        self.block = None

    def visit_function_(self, op: Function) -> None:
        saved, self.block = self.block, None
        self.outside.update(free_vars(op))
        super().visit_function_(op)
        self.block = saved

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        saved, self.block = self.block, None
        super().visit_seq_expr_(op)
        self.block = saved

    def visit_binding(self, binding: Binding) -> None:
        value = self._unwrapped(binding.value)
        if isinstance(value, Var) and (
            isinstance(binding, VarBinding) or structural_equal(binding.var.struct_info_, binding.value.struct_info_)
        ):
            self.trivial[binding.var] = value
        self.known[binding.var] = value
        assert self.block is not None
        self.home[binding.var] = self.block
        super().visit_binding(binding)

    def _unwrapped(self, value: Expr) -> Expr:
        """The field a projection of a known tuple stands for; the tuple that a tuple of projections takes apart."""
        match value:
            case TupleGetItem():
                source = self._followed(value.tuple_value)
                return source.fields[value.index] if isinstance(source, Tuple) else value
            case Tuple() if value.fields:
                items = [self._followed(item) for item in value.fields]
                if not all(isinstance(got, TupleGetItem) and got.index == i for i, got in enumerate(items)):
                    return value
                whole = self._followed(items[0].tuple_value)
                if len(items[0].tuple_value.struct_info.fields) != len(items):
                    return value
                return whole if all(self._followed(got.tuple_value) is whole for got in items) else value
        return value

    def _followed(self, value: Expr) -> Any:
        return followed(value, self.known.get)

    def visit_var_(self, op: Var) -> None:
        home = self.home.get(op)
        if not isinstance(self.block, DataflowBlock) or (home is not None and home is not self.block):
            self.outside.add(op)

    def visit_struct_info(self, expr: Expr) -> None:
        info = expr.struct_info_
        shape = getattr(info, "shape", None)
        if isinstance(shape, Var):
            self.visit_var_(shape)

    def plan(self) -> _Plan:
        plan = _Plan()
        for var, home in self.home.items():
            if isinstance(home, DataflowBlock) and not var.is_dataflow and var not in self.outside:
                plan.binding[var] = plan.usage[var] = DataflowVar(var.name_hint, var.struct_info_, var.span)
        plan.constants = {var: value for var, value in self.known.items() if isinstance(value, Constant)}
        for var, target in self.trivial.items():
            while target in self.trivial:
                target = self.trivial[target]
            while target in plan.binding:
                target = plan.binding[target]
            plan.removed.add(var)
            if var.is_dataflow or not isinstance(target, DataflowVar) or var not in self.outside:
                plan.usage[var] = target
            else:
                # A dataflow variable may not leave its block: instead its value is bound to the outer variable.
                plan.binding[target] = var
                plan.usage[target] = var
        return plan


class _Canonicalizer(PyExprMutator):
    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self.plan = plan

    def visit_binding(self, binding: Binding) -> None:
        if binding.var not in self.plan.removed:
            super().visit_binding(binding)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        return _bound_directly(super().visit_dataflow_block_(block))

    def visit_var_def(self, var: Var) -> Var:
        new = var
        while new in self.plan.binding:
            new = self.plan.binding[new]
        made = super().visit_var_def(new)
        if made is not var:
            self.var_remap_[var] = made
        return made

    def visit_var_(self, op: Var) -> Expr:
        new = op
        while new in self.plan.usage:
            new = self.plan.usage[new]
        constant = self.plan.constants.get(new)
        return super().visit_var_(new) if constant is None else constant


def _bound_directly(block: DataflowBlock) -> DataflowBlock:
    """Outputs that only rename (or cast) a value of the block are bound to that value, unless more reads it."""
    used: set[Var] = set()
    outputs: set[Var] = set()
    values: dict[Var, Any] = {}
    for binding in reversed(block.bindings):
        var, value = binding.var, binding.value
        if not var.is_dataflow and isinstance(value, DataflowVar):
            if value in outputs:
                used.add(value)
            outputs.add(value)
            continue
        if var.is_dataflow and var in outputs and var not in used:
            values[var] = value
        used.update(all_vars(value))
    if not values:
        return block
    kept: list[Any] = []
    bindings: Sequence[Any] = block.bindings
    for binding in bindings:
        if binding.var in values:
            continue
        value = None if binding.var.is_dataflow else values.get(binding.value)
        if value is None:
            kept.append(binding)
        elif isinstance(binding, MatchCast):
            kept.append(MatchCast(binding.var, value, binding.struct_info, binding.span))
        else:
            kept.append(VarBinding(binding.var, value, binding.span))
    return DataflowBlock(kept, block.span)


def canonicalize_bindings(expr: _P) -> _P:
    """The function (or sequence) without bindings that only rename."""
    planner = _Planner()
    planner.visit_expr(expr)
    return _Canonicalizer(planner.plan()).visit_expr(expr)
