"""Batch norms after convolutions of constant weights, folded by value: what FoldBatchnormToConv2D and FoldConstant
together give, without a kernel compiled for every step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..relax.analysis.variables import direct_uses
from ..relax.expr import Call, Constant, Function, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.op_table import op_function
from .base import as_module_pass, map_relax_functions

__all__ = ["CPUBatchnormFolding"]


def _is(value: Any, name: str) -> bool:
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == name


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.values: dict[Var, Any] = {}
        self.uses: dict[Var, int] = {}

    def note(self, func: Function) -> None:
        """Count the uses of every variable: a convolution may be changed only if nobody else reads it."""
        for block in func.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = binding.value
                for used in direct_uses(binding.value):
                    self.uses[used] = self.uses.get(used, 0) + 1
        for used in direct_uses(func.body.body):
            self.uses[used] = self.uses.get(used, 0) + 1

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if isinstance(value, TupleGetItem) and value.index == 0 and isinstance(value.tuple_value, Var):
            folded = self._fold(self.values.get(value.tuple_value))
            if folded is not None:
                self.reemit_binding(binding, self.builder_.normalize(folded))
                return
        super().visit_var_binding_(binding)

    def _fold(self, norm: Any) -> Any:
        if not _is(norm, "relax.nn.batch_norm") or not isinstance(norm.args[0], Var):
            return None
        if _flag(norm.attrs.get("training", False)):
            return None
        conv: Any = self.values.get(norm.args[0])
        if not _is(conv, "relax.nn.conv2d") or self.uses.get(norm.args[0], 0) != 1:
            return None
        weight, params = conv.args[1], norm.args[1:]
        if not isinstance(weight, Constant) or not all(isinstance(p, Constant) for p in params):
            return None
        if _text(conv.attrs.data_layout) != "NCHW" or _text(conv.attrs.kernel_layout) != "OIHW":
            return None
        if int(getattr(norm.attrs.axis, "value", norm.attrs.axis)) != 1:
            return None
        gamma, beta, mean, variance = (np.asarray(p.data.numpy(), "float64") for p in params)
        epsilon = float(getattr(norm.attrs.epsilon, "value", norm.attrs.epsilon))
        if not _flag(norm.attrs.get("scale", True)):
            gamma = np.ones_like(gamma)
        if not _flag(norm.attrs.get("center", True)):
            beta = np.zeros_like(beta)
        scale = gamma / np.sqrt(variance + epsilon)
        kernel = weight.data.numpy()
        new_weight = Constant(kernel * scale.reshape(-1, 1, 1, 1).astype(kernel.dtype))
        new_bias = Constant((beta - mean * scale).reshape(1, -1, 1, 1).astype(kernel.dtype))
        data = self.visit_expr(conv.args[0])
        made = self.builder_.emit(Call(conv.op, (data, new_weight), conv.attrs))
        return op_function("add")(made, new_bias)


def _flag(value: Any) -> bool:
    return bool(getattr(value, "value", value))


def _run(mod: IRModule) -> IRModule:
    from .dead_code_elimination import eliminate

    def fold(_: Any, func: Function) -> Function:
        folder = _Folder(mod)
        folder.note(func)
        made: Function = folder.visit_expr(func)
        return made

    new = map_relax_functions(mod, fold)
    return new if new is mod else eliminate(new, [v.name_hint for v in new.functions])


def CPUBatchnormFolding() -> Pass:  # noqa: N802  (named as a pass)
    """``batch_norm(conv2d(x, w), ...)[0]`` with constant weights and statistics becomes ``conv2d(x, w') + b'``."""
    return as_module_pass(_run, "CPUBatchnormFolding")
