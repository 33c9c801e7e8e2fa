"""AttachAttrLayoutFreeBuffers: marks arguments whose memory layout a schedule may choose freely."""

from __future__ import annotations


from ..ir.module import IRModule, functions_of
from ..ir.transform import Pass
from ..relax.expr import Call, Constant, Expr, Function, Tuple, Var, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..tir.functor import renew_defs
from .base import as_module_pass
from .bundle_model_params import num_input_of
from .dead_code_elimination import DeadCodeElimination
from ..ir.declared_pass import StepsPass

__all__ = ["AttachAttrLayoutFreeBuffers"]


class _Attach(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.weights: set[Var] = set()

    def visit_function_(self, op: Function) -> Expr:
        count = num_input_of(op)
        if count is not None:
            self.weights.update(op.params[count:])
        return super().visit_function_(op)

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.call_tir") or not isinstance(call.args[1], Tuple):
            return call
        free = [i for i, a in enumerate(call.args[1].fields) if isinstance(a, Constant) or a in self.weights]
        if not free or call.args[0] not in self.mod:
            return call
        func = self.mod[call.args[0]]
        marked = renew_defs(func.without_attr("global_symbol")).with_attr("layout_free_buffers", free)
        name = self.builder_.add_func(marked, call.args[0].name_hint)
        return Call(call.op, (name, *call.args[1:]), call.attrs, call.sinfo_args, call.span)


def _run(mod: IRModule) -> IRModule:
    attach = _Attach(mod)
    for var, func in functions_of(mod, Function):
        attach.weights = set()
        new = attach.visit_expr(func)
        if new is not func:
            attach.builder_.update_func(var, new)
    return attach.builder_.get()


class AttachAttrLayoutFreeBuffers(StepsPass):
    """Give PrimFuncs called on weights (parameters after the first ``num_input``) or constants the attribute
    ``layout_free_buffers``, a list of argument indices; schedules may then rewrite those layouts.

    ::

        gv = R.call_tir(cls.matmul, (x, w), ...)    ->    gv = R.call_tir(cls.matmul1, (x, w), ...)

    where ``matmul1`` has ``layout_free_buffers = [1]``.  Functions no longer called are removed.
    """

    def steps(self) -> list[Pass]:
        return [as_module_pass(_run, "_AttachAttrLayoutFreeBuffers"), DeadCodeElimination()]
