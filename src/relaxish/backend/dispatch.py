"""Dispatch of operators that have kernels of their own: sorting, scans and sampling."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.expr import Call, Function
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_record_of
from ..transform.base import as_module_pass

__all__ = ["DispatchSampling", "DispatchSortScan"]

_SORT_SCAN = frozenset(f"relax.{name}" for name in ("sort", "argsort", "topk", "cumsum", "cumprod"))
_SAMPLING = frozenset({"relax.multinomial_from_uniform"})


class _Dispatch(PyExprMutator):
    """Lowers the named operators, and only those, by the rules of their records."""

    def __init__(self, mod: IRModule, names: frozenset[str]) -> None:
        super().__init__(mod)
        self.names = names

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        record = op_record_of(call.op)
        if record is None or record.name not in self.names or record.legalize is None:
            return call
        return record.legalize(self.builder_, self.builder_.normalize(call))


def _run(mod: IRModule, names: frozenset[str]) -> IRModule:
    dispatch = _Dispatch(mod, names)
    for var, func in list(mod.functions.items()):
        if isinstance(func, Function):
            new = dispatch.visit_expr(func)
            if new is not func:
                dispatch.builder_.update_func(var, new)
    return dispatch.builder_.get()


def DispatchSortScan() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.sort``, ``R.argsort``, ``R.topk``, ``R.cumsum`` and ``R.cumprod`` become ``call_tir`` to sorting and scanning
    loops.
    """
    return as_module_pass(lambda mod: _run(mod, _SORT_SCAN), "DispatchSortScan")


def DispatchSampling() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.multinomial_from_uniform`` becomes ``call_tir`` to the loops that sample."""
    return as_module_pass(lambda mod: _run(mod, _SAMPLING), "DispatchSampling")
