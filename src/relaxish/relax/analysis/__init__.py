"""Analyses of graph programs. Those that need visitors resolve on first use, because visitors need this package."""

from __future__ import annotations

from ...support.entry_points import lazy_package, names
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
    *names(__name__),
]

__getattr__, __dir__ = lazy_package(globals())
