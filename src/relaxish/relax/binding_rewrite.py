"""DataflowBlockRewrite: edits of one dataflow block, step by step."""

from __future__ import annotations


from ..ir.module import IRModule
from ..support.errors import RelaxishError
from .analysis.cleanup import remove_all_unused
from .analysis.variables import all_vars, direct_uses, free_vars
from .block_builder import BlockBuilder
from .expr import Binding, DataflowBlock, DataflowVar, Expr, Function, SeqExpr, Var, VarBinding
from .expr_functor import PyExprMutator
from .utils import convert_to_expr

__all__ = ["DataflowBlockRewrite"]


class _Replace(PyExprMutator):
    def __init__(self, old: Var, new: Var) -> None:
        super().__init__()
        self.old = old
        self.new = new

    def visit_var_(self, op: Var) -> Expr:
        return self.new if op is self.old else super().visit_var_(op)


class DataflowBlockRewrite:
    """Rewrites a dataflow block of a function, keeping the block and the function in step.

    ::

        rewrite = DataflowBlockRewrite(func.body.blocks[0], func)
        rewrite.replace_all_uses(old, new)
        rewrite.remove_unused(old)
        mod = rewrite.mutate_irmodule(mod)

    Raises RelaxishError if the block is not one of the function's.
    """

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        if not any(block is dfb for block in root_fn.body.blocks):
            raise RelaxishError("the dataflow block is not part of the function")
        self._original = root_fn
        self._dfb = dfb
        self._func = root_fn
        self._known = set(all_vars(root_fn))
        self._builder = BlockBuilder()
        for param in root_fn.params:
            self._builder.get_unique_name(param.name_hint)
        for block in root_fn.body.blocks:
            for binding in block.bindings:
                self._builder.get_unique_name(binding.var.name_hint)

    def _with_block(self, new: DataflowBlock) -> None:
        blocks = [new if block is self._dfb else block for block in self._func.body.blocks]
        body = SeqExpr(blocks, self._func.body.body, self._func.body.span)
        body.struct_info_ = self._func.body.struct_info_
        func = self._func
        self._func = Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)
        self._dfb = new

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Use ``new_var`` wherever ``old_var`` was used, outside the block too.

        Raises RelaxishError if the function does not have them.
        """
        for var in (old_var, new_var):
            if var not in self._known:
                raise RelaxishError(f"Cannot find {var.name_hint}")
        place = next(i for i, block in enumerate(self._func.body.blocks) if block is self._dfb)
        self._func = _Replace(old_var, new_var).visit_expr(self._func)
        self._dfb = self._func.body.blocks[place]

    def add_binding(self, binding: Binding) -> None:
        """Add a binding to the block, next after the last one that it needs.

        Raises RelaxishError if its variable is defined already.
        """
        if binding.var in self._known:
            raise RelaxishError(f"{binding.var.name_hint} has been defined so cannot be added.")
        needed = set(free_vars(binding.value))
        old = self._dfb.bindings
        place = 1 + max((i for i, line in enumerate(old) if line.var in needed), default=0)
        self._with_block(DataflowBlock([*old[:place], binding, *old[place:]], self._dfb.span))
        self._known.add(binding.var)

    def add(self, expr: Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Add an expression, bound to a new variable (of the block only, with ``is_dfvar``)."""
        value = self._builder.normalize(convert_to_expr(expr))
        kind = DataflowVar if is_dfvar else Var
        hint = name if name is not None else self._builder.get_unique_name("tmp")
        self.add_binding(VarBinding(kind(hint, value.struct_info_), value))

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Remove the binding of a variable that nothing uses.

        Raises RelaxishError if it is used, or (unless ``allow_undef``) not bound in the block.
        """
        kept = [b for b in self._dfb.bindings if b.var is not var]
        if len(kept) == len(self._dfb.bindings):
            if allow_undef:
                return
            raise RelaxishError(f"{var.name_hint} cannot be removed: it is not defined in this dataflow block")
        users = [b.value for block in self._func.body.blocks for b in block.bindings] + [self._func.body.body]
        if any(var in direct_uses(value) for value in users):
            raise RelaxishError(f"{var.name_hint} cannot be removed: it is used")
        self._with_block(DataflowBlock(kept, self._dfb.span))

    def remove_all_unused(self) -> None:
        """Remove everything in the function that is computed and not used."""
        place = next(i for i, block in enumerate(self._func.body.blocks) if block is self._dfb)
        self._func = remove_all_unused(self._func)
        blocks = self._func.body.blocks
        self._dfb = blocks[place] if place < len(blocks) else DataflowBlock([])

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it stands."""
        return self._dfb

    def mutated_root_fn(self) -> Function:
        """The function as it stands."""
        return self._func

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """The module with the function as it stands in place of the original."""
        out = irmodule.clone()
        for var, func in irmodule.functions.items():
            if func is self._original:
                out.update_func(var, self._func)
        return out

    @property
    def dfb(self) -> DataflowBlock:
        """The block as it stands."""
        return self._dfb

    @property
    def root_fn(self) -> Function:
        """The function as it stands."""
        return self._func
