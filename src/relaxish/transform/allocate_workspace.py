"""AllocateWorkspace: external functions that need scratch memory get it as one more argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..op.builtin import alloc_tensor
from ..relax.expr import BindingBlock, Call, DataflowBlock, Expr, Function, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import TensorStructInfo
from ..ir.plain import plain_int
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AllocateWorkspace"]


def _size(func: Any) -> int | None:
    size = func.attrs.get("WorkspaceSize") if isinstance(func, Function) else None
    return None if size is None else plain_int(size)


class _AddParameter(PyExprMutator):
    """The workspace as last parameter of a function and of the composites defined in it."""

    def __init__(self, mod: IRModule, size: int) -> None:
        super().__init__(mod)
        self.size = size
        self.outer: Var | None = None
        self.composites: set[Var] = set()

    def visit_function_(self, op: Function) -> Expr:
        marked = op.attrs.get("Codegen") or op.attrs.get("Composite")
        if not marked or _size(op) is None:
            return super().visit_function_(op)
        workspace = Var("workspace", TensorStructInfo([self.size], "uint8"))
        if op.attrs.get("Codegen"):
            self.outer = workspace
        params = [*op.params, workspace]
        body = self.visit_with_new_scope(op.body, params)
        return Function(params, body, op.ret_struct_info, op.is_pure, op.attrs, op.span)

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        callee = self.builder_.lookup_binding(call.op)
        if isinstance(callee, Function) and callee.attrs.get("Composite") and _size(callee) is not None:
            assert self.outer is not None
            return Call(call.op, (*call.args, self.outer), call.attrs, call.sinfo_args, call.span)
        return call


class _Provide(PyExprMutator):
    """One allocation in the first dataflow block of each function, handed to every function that wants it."""

    def __init__(self, mod: IRModule, size: int) -> None:
        super().__init__(mod)
        self.size = size
        self.renamed: dict[str, GlobalVar] = {}
        self.workspace: Var | None = None

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.builder_.begin_dataflow_block()
        if self.workspace is None:
            self.workspace = self.builder_.emit(alloc_tensor([self.size], "uint8", 0), "workspace_main")
        for binding in block.bindings:
            self.visit_binding(binding)
        return self.builder_.end_block()

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        new = self.renamed.get(call.op.name_hint) if isinstance(call.op, GlobalVar) else None
        if new is None:
            return call
        return Call(new, (*call.args, self.workspace), call.attrs, call.sinfo_args, call.span)


def _calls_any(func: Function, names: Mapping[str, GlobalVar]) -> bool:
    from ..relax.analysis.variables import all_global_vars

    return any(var.name_hint in names for var in all_global_vars(func))


class AllocateWorkspace(ModuleRewrite):
    """Give functions with the attribute ``WorkspaceSize`` a scratch buffer.

    ::

        gv = cls.fused_attention_cutlass(q, k, v)
                          ->
        workspace_main = R.builtin.alloc_tensor(R.shape([65536]), "uint8", 0)
        gv = cls.fused_attention_cutlass1(q, k, v, workspace_main)

    All functions share one buffer of the largest size.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        size = max((_size(f) or 0 for f in mod.functions.values()), default=0)
        if size == 0:
            return mod
        provide = _Provide(mod, size)
        builder = provide.builder_
        for var, func in list(mod.functions.items()):
            if _size(func) is not None:
                new = _AddParameter(mod, size).visit_expr(func)
                name = builder.add_func(new, var.name_hint)
                builder.update_func(name, new.with_attr("global_symbol", name.name_hint))
                provide.renamed[var.name_hint] = name
                builder.remove_func(var)
        for var, func in functions_of(mod, Function):
            if _size(func) is None:
                if not func.attrs.get("Codegen") and not func.attrs.get("Composite"):
                    provide.workspace = None
                    if _calls_any(func, provide.renamed):
                        builder.update_func(var, provide.visit_expr(func))
        return builder.get()
