"""Products and convolutions of dequantised bytes as products of the bytes, summed in int32.

Models quantised with pairs of ``quantize`` and ``dequantize`` compute with numbers in between. Of one scale for the data and
one for each output channel of the weights, all factors stand outside of the sum:

    sum((x - zx) * sx * w * sw) = sx * sw * (sum(x * w) - zx * sum(w))

and ``sum(x * w)`` is what byte instructions are for. Where data is padded the zero point is, so that a border still counts
as the number 0.

Source: Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference"
(CVPR 2018), section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..ir.declared_pass import ModuleRewrite
from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op import nn
from ..op.binary import multiply, subtract
from ..op.datatype import astype
from ..op.linear_algebra import matmul
from ..relax.expr import Call, Constant, Expr, Function, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.utils import followed
from ..target import Target
from .base import map_relax_functions
from .dead_code_elimination import eliminate

__all__ = ["IntegerProducts"]

_BYTES = ("int8", "uint8")
#: Instruction sets on which sums of products of bytes are faster than those of floats.
_FEATURES = frozenset({"avx512vnni", "avxvnni"})
_CONVOLUTIONS: dict[str, Callable[..., Expr]] = {"relax.nn.conv1d": nn.conv1d, "relax.nn.conv2d": nn.conv2d}
_LAYOUTS = {"relax.nn.conv1d": ("NCW", "OIW"), "relax.nn.conv2d": ("NCHW", "OIHW")}
#: Below so many products for an output element the sum is not what takes the time.
_LEAST_DEPTH = 8
#: Of more products of bytes (255 * 128) the sum may leave int32.
_MOST_DEPTH = (2**31 - 1) // (255 * 128)


@dataclass(frozen=True)
class _Data:
    """Bytes of one scale and one zero point."""

    value: Expr
    scale: float
    zero: int


@dataclass(frozen=True)
class _Weights:
    """Constant int8 weights whose zero is 0, and a scale for all or for each element along ``axis``."""

    value: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]
    axis: int

    def turned(self, axes: list[int]) -> _Weights:
        """The weights with permuted axes."""
        return _Weights(np.ascontiguousarray(self.value.transpose(axes)), self.scale, axes.index(self.axis))


class _IntegerProductRewriter(PyExprMutator):
    def __init__(self, mod: IRModule, func: Function) -> None:
        super().__init__(mod)
        self.values = {b.var: b.value for block in func.body.blocks for b in block.bindings}

    def visit_call_(self, op: Call) -> Expr:
        name = op_name_of(op)
        if name != "relax.matmul" and name not in _CONVOLUTIONS:
            return super().visit_call_(op)
        data, weights = self._data(op.args[0]), self._weights(op.args[1])
        if data is None or weights is None or op.struct_info.dtype != "float32":
            return super().visit_call_(op)
        made = self._product(op, data, weights) if name == "relax.matmul" else self._convolution(op, data, weights)
        return super().visit_call_(op) if made is None else made

    # ---- what there is

    def _value(self, expr: Expr) -> Expr:
        return followed(expr, self.values.get)

    def _parts(self, expr: Expr) -> tuple[Call, np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """A dequantisation of bytes to float32 by known scales and zero points."""
        call = self._value(expr)
        if not is_call_of(call, "relax.dequantize"):
            return None
        scale, zero = (self._value(a) for a in call.args[1:3])
        if call.args[0].struct_info.dtype not in _BYTES or call.attrs.out_dtype != "float32":
            return None
        match scale, zero:
            case Constant(), Constant():
                return call, scale.data.numpy(), zero.data.numpy()
        return None

    def _data(self, expr: Expr) -> _Data | None:
        parts = self._parts(expr)
        if parts is None:
            return None
        call, scale, zero = parts
        if scale.size != 1 or zero.size != 1 or scale.dtype != np.float32 or float(zero.reshape(-1)[0]) % 1:
            return None
        point = int(zero.reshape(-1)[0])
        kind = call.args[0].struct_info.dtype
        if not dt.min_value(kind) <= point <= dt.max_value(kind):
            return None
        return _Data(self.visit_expr(call.args[0]), float(scale.reshape(-1)[0]), point)

    def _weights(self, expr: Expr) -> _Weights | None:
        call = self._value(expr)
        if is_call_of(call, "relax.permute_dims"):
            inner, rank = self._weights(call.args[0]), call.struct_info.ndim
            axes = call.attrs.axes
            return None if inner is None else inner.turned([int(a) % rank for a in axes or reversed(range(rank))])
        parts = self._parts(expr)
        if parts is None:
            return None
        call, scale, zero = parts
        held = self._value(call.args[0])
        if not isinstance(held, Constant) or scale.dtype != np.float32 or max(scale.ndim, zero.ndim) > 1:
            return None
        value = held.data.numpy()
        axis = int(call.attrs.axis) % value.ndim
        points = zero.astype("float64")
        points = (
            points.reshape([-1 if k == axis else 1 for k in range(value.ndim)]) if zero.size > 1 else points.reshape(())
        )
        centred = value - points
        if centred.min() < -128 or centred.max() > 127 or (centred % 1).any():
            return None
        return _Weights(centred.astype("int8"), scale.reshape(-1), axis)

    # ---- what is made of it

    def _emit(self, expr: Expr) -> Expr:
        return self.builder_.emit(expr)

    def _scaled(self, sums: Expr, data: _Data, weights: _Weights, columns: np.ndarray[Any, Any], tail: int) -> Expr:
        """Sums less what the zero point adds to a channel, as numbers; channels stand before ``tail`` further axes."""

        def along(values: np.ndarray[Any, Any]) -> Constant:
            return Constant(np.ascontiguousarray(values.reshape(-1, *[1] * tail)))

        if data.zero:
            sums = self._emit(subtract(sums, along((data.zero * columns.astype("int64")).astype("int32"))))
        factor = (np.float32(data.scale) * weights.scale).astype("float32")
        return multiply(self._emit(astype(sums, "float32")), along(factor))

    def _product(self, call: Call, data: _Data, weights: _Weights) -> Expr | None:
        value = weights.value
        if (
            value.ndim != 2
            or not _LEAST_DEPTH <= value.shape[0] <= _MOST_DEPTH
            or (weights.scale.size > 1 and weights.axis != 1)
        ):
            return None
        sums = self._emit(matmul(data.value, Constant(value), out_dtype="int32"))
        return self._scaled(sums, data, weights, value.sum(0, dtype="int64"), 0)

    def _convolution(self, call: Call, data: _Data, weights: _Weights) -> Expr | None:
        name, a, value = op_name_of(call), call.attrs, weights.value
        layout, kernel = _LAYOUTS[name]
        plain = (str(a.data_layout), str(a.kernel_layout), str(a.out_layout)) == (layout, kernel, layout)
        depth = int(np.prod(value.shape[1:]))
        if not plain or not _LEAST_DEPTH <= depth <= _MOST_DEPTH or (weights.scale.size > 1 and weights.axis != 0):
            return None
        dims = value.ndim - 2
        x, padding = data.value, [int(p) for p in a.padding]
        if data.zero and any(padding):
            widths = [0] * 4 + [w for pair in zip(padding[:dims], padding[dims:]) for w in pair]
            x, padding = self._emit(nn.pad(x, widths, "constant", float(data.zero))), [0] * (2 * dims)
        sums = self._emit(
            _CONVOLUTIONS[name](
                x, Constant(value), strides=[int(v) for v in a.strides], padding=padding,
                dilation=[int(v) for v in a.dilation], groups=int(a.groups), data_layout=layout, kernel_layout=kernel,
                out_dtype="int32",
            )
        )  # fmt: skip
        return self._scaled(sums, data, weights, value.sum(tuple(range(1, value.ndim)), dtype="int64"), dims)


class IntegerProducts(ModuleRewrite):
    """Products of dequantised data and dequantised constant weights, computed with the bytes; see the module.

    Only for CPUs with instructions for sums of products of bytes.

    Before::

        lv = R.dequantize(x, R.const(0.02), R.const(121))         # x: uint8
        lv1 = R.dequantize(w, scales, R.const(0), axis=1)         # w: a constant, int8
        lv2 = R.matmul(lv, lv1)

    After::

        lv = R.matmul(x, w, out_dtype="int32")
        lv1 = R.subtract(lv, columns)                             # 121 times the sums of the columns of w
        lv2 = R.multiply(R.astype(lv1, "float32"), factors)       # 0.02 * scales
    """

    target: Target

    def rewrite(self, mod: IRModule) -> IRModule:
        if not self.target.llvm_features & _FEATURES:
            return mod

        def rewrite(_: GlobalVar, func: Function) -> Function:
            if (func.attrs and func.attrs.get("Primitive")) or not hasattr(func.body, "blocks"):
                return func
            made: Function = _IntegerProductRewriter(mod, func).visit_expr(func)
            return made

        new = map_relax_functions(mod, rewrite)
        return new if new is mod else eliminate(new, [v.name_hint for v in new.functions])
