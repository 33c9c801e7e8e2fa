"""Products whose columns do not fill vectors get columns of zeros: register tiles need whole vectors.

Without them a product of 1009 columns has tiles of one column, 29 times slower than the libraries. Constant weights are padded
when the model is compiled; of other operands the copy is paid for by the rows that share it. What follows the product reads
the columns that are meant: with FuseOps the slice is part of that kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import topi
from ..arith import Analyzer
from ..ir import dtype as dt
from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..ir.prim import FloorDiv, FloorMod, IntImm
from ..op import nn
from ..op.index import strided_slice
from ..relax.expr import Call, Constant, Expr, Var, is_call_of
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.scalars import const_int
from ..target import Target
from ..te import Tensor, compute
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AlignColumns", "aligned"]

#: Rows that must share an operand which is copied when the model runs.
_ROWS_TO_COPY = 16
#: Zeros that may be added for more vectors in a tile, relative to the columns.
_SLACK = 1.06
# Vectors of a multiple of which there are columns where their number is known only at run time.
_VECTORS_OF_UNKNOWN = 2


def aligned(columns: int, lanes: int) -> int:
    """Columns to compute in place of ``columns``: whole vectors, and several a tile where that adds few.

    >>> aligned(1009, 16), aligned(50257, 16), aligned(67, 16), aligned(64, 16)
    (1024, 50304, 80, 64)
    """
    least = -(-columns // lanes) * lanes
    if least == columns:
        return columns
    wider = (-(-columns // (lanes * count)) * lanes * count for count in (4, 3, 2))
    return next((width for width in wider if width <= max(least, columns * _SLACK)), least)


class _Aligner(PyExprMutator):
    def __init__(self, mod: IRModule, target: Target) -> None:
        super().__init__(mod)
        self.vector_bits = target.vector_bits

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        name = op_name_of(call)
        if name == "relax.matmul":
            return self._matmul(call)
        return self._convolution(call) if name == "relax.nn.conv2d" else call

    def _width(self, columns: int | None, dtype: str) -> int | None:
        """The width to compute, or None to leave the product as it is."""
        if columns is None or not dt.is_float(dtype) or dt.bits(dtype) < 16:
            return None
        # 16-bit types are computed in float32.
        lanes = self.vector_bits // max(32, dt.bits(dtype))
        if columns < lanes // 2:
            return None
        width = aligned(columns, lanes)
        return None if width == columns else width

    def _constant(self, expr: Any) -> np.ndarray[Any, Any] | None:
        """The value of a constant, or of a transposed one."""
        if isinstance(expr, Var):
            expr = self.builder_.lookup_binding(expr)
        if isinstance(expr, Constant):
            return expr.data.numpy()
        if is_call_of(expr, "relax.permute_dims"):
            inner = self._constant(expr.args[0])
            axes = expr.attrs.axes
            return None if inner is None else inner.transpose(None if axes is None else [int(a) for a in axes])
        return None

    def _matmul(self, call: Call) -> Expr:
        left, right = (arg.struct_info.dims() for arg in call.args)
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return call
        columns, rows = const_int(right[-1]), const_int(left[-2])
        if columns is None:
            return self._of_unknown_width(call, rows, right)
        width = self._width(columns, call.args[1].struct_info.dtype)
        if width is None or columns is None or rows == 1:
            return call
        if len(right) == 2 and all(const_int(d) == 1 for d in left[:-1]):
            return call
        padded: Expr | None = self._padded(call.args[1], width - columns)
        if padded is None:
            if rows is None or rows < _ROWS_TO_COPY:
                return call
            widths = [0] * (2 * len(right) - 1) + [width - columns]
            padded = self.builder_.emit(nn.pad(call.args[1], widths))
        return self._narrowed(Call(call.op, (call.args[0], padded), call.attrs), columns)

    def _of_unknown_width(self, call: Call, rows: int | None, right: Sequence[PrimExpr]) -> Expr:
        """A product of a number of columns that is known only at run time, such as scores of attention."""
        dtype = call.args[1].struct_info.dtype
        if not dt.is_float(dtype) or dt.bits(dtype) < 16 or (rows is not None and rows < _ROWS_TO_COPY):
            return call
        columns, step = right[-1], _VECTORS_OF_UNKNOWN * self.vector_bits // max(32, dt.bits(dtype))
        analyzer = Analyzer()
        if const_int(analyzer.simplify(FloorMod(columns, IntImm(columns.dtype, step)))) == 0:
            return call
        whole = FloorDiv(columns + (step - 1), IntImm(columns.dtype, step)) * step
        zeros = [0] * (len(right) - 1)
        padded = self.builder_.emit_te(topi.nn.pad, call.args[1], [0] * len(right), [*zeros, whole - columns])
        wide = self.builder_.emit(Call(call.op, (call.args[0], padded), call.attrs))
        return self.builder_.call_te(first_columns, wide, columns)

    def _convolution(self, call: Call) -> Expr:
        a = call.attrs
        info = call.args[1].struct_info.dims()
        layouts = (str(a.data_layout), str(a.kernel_layout), str(a.out_layout))
        if layouts != ("NHWC", "HWIO", "NHWC") or int(a.groups) != 1 or info is None:
            return call
        columns = const_int(info[-1])
        width = self._width(columns, call.args[1].struct_info.dtype)
        padded = None if width is None or columns is None else self._padded(call.args[1], width - columns)
        if padded is None or columns is None:
            return call
        return self._narrowed(Call(call.op, (call.args[0], padded), a), columns)

    def _padded(self, weight: Expr, more: int) -> Constant | None:
        value = self._constant(weight)
        if value is None:
            return None
        return Constant(np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, more)]))

    def _narrowed(self, call: Call, columns: int) -> Expr:
        wide = self.builder_.emit(call)
        return strided_slice(wide, [len(wide.struct_info.dims()) - 1], [0], [columns])


def first_columns(data: Tensor, count: PrimExpr) -> Tensor:
    """``data[..., :count]``, where there certainly are so many."""
    return compute((*data.shape[:-1], count), lambda *at: data[at], name="first_columns")


class AlignColumns(ModuleRewrite):
    """``matmul`` and channels-last ``conv2d`` compute whole vectors of columns; see the module.

    Before, on a machine with vectors of 16::

        y = R.matmul(x, w)                          # x: (127, 771), w: a constant (771, 1009)

    After::

        lv = R.matmul(x, w0)                        # w0: (771, 1024), the last 15 columns zero
        y = R.strided_slice(lv, (1,), (0,), (1009,))
    """

    target: Target

    def rewrite(self, mod: IRModule) -> IRModule:
        return rewrite_functions(_Aligner(mod, self.target), mod)
