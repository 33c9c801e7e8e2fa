"""Rewriters written as modules: a function ``pattern`` and the function ``replacement`` that takes its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.structural import structural_equal
from ..copying import copy_with_new_vars
from ..expr import (
    Call,
    DataflowBlock,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..struct_info import PrimStructInfo
from .pattern import (
    CallPattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    WildcardPattern,
)
from .rewriter import PatternMatchingRewriter, RewriterFunc

__all__ = ["rewriter_of_module"]


def _function(mod: IRModule, name: str) -> Function:
    if name not in mod:
        raise KeyError(f"Expected module to contain function named '{name}'")
    func = mod[name]
    if not isinstance(func, Function):
        raise TypeError(f"Expected function '{name}' to be a Relax function, not {type(func).__name__}")
    return func


def rewriter_of_module(mod: IRModule) -> PatternMatchingRewriter:
    """The rewriter that a module with ``pattern`` and ``replacement`` describes; private functions come along."""
    pattern, replacement = _function(mod, "pattern"), _function(mod, "replacement")
    subroutines: dict[GlobalVar, BaseFunc] = {}
    for var, func in mod.functions.items():
        if var.name_hint in ("pattern", "replacement"):
            continue
        if func.attrs.get("global_symbol") is not None:
            raise ValueError(
                "Expected module to have no publicly-exposed functions other than 'pattern' and 'replacement', "
                f"but function '{var.name_hint}' is exposed"
            )
        subroutines[var] = func
    if not structural_equal(pattern.struct_info, replacement.struct_info):
        raise ValueError(
            "The pattern and replacement must have the same signature, but the pattern has "
            f"{pattern.struct_info} and the replacement {replacement.struct_info}"
        )
    top, wildcards = pattern_of_function(pattern)
    rewrite = replacement_of_function(replacement, wildcards)
    return PatternMatchingRewriter.from_pattern(top, rewrite, None, subroutines)


def pattern_of_function(func: Function) -> tuple[DFPattern, list[WildcardPattern]]:
    """The pattern of a function's result, and the wildcards that stand for its parameters."""
    wildcards = [WildcardPattern() for _ in func.params]
    known: dict[Var, DFPattern] = {
        param: StructInfoPattern(hole, param.struct_info) for param, hole in zip(func.params, wildcards)
    }

    def make(expr: Expr) -> DFPattern:
        match expr:
            case Var():
                return known[expr]
            case Call():
                return CallPattern(make(expr.op), [make(a) for a in expr.args], add_constraint=False)
            case Tuple():
                return TuplePattern([make(f) for f in expr.fields])
            case TupleGetItem():
                return TupleGetItemPattern(make(expr.tuple_value), expr.index)
            case ExternFunc():
                return ExternFuncPattern(expr.global_symbol)
            case PrimValue():
                return StructInfoPattern(WildcardPattern(), PrimStructInfo(value=expr.value))
            case Op() | Expr():
                return ExprPattern(expr)
        raise TypeError(f"Cannot convert a {type(expr).__name__} to a pattern")

    for block in func.body.blocks:
        for binding in block.bindings:
            value = make(binding.value)
            if isinstance(binding, MatchCast):
                value = StructInfoPattern(value, binding.struct_info)
            known[binding.var] = value
    return make(func.body.body), wildcards


def replacement_of_function(func: Function, wildcards: Sequence[WildcardPattern]) -> RewriterFunc:
    """Replacement computed by the function from the matches of the wildcards."""

    def rewrite(expr: Expr, matches: dict[DFPattern, Expr]) -> Expr | None:
        fresh = copy_with_new_vars(func)
        bindings: list[Any] = []
        for hole, param in zip(wildcards, fresh.params):
            matched = matches[hole]
            between = Var("intermediate_var", matched.struct_info)
            bindings.append(VarBinding(between, matched))
            bindings.append(MatchCast(param, between, matched.struct_info))
        return SeqExpr([DataflowBlock(bindings), *fresh.body.blocks], fresh.body.body)

    return rewrite
