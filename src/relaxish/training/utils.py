"""AppendLoss, and gradients for tensor programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..relax.block_builder import BlockBuilder
from ..relax.copying import copy_with_new_vars
from ..relax.expr import Call, DataflowBlock, DataflowVar, Expr, Function, SeqExpr, Tuple, Var
from ..relax.expr_functor import PyExprMutator
from ..relax.struct_info import TensorStructInfo, fields_of
from ..runtime.registry import register_func
from ..support.errors import RelaxishError
from ..transform.base import as_module_pass
from ..transform.gradient import TE_GRADIENT_PREFIX

__all__ = ["AppendLoss", "register_te_gradient"]


def register_te_gradient(te_grad_name: str, te_grad_func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Register a TE function as the gradient that ``call_tir_with_grad`` names; also a decorator.

    It is called with the gradient of the output, the arguments of the call and its ``te_grad_kwargs``.
    """

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        def handler(orig_var: Var, call: Call, output_grad: Var, ctx: BlockBuilder) -> Expr:
            kwargs = dict(call.attrs["te_grad_kwargs"] or {})
            return ctx.emit_te(func, output_grad, *call.args[1].fields, **kwargs, primfunc_name_hint=te_grad_name)

        register_func(TE_GRADIENT_PREFIX + te_grad_name, handler, override=True)
        return func

    return register(te_grad_func) if te_grad_func is not None else register


def _dataflow_of(func: Function, what: str) -> DataflowBlock:
    blocks = func.body.blocks
    if len(blocks) != 1 or not blocks[0].is_dataflow:
        raise RelaxishError(f"AppendLoss: the {what} function should contain exactly one dataflow block")
    made: DataflowBlock = blocks[0]
    return made


class _Inside(PyExprMutator):
    """Renames variables, and makes the given ones dataflow variables."""

    def __init__(self, renamed: dict[Var, Var], internal: set[Var]) -> None:
        super().__init__()
        self.renamed = renamed
        self.internal = internal

    def visit_var_(self, op: Var) -> Expr:
        return super().visit_var_(self.renamed.get(op, op))

    def visit_var_def_(self, var: Var) -> Var:
        if var in self.internal and not var.is_dataflow:
            if var not in self.var_remap_:
                self.var_remap_[var] = DataflowVar(var.name_hint, var.struct_info, var.span)
            return self.var_remap_[var]
        return super().visit_var_def_(var)


def _append(backbone: Function, loss: Function, count: int, name: str) -> Function:
    backbone, loss = copy_with_new_vars(backbone), copy_with_new_vars(loss)
    first, second = _dataflow_of(backbone, "backbone"), _dataflow_of(loss, "loss")
    result = backbone.body.body
    outputs = list(fields_of(result))
    if not all(isinstance(o, Var) for o in outputs):
        raise RelaxishError("AppendLoss: the backbone should return a Var or a tuple of Vars")
    value = loss.body.body
    if not isinstance(value, Var) or not isinstance(value.struct_info, TensorStructInfo) or value.struct_info.ndim:
        raise RelaxishError("AppendLoss: the loss function should return a scalar Var")
    if count > len(outputs) or count > len(loss.params):
        raise RelaxishError(
            f"AppendLoss: num_backbone_outputs is {count}, but the backbone returns {len(outputs)} values and the "
            f"loss takes {len(loss.params)}"
        )
    for param, output in zip(loss.params, outputs[:count]):
        if not param.struct_info.is_base_of(output.struct_info):
            raise RelaxishError(
                f"AppendLoss: the struct info of the loss function's parameter {param.name_hint} is "
                f"{param.struct_info}, but the corresponding output of the backbone has {output.struct_info}"
            )
    states = outputs[count:]
    bound = {b.var for b in first.bindings}
    internal = {o for o in outputs[:count] if o in bound and o not in states}
    inside = _Inside(dict(zip(loss.params[:count], outputs[:count])), internal)
    inside.builder_.begin_dataflow_block()
    for binding in (*first.bindings, *second.bindings):
        inside.visit_binding(binding)
    block = inside.builder_.end_block()
    final: Any = inside.visit_expr(value)
    if states:
        final = Tuple([final, *states])
    params = [*backbone.params, *loss.params[count:]]
    body = BlockBuilder().normalize(SeqExpr([block], final))
    made = Function(params, body, None, True, backbone.attrs)
    return made.with_attr("global_symbol", name) if backbone.attrs.get("global_symbol") is not None else made


def AppendLoss(
    func_name: str, loss_function: Function, num_backbone_outputs: int = 1, new_func_name: str | None = None
) -> Pass:
    """Add ``<func_name>_loss``: the function followed by a loss of its first results.

    ::

        def backbone(x, w, states): ...; return out, new_states
        def loss(out, targets): ...; return value
                          ->
        def backbone_loss(x, w, states, targets): ...; return value, new_states

    Raises RelaxishError if either has not exactly one dataflow block, or they do not fit together.
    """
    name = new_func_name or f"{func_name}_loss"

    def run(mod: IRModule) -> IRModule:
        out = mod.clone()
        out[name] = _append(mod[func_name], loss_function, num_backbone_outputs, name)
        return out

    return as_module_pass(run, "AppendLoss")
