"""Questions about whole modules."""

from __future__ import annotations

from collections.abc import Iterator

from ..support.sequences import of_kind
from .expr import GlobalVar
from .functor import post_order_visit
from .module import IRModule

__all__ = ["collect_call_map"]


def collect_call_map(module: IRModule) -> dict[GlobalVar, list[GlobalVar]]:
    """The functions of the module that each function refers to, each once, in the order of their first use.

    >>> from relaxish.script import ir as I, tir as T
    >>> @I.ir_module
    ... class Calls:
    ...     @T.prim_func
    ...     def main():
    ...         Calls.helper()
    ...     @T.prim_func(private=True)
    ...     def helper():
    ...         T.evaluate(0)
    >>> {v.name_hint: [c.name_hint for c in callees] for v, callees in collect_call_map(Calls).items()}
    {'main': ['helper'], 'helper': []}
    """

    def callees(func: object) -> Iterator[GlobalVar]:
        found: list[object] = []
        post_order_visit(func, found.append)
        return (node for node in of_kind(found, GlobalVar) if node in module.functions)

    return {var: list(dict.fromkeys(callees(func))) for var, func in module.functions.items()}
