"""Common subexpressions: what was computed before is used again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

from ..ir.structural import structural_equal, structural_hash
from .analysis.cleanup import keeps_vouched_calls, may_write
from .analysis.variables import contains_impure_call
from .expr import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from .expr_functor import PyExprMutator
from .op_table import op_record_of
from .struct_info import StructInfo

__all__ = ["eliminate_common_subexpr"]

_P = TypeVar("_P", Function, SeqExpr)


def _key(value: Expr) -> Hashable:
    """A cheap key: object identities of operator and arguments, hashes of the rest. Equal values have equal keys."""
    match value:
        case Call():
            attrs = None if value.attrs is None else structural_hash(value.attrs)
            infos = tuple(structural_hash(i) for i in value.sinfo_args)
            return ("call", value.op, tuple(_arg_key(a) for a in value.args), attrs, infos)
        case TupleGetItem():
            return ("get", value.tuple_value, value.index)
    return _arg_key(value)


def _arg_key(arg: Expr) -> Hashable:
    if isinstance(arg, Tuple):
        return ("tuple", tuple(_arg_key(f) for f in arg.fields))
    if isinstance(arg, (Constant, ShapeExpr, PrimValue)) or not isinstance(arg, Var):
        return ("leaf", type(arg).__name__, structural_hash(arg))
    return arg


def _allocates(call: Call) -> bool:
    """Whether every such call gives a tensor of its own."""
    record = op_record_of(call.op)
    return record is not None and bool(record.allocates)


class _Pliminator(PyExprMutator):
    """Second bindings of a value become copies of the first variable, and their uses uses of it."""

    def __init__(self, call_only: bool) -> None:
        super().__init__()
        self.call_only = call_only
        self.known: dict[Any, list[tuple[Any, Any, list[Var]]]] = {}
        self.in_dataflow = False

    def visit_function_(self, op: Function) -> Expr:
        if self.known or self.var_remap_:
            # What an enclosing function computed is not available when a nested one runs elsewhere.
            return _Pliminator(self.call_only).visit_function_(op)
        return super().visit_function_(op)

    def visit_with_inner_scope(self, expr: Expr) -> SeqExpr:
        saved = self.known
        self.known = {k: [(v, i, list(names)) for v, i, names in entries] for k, entries in saved.items()}
        result = super().visit_with_inner_scope(expr)
        self.known = saved
        return result

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        # Outside, an output stands for itself, even where it copies another one.
        saved = dict(self.var_remap_)
        self.in_dataflow = True
        new = super().visit_dataflow_block_(block)
        self.in_dataflow = False
        self.var_remap_ = saved
        for entries in self.known.values():
            for _, _, names in entries:
                names[:] = [n for n in names if not n.is_dataflow]
        return new

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self._place(binding, self.visit_expr(binding.value), None)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self._place(binding, self.visit_expr(binding.value), binding.struct_info)

    def _place(self, binding: VarBinding | MatchCast, value: Expr, info: StructInfo | None) -> None:
        names = self._names_of(value, info)
        if names:
            self.builder_.emit_normalized(VarBinding(binding.var, names[0], binding.span))
            self.var_remap_[binding.var] = names[0]
            names.append(binding.var)
            return
        if value is not binding.value:
            if info is not None:
                binding = MatchCast(binding.var, value, info, binding.span)
            else:
                binding = VarBinding(binding.var, value, binding.span)
        self.builder_.emit_normalized(binding)
        if not self.in_dataflow and keeps_vouched_calls() and may_write(value):
            self.known = {}  # what was computed before the write need not be what would be computed after it
        elif names is not None:
            names.append(binding.var)

    def _names_of(self, value: Expr, info: StructInfo | None) -> list[Var] | None:
        """Variables bound to an equal value; None if values of that kind are not to be shared."""
        if (self.call_only and not isinstance(value, Call)) or contains_impure_call(value):
            return None
        if not self.in_dataflow and keeps_vouched_calls() and may_write(value):
            return None
        if isinstance(value, Call) and _allocates(value):
            return None
        entries = self.known.setdefault((_key(value), None if info is None else structural_hash(info)), [])
        for other, other_info, names in entries:
            same_info = other_info is info or (
                info is not None and other_info is not None and structural_equal(other_info, info)
            )
            if same_info and structural_equal(other, value):
                return names
        fresh: list[Var] = []
        entries.append((value, info, fresh))
        return fresh


def eliminate_common_subexpr(expr: _P, call_only: bool = False) -> _P:
    """The function (or sequence) in which equal pure values are computed once."""
    return _Pliminator(call_only).visit_expr(expr)
