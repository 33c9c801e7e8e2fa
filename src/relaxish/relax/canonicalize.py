"""Bindings that only rename disappear; symbolic variables that a cast defines again become what they equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..ir.prim import Var as TirVar
from ..ir.structural import structural_equal
from .analysis.struct_info import bind_struct_info
from .expr import DataflowBlock, DataflowVar, Function, If, MatchCast, SeqExpr, Tuple, TupleGetItem, Var, VarBinding
from .expr_functor import PyExprMutator, PyExprVisitor
from .scalars import prove_equal, simplify, substitute_prim

__all__ = ["canonicalize_bindings", "canonicalize_symbols"]


class _Symbols(PyExprMutator):
    """``n`` of ``R.match_cast(x, R.Tensor((n,)))`` is what the shape of ``x`` says, where that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[TirVar, tuple[Any, MatchCast]] = {}

    def visit_prim_expr(self, value: Any) -> Any:
        if not self.known:
            return value
        new = substitute_prim(value, {var: expr for var, (expr, _) in self.known.items()})
        return value if new is value else simplify(new)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        found: dict[TirVar, Any] = {}
        source = self.visit_expr(binding.value).struct_info_
        if source is not None:
            bind_struct_info(binding.struct_info, source, found, {})
        for var, expr in found.items():
            before = self.known.get(var)
            if before is None:
                if expr is not var:
                    self.known[var] = (expr, binding)
            elif _differ(before[0], expr):
                raise ValueError(
                    f"MatchCast statements must be consistent, but {before[1].var.name_hint} implies that {var.name} "
                    f"is {before[0]}, and {binding.var.name_hint} that it is {expr}"
                )
        super().visit_match_cast_(binding)

    def visit_if_(self, op: If) -> Any:
        cond = self.visit_expr(op.cond)
        branches = []
        for branch in (op.true_branch, op.false_branch):
            saved = dict(self.known)
            branches.append(self.visit_with_inner_scope(branch))
            self.known = saved
        if cond is op.cond and branches[0] is op.true_branch and branches[1] is op.false_branch:
            return op
        return If(cond, branches[0], branches[1], op.span)


def _differ(lhs: Any, rhs: Any) -> bool:
    from .scalars import const_int

    left, right = const_int(lhs), const_int(rhs)
    return left is not None and right is not None and left != right and not prove_equal(lhs, rhs)


class _FindsCast(PyExprVisitor):
    found = False

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.found = True


def canonicalize_symbols(func: Function) -> Function:
    """The function with symbolic variables of casts replaced by what they are known to equal.

    Raises ValueError if two casts contradict each other.
    """
    finder = _FindsCast()
    finder.visit_expr(func)
    if not finder.found:
        return func
    made: Function = _Symbols().visit_expr(func)
    return made


@dataclass
class _Plan:
    usage: dict[Var, Var] = field(default_factory=dict)
    binding: dict[Var, Var] = field(default_factory=dict)
    removed: set[Var] = field(default_factory=set)


class _Planner(PyExprVisitor):
    """Which variables are names for others, and which leave their dataflow block."""

    def __init__(self) -> None:
        self.trivial: dict[Var, Var] = {}
        self.known: dict[Var, Any] = {}
        self.home: dict[Var, DataflowBlock] = {}
        self.outside: set[Var] = set()
        self.block: DataflowBlock | None = None

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        saved, self.block = self.block, block
        super().visit_dataflow_block_(block)
        self.block = saved

    def visit_function_(self, op: Function) -> None:
        saved, self.block = self.block, None
        super().visit_function_(op)
        self.block = saved

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        for block in op.blocks:
            self.visit_binding_block(block)
        saved, self.block = self.block, None
        self.visit_expr(op.body)
        self.block = saved

    def visit_binding(self, binding: Any) -> None:
        value = self._unwrapped(binding.value)
        if isinstance(value, Var) and (
            isinstance(binding, VarBinding) or structural_equal(binding.var.struct_info_, value.struct_info_)
        ):
            self.trivial[binding.var] = value
        self.known[binding.var] = value
        if self.block is not None:
            self.home[binding.var] = self.block
        super().visit_binding(binding)

    def _unwrapped(self, value: Any) -> Any:
        """The field a projection of a known tuple stands for; the tuple that a tuple of projections takes apart."""
        if isinstance(value, TupleGetItem):
            source = self._followed(value.tuple_value)
            return source.fields[value.index] if isinstance(source, Tuple) else value
        if isinstance(value, Tuple) and value.fields:
            whole = None
            for index, item in enumerate(value.fields):
                got = self.known.get(item) if isinstance(item, Var) else None
                if not isinstance(got, TupleGetItem) or got.index != index:
                    return value
                if whole is not None and got.tuple_value is not whole:
                    return value
                whole = got.tuple_value
            fields = getattr(getattr(whole, "struct_info_", None), "fields", ())
            return whole if isinstance(whole, Var) and len(fields) == len(value.fields) else value
        return value

    def _followed(self, value: Any) -> Any:
        while isinstance(value, Var) and value in self.known:
            value = self.known[value]
        return value

    def visit_var_(self, op: Var) -> None:
        if self.block is None or self.home.get(op) is not self.block:
            self.outside.add(op)

    def visit_struct_info(self, expr: Any) -> None:
        info = expr.struct_info_
        shape = getattr(info, "shape", None)
        if isinstance(shape, Var):
            self.visit_var_(shape)

    def plan(self) -> _Plan:
        plan = _Plan()
        handled: set[Var] = set()
        for var, target in self.trivial.items():
            while target in self.trivial:
                target = self.trivial[target]
            while target in plan.binding:
                target = plan.binding[target]
            plan.removed.add(var)
            handled.add(var)
            if isinstance(var, DataflowVar) or not isinstance(target, DataflowVar):
                plan.usage[var] = target
            else:
                # A dataflow variable may not leave its block: instead its value is bound to the outer variable.
                plan.binding[target] = var
                plan.usage[target] = var
        for var in self.home:
            if not isinstance(var, DataflowVar) and var not in self.outside and var not in handled:
                if var not in plan.binding and var not in plan.binding.values():
                    made = DataflowVar(var.name_hint, var.struct_info_, var.span)
                    plan.binding[var] = plan.usage[var] = made
        return plan


class _Canonicalizer(PyExprMutator):
    def __init__(self, plan: _Plan, known: dict[Var, Any]) -> None:
        super().__init__()
        self.plan = plan
        self.known = known

    def visit_binding(self, binding: Any) -> None:
        if binding.var not in self.plan.removed:
            super().visit_binding(binding)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Any:
        value: Any = op.tuple_value
        while isinstance(value, Var) and value in self.known:
            value = self.known[value]
        if isinstance(value, Tuple):
            return self.visit_expr(value.fields[op.index])
        return super().visit_tuple_getitem_(op)

    def visit_var_def(self, var: Var) -> Any:
        new = var
        while new in self.plan.binding:
            new = self.plan.binding[new]
        made = super().visit_var_def(new)
        if made is not var:
            self.var_remap_[var] = made
        return made

    def visit_var_(self, op: Var) -> Any:
        new = op
        while new in self.plan.usage:
            new = self.plan.usage[new]
        return super().visit_var_(new)


def canonicalize_bindings(expr: Any) -> Any:
    """The function (or sequence) without bindings that only rename."""
    planner = _Planner()
    planner.visit_expr(expr)
    plan = planner.plan()
    return _Canonicalizer(plan, planner.known).visit_expr(expr)
