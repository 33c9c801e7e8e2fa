"""EliminateCommonSubexpr: what was computed before is used again."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.structural import structural_equal, structural_hash
from ..ir.transform import Pass
from ..relax.analysis.variables import contains_impure_call
from ..relax.expr import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    PrimValue,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..relax.expr_functor import PyExprMutator
from .base import as_module_pass, map_relax_functions

__all__ = ["EliminateCommonSubexpr"]

_CALL_ONLY_KINDS = (Call,)
_KINDS = (Call, Tuple, TupleGetItem, ShapeExpr, PrimValue, Constant)


def _key(value: Any) -> Any:
    """A cheap exact key where one exists: object identities of operator and arguments, hash of attributes."""
    if isinstance(value, Call):
        attrs = None if value.attrs is None else structural_hash(value.attrs)
        return ("call", value.op, tuple(_arg_key(a) for a in value.args), attrs, tuple(map(structural_hash, value.sinfo_args)))
    if isinstance(value, TupleGetItem):
        return ("get", value.tuple_value, value.index)
    return _arg_key(value)


def _arg_key(arg: Any) -> Any:
    if isinstance(arg, Tuple):
        return ("tuple", tuple(_arg_key(f) for f in arg.fields))
    if isinstance(arg, (Constant, ShapeExpr, PrimValue)) or not isinstance(arg, Var):
        return ("leaf", type(arg).__name__, structural_hash(arg))
    return arg


class _Eliminator(PyExprMutator):
    def __init__(self, call_only: bool) -> None:
        super().__init__()
        self.kinds = _CALL_ONLY_KINDS if call_only else _KINDS
        self.available: list[dict[Any, list[tuple[Any, Var]]]] = [{}]

    def _scoped(self, visit: Any, *args: Any) -> Any:
        self.available.append({})
        result = visit(*args)
        self.available.pop()
        return result

    def visit_with_new_scope(self, expr: Any, params: Any = None) -> Any:
        # What an enclosing function computed is not available when a nested one runs as a closure elsewhere.
        saved, self.available = self.available, [{}]
        result = super().visit_with_new_scope(expr, params)
        self.available = saved
        return result

    def visit_with_inner_scope(self, expr: Any) -> Any:
        return self._scoped(super().visit_with_inner_scope, expr)

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        return self._scoped(self._block, block)

    def _block(self, block: DataflowBlock) -> BindingBlock:
        new: BindingBlock = super().visit_dataflow_block_(block)
        outer = self.available[-2]
        for key, entries in self.available[-1].items():
            kept = [e for e in entries if not isinstance(e[1], DataflowVar)]
            if kept:
                outer.setdefault(key, []).extend(kept)
        return new

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = self.visit_expr(binding.value)
        if not isinstance(value, self.kinds) or (isinstance(value, Call) and contains_impure_call(value)):
            self.reemit_binding(binding, value)
            return
        key = _key(value)
        known = self._find(key, value)
        if known is not None and structural_equal(known.struct_info_, value.struct_info_ or binding.var.struct_info_):
            if isinstance(binding.var, DataflowVar) or not isinstance(known, DataflowVar):
                if isinstance(binding.var, DataflowVar):
                    self.var_remap_[binding.var] = known
                    return
            self.reemit_binding(binding, known)
            return
        self.reemit_binding(binding, value)
        self.available[-1].setdefault(key, []).append((value, self.var_remap_.get(binding.var, binding.var)))

    def _find(self, key: Any, value: Any) -> Var | None:
        for scope in reversed(self.available):
            for other, var in scope.get(key, ()):
                if structural_equal(other, value):
                    found: Var = var
                    return found
        return None

    def visit_match_cast_(self, binding: MatchCast) -> None:
        super().visit_match_cast_(binding)


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:  # noqa: N802  (public name of the pass)
    """Bind equal pure expressions once.

    ``a = R.add(x, y); b = R.add(x, y)`` keeps ``a`` only.  With ``call_only``, tuples, projections and shapes
    are left alone.
    """

    def run(mod: IRModule) -> IRModule:
        def eliminate(_: Any, func: Function) -> Function:
            made: Function = _Eliminator(call_only).visit_expr(func)
            return made

        return map_relax_functions(mod, eliminate)

    return as_module_pass(run, "EliminateCommonSubexpr")
