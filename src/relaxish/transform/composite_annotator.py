"""Wrapping of composite functions into functions that a code generator takes."""

from __future__ import annotations


from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..relax.expr import BindingBlock, Call, Expr, Function, SeqExpr, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..ir.plain import plain_str

__all__ = ["annotate_composites", "codegen_name"]


def codegen_name(composite: str) -> str:
    """The code generator of a composite's name: ``"dnnl"`` of ``"dnnl.conv2d_relu"``."""
    return plain_str(composite).split(".")[0]


class _Annotator(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.wrapped: dict[str, GlobalVar] = {}

    def visit_call_(self, op: Call) -> Expr:
        if isinstance(op.op, GlobalVar) and op.op in self.mod:
            wrapper = self._wrapper(op.op)
            if wrapper is not None:
                return Call(wrapper, op.args)
        return super().visit_call_(op)

    def _wrapper(self, var: GlobalVar) -> GlobalVar | None:
        known = self.wrapped.get(var.name_hint)
        if known is not None:
            return known
        func = self.mod[var]
        composite = func.attrs.get("Composite") if isinstance(func, Function) else None
        if composite is None:
            return None
        name = codegen_name(composite)
        symbol = f"{var.name_hint}_{name}"
        made = _wrap(func).with_attr("Codegen", name).with_attr("global_symbol", symbol)
        self.builder_.remove_func(var)
        self.wrapped[var.name_hint] = self.builder_.add_func(made, symbol)
        return self.wrapped[var.name_hint]


def _wrap(func: Function) -> Function:
    """A function of the same signature that defines ``func`` locally and calls it."""
    inner = func.without_attr("Primitive")
    params = [Var(p.name_hint, p.struct_info) for p in func.params]
    local = Var("local_func", inner.struct_info)
    output = Var("output", inner.ret_struct_info)
    call = Call(local, params)
    call.struct_info_ = inner.ret_struct_info
    body = SeqExpr([BindingBlock([VarBinding(local, inner), VarBinding(output, call)])], output)
    body.struct_info_ = output.struct_info_
    return Function(params, body, func.ret_struct_info, inner.is_pure)


def annotate_composites(mod: IRModule) -> IRModule:
    """The module in which every called composite function is wrapped for its code generator."""
    annotator = _Annotator(mod)
    for var, func in functions_of(mod, Function):
        if func.attrs.get("Composite") or func.attrs.get("Codegen"):
            continue
        new = annotator.visit_expr(func)
        if new is not func:
            annotator.builder_.update_func(var, new)
    return annotator.builder_.get()
