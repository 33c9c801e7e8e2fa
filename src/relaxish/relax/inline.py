"""Inlining calls of module functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..support.errors import RelaxishError
from ..support.sequences import of_kind
from .analysis.cleanup import remove_all_unused
from .binding_tools import substitute_params
from .canonicalize import canonicalize_bindings
from .copying import copy_with_new_vars
from .expr import Call, DataflowBlock, Expr, Function, SeqExpr, Var, VarBinding
from .expr_functor import PyExprMutator

__all__ = ["inline_functions"]


class _Inline(PyExprMutator):
    def __init__(self, functions: Mapping[GlobalVar | str, Function]) -> None:
        super().__init__()
        self.functions = functions
        self.stack: list[GlobalVar] = []

    def visit_function_(self, op: Function) -> Expr:
        made = super().visit_function_(op)
        return op if made is op else remove_all_unused(canonicalize_bindings(made))

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        name = call.op
        if not isinstance(name, GlobalVar):
            return call
        func = self.functions.get(name) or self.functions.get(name.name_hint)
        if func is None:
            return call
        if len(func.params) != len(call.args):
            raise RelaxishError(
                f"Attempted to inline call to {name.name_hint}, which accepts {len(func.params)} parameters.  However, it "
                f"was called with {len(call.args)} arguments in expression {call}"
            )
        if name in self.stack:
            raise RelaxishError(
                "Relax function inlining does not support recursive functions.  However, recursive function "
                f"{name.name_hint} was requested to be inlined."
            )
        self.stack.append(name)
        made = self.visit_expr(_body_for(copy_with_new_vars(func), call.args))
        self.stack.pop()
        return made


def _body_for(func: Function, args: Sequence[Any]) -> SeqExpr:
    """The function's body after bindings of its parameters; its symbolic dimensions are those of the arguments.

    The bindings make a dataflow block, which may stand anywhere; what they bind is simplified away afterwards.
    """
    given = [Var(param.name_hint, arg.struct_info) for param, arg in zip(func.params, args)]
    block = DataflowBlock([VarBinding(var, arg) for var, arg in zip(given, args)])
    body = substitute_params(func, dict(zip(func.params, given))).body
    return SeqExpr([block] if block.bindings else [], body)


def inline_functions(func: Function, function_map: Mapping[Any, Function]) -> Function:
    """The function with calls of the given functions (by name or GlobalVar) replaced by their bodies.

    Raises ValueError if the map has both the name and the variable of a function.
    """
    for key in of_kind(function_map, GlobalVar):
        if key.name_hint in function_map:
            raise ValueError(
                "Map of functions to inline must be unambiguous.  However, the map provided contains both the "
                f"GlobalVar {key.name_hint} and the string '{key.name_hint}'"
            )
    made: Function = _Inline(function_map).visit_expr(func)
    return made
