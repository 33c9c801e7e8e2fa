"""Attention for which there is no kernel becomes products and a softmax, each with a good schedule of its own."""

from __future__ import annotations

from math import sqrt
from typing import Any

from .... import op
from ....ir.declared_pass import ModuleRewrite
from ....ir.expr import RelaxExpr
from ....ir.module import IRModule, functions_of
from ....ir.op import op_name_of
from ....relax.expr import Call, Expr, Function, const
from ....relax.expr_functor import PyExprMutator
from ....relax.scalars import const_int
from ....target import Target
from ....ir.plain import plain_float

__all__ = ["DecomposeAttention"]

_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias")


class DecomposeAttention(ModuleRewrite):
    """Write out attention of known sizes on GPUs, where the loops of a legalised one would be scheduled one by one.

    Before and after::

        out = R.nn.attention(q, k, v)                s = R.matmul(permute(q), permute(k)) * scale
                                                     out = permute(R.matmul(R.nn.softmax(s), permute(v)))
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        rewriter = _AttentionDecomposer(mod)
        for var, func in functions_of(mod, Function):
            made = rewriter.visit_expr(func)
            if made is not func:
                rewriter.builder_.update_func(var, made)
        return rewriter.builder_.get() if rewriter.found else mod


class _AttentionDecomposer(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.found = False

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        name = op_name_of(call)
        if name not in _OPERATORS or not self._on_gpu(call):
            return call
        if call.attrs.window_size is not None and call.attrs.causal_mask is None:
            return call  # it does not say on which side of the diagonal the window is
        sizes = [[const_int(d) for d in arg.struct_info.dims() or (None,)] for arg in call.args]
        if any(None in dims for dims in sizes):
            return call
        self.found = True
        return self._written_out(call, sizes)

    @staticmethod
    def _on_gpu(call: Call) -> bool:
        device = call.struct_info.vdevice
        target = Target.current() if device is None else device.target
        return target is not None and "gpu" in target.keys

    def _written_out(self, call: Call, sizes: Any) -> Expr:
        emit, dtype = self.builder_.emit, call.struct_info.dtype
        q, k, v = call.args[:3]
        (_, rows, heads, size), (_, keys, kv_heads, _) = sizes[:2]
        if heads != kv_heads:
            k, v = (emit(op.repeat(x, heads // kv_heads, 2)) for x in (k, v))
        q, v = (emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (q, v))
        scale = call.attrs.scale
        factor = 1 / sqrt(size) if scale is None else plain_float(scale)
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 3, 1]))))
        scores = emit(op.multiply(scores, const(factor, dtype)))
        if len(call.args) > 3:
            scores = emit(op.add(scores, call.args[3]))
        if call.attrs.causal_mask is not None:
            ahead = abs(rows - keys) if call.attrs.causal_mask == "BottomRight" else 0
            seen = emit(op.tril(emit(op.ones([1, 1, rows, keys], "bool")), ahead))
            window = const_int(call.attrs.window_size)
            if window is not None:
                seen = emit(op.triu(seen, ahead - window + 1))
            scores = emit(op.where(seen, scores, const(float("-inf"), dtype)))
        weights = emit(op.nn.softmax(scores))
        if len(call.args) > 3:
            # Rows that see no key give zeros.
            hidden = emit(op.equal(emit(op.max(scores, [-1], True)), const(float("-inf"), dtype)))
            weights = emit(op.where(hidden, const(0, dtype), weights))
        out = emit(op.matmul(weights, v))
        return op.permute_dims(out, [0, 2, 1, 3])
