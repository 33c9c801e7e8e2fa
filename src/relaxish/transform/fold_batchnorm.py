"""Batch norms after convolutions go into their weights: by formula (FoldBatchnormToConv2D), or by value."""

from __future__ import annotations
from typing import ClassVar

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..ir.module import IRModule
from ..op.binary import add, divide, multiply, subtract
from ..op.manipulate import reshape
from ..op.unary import sqrt
from ..relax.analysis.variables import direct_uses
from ..relax.expr import Call, Constant, Expr, Function, PrimValue, TupleGetItem, VarBinding, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.utils import followed
from ..support.sequences import of_kind
from ..tir import FloatImm
from .base import map_relax_functions
from .dead_code_elimination import eliminate
from ..ir.declared_pass import ModuleRewrite

__all__ = ["CPUBatchnormFolding", "FoldBatchnormToConv2D"]


@dataclass(frozen=True)
class _Pair:
    """A convolution of constant weights, and the batch norm of constant parameters that follows it."""

    conv: Call
    norm: Call
    weight: Constant
    params: tuple[Constant, ...]

    @property
    def channels_first(self) -> bool:
        """Whether output channels come first in the weights, not second."""
        return bool(self.conv.attrs.kernel_layout == "OIHW")

    def scaled(self, data: Expr, weight: Expr) -> Call:
        """The convolution with other weights."""
        return Call(self.conv.op, (data, weight), self.conv.attrs)


def _by_formula(pair: _Pair, data: Expr) -> Expr | None:
    if not pair.norm.attrs.scale or not pair.norm.attrs.center:
        return None
    gamma, beta, mean, variance = pair.params
    channels = gamma.struct_info.dims()[0]
    epsilon = PrimValue(FloatImm("float32", float(pair.norm.attrs.epsilon)))
    scale = divide(gamma, sqrt(add(variance, epsilon)))
    shift = subtract(beta, multiply(mean, scale))
    factor = reshape(scale, (channels, 1, 1, 1) if pair.channels_first else (1, channels, 1, 1))
    return add(pair.scaled(data, multiply(pair.weight, factor)), reshape(shift, (1, channels, 1, 1)))


def _by_value(pair: _Pair, data: Expr) -> Expr | None:
    a = pair.norm.attrs
    if a.get("training", False):
        return None
    gamma, beta, mean, variance = (np.asarray(p.data.numpy(), "float64") for p in pair.params)
    scale = (gamma if a.get("scale", True) else np.ones_like(gamma)) / np.sqrt(variance + float(a.epsilon))
    bias = (beta if a.get("center", True) else np.zeros_like(beta)) - mean * scale
    kernel = pair.weight.data.numpy()
    factor = scale.reshape((-1, 1, 1, 1) if pair.channels_first else (1, -1, 1, 1)).astype(kernel.dtype)
    return add(pair.scaled(data, Constant(kernel * factor)), Constant(bias.reshape(1, -1, 1, 1).astype(kernel.dtype)))


class _Folder(PyExprMutator):
    """Folds the pairs of one function; ``by_value`` those alone whose convolution nobody else reads."""

    def __init__(self, mod: IRModule, func: Function, by_value: bool) -> None:
        super().__init__(mod)
        self.by_value = by_value
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        self.values = {binding.var: binding.value for binding in bindings}
        self.uses = Counter(v for value in (*self.values.values(), func.body.body) for v in direct_uses(value))

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Bind the folded form to what takes the result out of a batch norm."""
        value = binding.value
        if isinstance(value, TupleGetItem) and value.index == 0:
            pair = self._pair(value.tuple_value)
            if pair is not None:
                folded = (_by_value if self.by_value else _by_formula)(pair, self.visit_expr(pair.conv.args[0]))
                if folded is not None:
                    self.reemit_binding(binding, self.builder_.normalize(folded))
                    return
        super().visit_var_binding_(binding)

    def _value(self, expr: Expr) -> Expr:
        return followed(expr, self.values.get)

    def _call(self, expr: Expr, name: str) -> Call | None:
        """The call of an operator that a value is, if it is one."""
        value = self._value(expr)
        return value if is_call_of(value, name) else None

    def _pair(self, value: Expr) -> _Pair | None:
        norm = self._call(value, "relax.nn.batch_norm")
        conv = None if norm is None else self._call(norm.args[0], "relax.nn.conv2d")
        if norm is None or conv is None or (self.by_value and self.uses[norm.args[0]] != 1):
            return None
        values = [self._value(e) for e in (conv.args[1], *norm.args[1:])]
        constants = list(of_kind(values, Constant))
        fits = conv.attrs.data_layout == "NCHW" and conv.attrs.kernel_layout in ("OIHW", "IOHW")
        if not fits or int(norm.attrs.axis) != 1 or len(constants) != len(values):
            return None
        return _Pair(conv, norm, constants[0], tuple(constants[1:]))


class FoldBatchnormToConv2D(ModuleRewrite):
    """Scale the constant weights of a convolution instead of its result.

    ::

        lv = R.nn.conv2d(x, W)                            s = gamma / R.sqrt(variance + epsilon)
        lv1 = R.nn.batch_norm(lv, gamma, beta,       ->   lv = R.nn.conv2d(x, W * R.reshape(s, ...))
                              mean, variance)             gv = lv + R.reshape(beta - mean * s, ...)
        gv = lv1[0]

    FoldConstant then computes the new weights.
    """

    by_value: ClassVar[bool] = False

    def rewrite(self, mod: IRModule) -> IRModule:
        def fold(_: object, func: Function) -> Function:
            return func if func.attrs.get("Primitive") else _Folder(mod, func, self.by_value).visit_expr(func)

        new = map_relax_functions(mod, fold)
        return new if new is mod else eliminate(new, [v.name_hint for v in new.functions])


class CPUBatchnormFolding(FoldBatchnormToConv2D):
    """As FoldBatchnormToConv2D and FoldConstant together, without a kernel compiled for every step."""

    by_value = True
