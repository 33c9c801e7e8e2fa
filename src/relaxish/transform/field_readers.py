"""Programs that read a tensor's descriptor become calls of the runtime, which has no descriptors in memory to read."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..op.inspect_getters import field_reader
from ..relax.expr import Call, Expr, ExternFunc, Function
from ..relax.expr_functor import PyExprMutator
from ..tir.function import PrimFunc

__all__ = ["field_readers_to_builtins"]


class _Rename(PyExprMutator):
    def __init__(self, mod: IRModule, readers: dict[Any, str]) -> None:
        super().__init__(mod)
        self.readers = readers

    def visit_call_(self, op: Call) -> Expr:
        call: Call = super().visit_call_(op)
        symbol = self.readers.get(call.op)
        if symbol is None:
            return call
        return Call(ExternFunc(symbol), call.args, call.attrs, [op.struct_info], call.span)


def field_readers_to_builtins(mod: IRModule) -> IRModule:
    """The module without the programs that ``R.inspect.*`` was legalised to."""
    readers: dict[Any, str] = {}
    for var, func in mod.functions.items():
        symbol = field_reader(func) if isinstance(func, PrimFunc) else None
        if symbol is not None:
            readers[var] = symbol
    if not readers:
        return mod
    rename = _Rename(mod, readers)
    kept = {
        var: rename.visit_expr(func) if isinstance(func, Function) else func
        for var, func in mod.functions.items()
        if var not in readers
    }
    return IRModule(kept, mod.attrs, mod.global_infos)
