"""SpecializeSizes: copies of a function for sizes that are known, chosen between when it is called."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from ..ir.declared_pass import ModuleRewrite
from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.prim import Var as TirVar
from ..relax.analysis.struct_info import definable_tir_vars_in_struct_info
from ..relax.binding_tools import bind_symbolic_vars
from ..relax.block_builder import BlockBuilder
from ..relax.call_forms import call_pure_packed
from ..relax.copying import copy_with_new_vars
from ..relax.expr import Call, Expr, Function, If, PrimValue, SeqExpr, ShapeExpr, Var
from ..relax.struct_info import StructInfo, TensorStructInfo

__all__ = ["SpecializeSizes"]


def _cases(sizes: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every combination of sizes, in the order in which they are given."""
    for name, values in sizes.items():
        if not values or any(not isinstance(v, int) or isinstance(v, bool) or v < 0 for v in values):
            raise ValueError(f"sizes of {name!r} are a list or a range of integers, not {values!r}")
    return [dict(zip(sizes, values)) for values in itertools.product(*(dict.fromkeys(v) for v in sizes.values()))]


def _symbols(func: Function) -> dict[str, TirVar]:
    """The symbols that dimensions of parameters are, by name."""
    return {s.name: s for p in func.params for s in definable_tir_vars_in_struct_info(p.struct_info)}


class _Chooser:
    """Makes the function that calls one of the others."""

    def __init__(self, builder: BlockBuilder, func: Function) -> None:
        self.builder, self.result = builder, func.ret_struct_info
        self.params: Sequence[Var] = func.params
        self.symbols = _symbols(func)

    def call(self, callee: GlobalVar) -> Expr:
        made = self.builder.emit(Call(callee, self.params))
        info: StructInfo = self.builder.erase_for_scope(self.result)
        return self.builder.match_cast(made, info)

    def branch(self, cases: Sequence[tuple[Mapping[str, int], GlobalVar]], otherwise: GlobalVar) -> SeqExpr:
        """The call for the first case that holds, in a block of its own."""
        self.builder.begin_inner_scope()
        self.builder.begin_binding_block()
        out = self.chosen(cases, otherwise)
        block = self.builder.end_block()
        self.builder.end_scope()
        return SeqExpr([block], out)

    def chosen(self, cases: Sequence[tuple[Mapping[str, int], GlobalVar]], otherwise: GlobalVar) -> Expr:
        """The result for the first case that holds."""
        if not cases:
            return self.call(otherwise)
        (sizes, callee), *rest = cases
        have = ShapeExpr([self.symbols[name] for name in sizes])
        wanted = [PrimValue(size) for size in sizes.values()]
        call = call_pure_packed("vm.builtin.sizes_are", have, *wanted, sinfo_args=TensorStructInfo([], "bool"))
        truth = self.builder.emit(call)
        return self.builder.emit(If(truth, self.branch((), callee), self.branch(rest, otherwise)))


class SpecializeSizes(ModuleRewrite):
    """Give a function of symbolic sizes a copy for each of some sizes; which one runs, a call's arguments decide.

    ``SpecializeSizes({"seq": [16, 64]})``::

        def main(x: R.Tensor((1, "seq")))    ->    def main(x): main_seq16(x) if seq == 16 else main_seq64(x) if ...
                                                   else main_any(x)

    The copies have static shapes: they can be tuned, and a call of one costs what a static build costs. Any other size
    runs the function as it was. Sizes of several symbols are combined. ``sizes`` maps names of symbols to lists or ranges.
    Raises ValueError for names that the function does not have.
    """

    sizes: Mapping[str, Sequence[int]]
    func_name: str = "main"

    def rewrite(self, mod: IRModule) -> IRModule:
        var = mod.get_global_var(self.func_name)
        func = mod[var]
        known = _symbols(func)
        if unknown := sorted(set(self.sizes) - known.keys()):
            raise ValueError(
                f"{self.func_name} has no symbolic size {', '.join(unknown)}; it has {', '.join(sorted(known))}"
            )
        builder = BlockBuilder(mod)
        made = []
        for case in _cases(self.sizes):
            name = "_".join([self.func_name, *(f"{k}{v}" for k, v in case.items())])
            made.append((case, builder.add_func(_private(bind_symbolic_vars(copy_with_new_vars(func), case)), name)))
        if not made:
            return mod
        otherwise = builder.add_func(_private(copy_with_new_vars(func)), f"{self.func_name}_any")
        builder.begin_scope(func.params)
        builder.begin_binding_block()
        out = _Chooser(builder, func).chosen(made, otherwise)
        body = SeqExpr([builder.end_block()], out)
        builder.end_scope()
        chooser = Function(
            func.params, builder.normalize(body), func.ret_struct_info, func.is_pure, func.attrs, func.span
        )
        builder.update_func(var, chooser)
        return builder.get()


def _private(func: Function) -> Function:
    return func.without_attr("global_symbol")
