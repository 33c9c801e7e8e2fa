"""Analyses of graph programs. Those that need visitors resolve on first use, because visitors need this package."""

from __future__ import annotations

import importlib
from typing import Any

from .struct_info import (
    BaseCheckResult,
    collect_non_negative_expressions,
    definable_tir_vars_in_struct_info,
    derive_call_ret_struct_info,
    erase_to_well_defined,
    get_static_type,
    struct_info_base_check,
    struct_info_lca,
    tir_vars_in_struct_info,
)

_LAZY: dict[str, str] = {
    "OpPatternKind": "tir_pattern",
    "all_global_vars": "variables",
    "all_vars": "variables",
    "bound_vars": "variables",
    "computable_at_compile_time": "compile_time",
    "contains_impure_call": "variables",
    "defined_symbolic_vars": "variables",
    "detect_op_pattern": "tir_pattern",
    "detect_recursion": "recursion",
    "estimate_memory_usage": "memory_usage",
    "find_ill_formed": "wellformed",
    "free_symbolic_vars": "variables",
    "free_vars": "variables",
    "get_var2val": "variables",
    "has_reshape_pattern": "tir_pattern",
    "name_to_binding": "variables",
    "post_order_visit": "variables",
    "remove_all_unused": "cleanup",
    "suggest_layout_transforms": "layout_transforms",
    "udchain": "variables",
    "well_formed": "wellformed",
}

__all__ = [
    "BaseCheckResult",
    "collect_non_negative_expressions",
    "definable_tir_vars_in_struct_info",
    "derive_call_ret_struct_info",
    "erase_to_well_defined",
    "get_static_type",
    "struct_info_base_check",
    "struct_info_lca",
    "tir_vars_in_struct_info",
    *_LAZY,
]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
