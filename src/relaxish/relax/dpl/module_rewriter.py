"""Rewriters written as modules: a function ``pattern`` and the function ``replacement`` that takes its place."""

from __future__ import annotations

from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ..expr import Function
from .rewriter import PatternMatchingRewriter, pattern_of_function, replacement_of_function

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
