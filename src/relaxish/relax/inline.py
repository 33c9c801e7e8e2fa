"""Inlining calls of module functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.expr import GlobalVar
from ..support.errors import RelaxishError
from .analysis.struct_info import bind_struct_info
from .binding_tools import _Bind
from .copying import copy_with_new_vars
from .expr import Call, Function, Var
from .expr_functor import PyExprMutator

__all__ = ["inline_functions"]


class _Inline(PyExprMutator):
    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = functions
        self.stack: list[str] = []

    def visit_call_(self, op: Call) -> Any:
        call = super().visit_call_(op)
        if not isinstance(call.op, GlobalVar) or call.op.name_hint not in self.functions:
            return call
        name = call.op.name_hint
        if name in self.stack:
            raise RelaxishError(f"cannot inline '{name}': it calls itself")
        func = copy_with_new_vars(self.functions[name])
        values: dict[Var, Any] = {}
        symbols: dict[Any, Any] = {}
        for param, arg in zip(func.params, call.args):
            values[param] = arg
            if param.struct_info_ is not None and arg.struct_info_ is not None:
                bind_struct_info(param.struct_info_, arg.struct_info_, symbols, {})
        body = _Bind(values, symbols).visit_with_inner_scope(func.body)
        body.struct_info_ = None
        self.stack.append(name)
        result = self._expand(body)
        self.stack.pop()
        return result

    def _expand(self, body: Any) -> Any:
        """Emit the body's bindings here and return its result; dataflow stays what the call's place is."""
        from .expr import DataflowVar, MatchCast, VarBinding

        dataflow = self.builder_.current_block_is_dataflow()
        for block in body.blocks:
            for binding in block.bindings:
                var = binding.var
                kind = DataflowVar if dataflow else Var
                if type(var) is not kind:
                    new = kind(var.name_hint, var.struct_info_, var.span)
                    self.var_remap_[var] = new
                    binding = (
                        MatchCast(new, binding.value, binding.struct_info, binding.span)
                        if isinstance(binding, MatchCast)
                        else VarBinding(new, binding.value, binding.span)
                    )
                self.visit_binding(binding)
        return self.visit_expr(body.body)


def inline_functions(func: Function, function_map: Mapping[Any, Function]) -> Function:
    """The function with calls of the given functions (by name or GlobalVar) replaced by their bodies."""
    table = {getattr(k, "name_hint", k): v for k, v in function_map.items()}
    made: Function = _Inline(table).visit_expr(func)
    return made
