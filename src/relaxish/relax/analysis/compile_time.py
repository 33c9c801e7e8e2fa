"""Which values depend on weights only."""

from __future__ import annotations

from typing import Any

from ..expr import Function, MatchCast, Var
from .struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from .variables import contains_impure_call, direct_uses

__all__ = ["computable_at_compile_time"]


def computable_at_compile_time(func: Function) -> list[Var]:
    """Variables that can be computed once the weights are known.

    The attribute ``num_input`` says how many leading parameters are run-time inputs; without it there are none
    known, and the answer is empty.
    """
    count = func.attrs.get("num_input")
    if count is None:
        return []
    start = int(getattr(count, "value", count))
    known: dict[Var, None] = {}
    symbols: set[Any] = set()
    for param in func.params[start:]:
        known[param] = None
        symbols.update(definable_tir_vars_in_struct_info(param.struct_info))
    for block in func.body.blocks:
        for binding in block.bindings:
            info = binding.var.struct_info_
            if not all(v in known for v in direct_uses(binding.value)) or contains_impure_call(binding.value):
                continue
            if isinstance(binding, MatchCast):
                symbols.update(definable_tir_vars_in_struct_info(binding.struct_info))
            if info is not None and not all(v in symbols for v in tir_vars_in_struct_info(info)):
                continue
            known[binding.var] = None
    return list(known)
