"""Shared parts of graph passes: making passes, walking the functions of a module, pass decorators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..ir.transform import ModulePass, Pass, PassContext, PassInfo, make_pass_decorator
from ..relax.expr import BindingBlock, DataflowBlock, Expr, Function, Tuple, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.global_names import symbol_of

__all__ = [
    "DataflowBlockPass",
    "FunctionPass",
    "as_module_pass",
    "dataflowblock_pass",
    "function_pass",
    "map_relax_functions",
    "mutated",
    "remapped_leaves",
    "symbol_of",
]


class _Module(ModulePass):
    """A module pass made of a function of the module."""

    def __init__(self, run: Callable[[IRModule], IRModule], info: PassInfo) -> None:
        super().__init__(info)
        self._run = run

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self._run(mod)


def as_module_pass(
    run: Callable[[IRModule], IRModule], name: str, opt_level: int = 0, required: Sequence[str] = ()
) -> Pass:
    """A pass that applies ``run`` to the whole module."""
    return _Module(run, PassInfo(opt_level, name, required))


def map_relax_functions(mod: IRModule, transform: Callable[[Any, Function], Function | None]) -> IRModule:
    """The module with every graph function replaced; a transform that returns None removes it."""
    changed: dict[Any, Any] = {}
    for var, func in functions_of(mod, Function):
        new = transform(var, func)
        if new is not func:
            changed[var] = new
    if not changed:
        return mod
    out = mod.clone()
    for var, func in changed.items():
        if func is None:
            del out[var]
        else:
            out.update_func(var, func)
    return out


def mutated(mutator: PyExprMutator, mod: IRModule) -> IRModule:
    """The module with every graph function sent through one mutator, made for the module."""

    def rewrite(_: GlobalVar, func: Function) -> Function:
        made: Function = mutator.visit_expr(func)
        return made

    return map_relax_functions(mod, rewrite)


def remapped_leaves(mutator: PyExprMutator, expr: Expr) -> Expr:
    """A leaf or tuple of leaves with variables replaced by those that ``mutator`` has defined for them."""
    match expr:
        case Tuple():
            fields = [remapped_leaves(mutator, field) for field in expr.fields]
            return expr if all(a is b for a, b in zip(fields, expr.fields)) else Tuple(fields, expr.span)
        case Var():
            return mutator.var_remap_.get(expr, expr)
    return expr


class FunctionPass(Pass):
    """A pass over each graph function."""

    level = "Function"

    def __init__(self, function: Callable[..., Function], info: PassInfo) -> None:
        super().__init__(info)
        self.function = function

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(mod, lambda _, func: self.function(func, mod, ctx))


class _BlockMutator(PyExprMutator):
    def __init__(self, mod: IRModule, transform: Callable[[DataflowBlock], Any]) -> None:
        super().__init__(mod)
        self.transform = transform

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        # Twice through the default rules: before, so that earlier renamings are seen, and after, to infer anew.
        new = self.transform(super().visit_dataflow_block_(block))
        return super().visit_dataflow_block_(new)


class DataflowBlockPass(Pass):
    """A pass over each dataflow block."""

    level = "DataflowBlock"

    def __init__(self, function: Callable[..., DataflowBlock], info: PassInfo) -> None:
        super().__init__(info)
        self.function = function

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def run(_: Any, func: Function) -> Function:
            made: Function = _BlockMutator(mod, lambda block: self.function(block, mod, ctx)).visit_expr(func)
            return made

        return map_relax_functions(mod, run)


function_pass = make_pass_decorator(FunctionPass, FunctionPass, "transform_function")
dataflowblock_pass = make_pass_decorator(DataflowBlockPass, DataflowBlockPass, "transform_dataflowblock")
