"""Products with weights of few bits that stay coded: they are decoded where they are multiplied.

Weights are made of constants::

    (code - zero) * scale        of groups along the depth, reshaped and transposed into a matrix

Folded, they would be four to eight times as many bytes as their codes, all of which a product with few rows has to read.
What is kept instead are the codes, in the order in which the kernel reads them, and the scales and zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..ir.declared_pass import ModuleRewrite
from ..ir.module import functions_of, IRModule
from ..ir.op import op_name_of
from ..ir.prim import const_int
from ..op.manipulate import reshape
from ..relax.expr import Call, Constant, Expr, Function
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import product
from ..relax.struct_info import tensor_dims
from ..relax.utils import followed
from ..target import Target
from ..target.codegen import llvm_get_vector_width
from ..topi.coded_products import coded_product
from .dead_code_elimination import eliminate

__all__ = ["CodedWeights"]

_Array = np.ndarray[Any, Any]
#: With more rows than this a product is bound by arithmetic, and decoded weights are faster.
_MOST_ROWS = 64
#: Smaller weights stay in caches, decoded or not.
_LEAST_ELEMENTS = 1 << 14
#: The part of the depth that is summed on its own where weights have no groups.
_GROUP = 128


@dataclass(frozen=True)
class _Coded:
    """Numbers ``(codes - zero) * scale``; ``scale`` and ``zero`` have the codes' rank and broadcast to them."""

    codes: _Array
    scale: _Array
    zero: _Array


@dataclass(frozen=True)
class _Rows:
    """A matrix of ``codes``; each row has a ``scale`` and a ``zero`` for each of its groups.

    The matrix meant is the transpose, if it is ``turned``. All is ``uniform`` if there is one scale and one zero.
    """

    codes: _Array
    scale: _Array
    zero: _Array
    turned: bool
    uniform: bool

    def by_output(self) -> _Rows | None:
        """With a row for each column of the matrix meant, whose groups are along the depth."""
        if self.turned:
            return self
        if not self.uniform:
            return None
        count = self.codes.shape[1]
        one = np.ones((count, 1), "float32")
        return _Rows(self.codes.T, one * self.scale.flat[0], one * self.zero.flat[0], True, True)


def _ranked(value: _Array, rank: int) -> _Array:
    return value.reshape([1] * (rank - value.ndim) + list(value.shape))


class _Reader:
    """What constants decode to."""

    def __init__(self, func: Function) -> None:
        self.values = {b.var: b.value for block in func.body.blocks for b in block.bindings}

    def value(self, expr: Expr) -> Expr:
        return followed(expr, self.values.get)

    def array(self, expr: Expr) -> _Array | None:
        """The value of an expression that moves, shifts, masks or casts constants."""
        found = self.value(expr)
        if isinstance(found, Constant):
            return found.data.numpy()
        if not isinstance(found, Call):
            return None
        name = op_name_of(found)
        if name in ("relax.right_shift", "relax.bitwise_and"):
            a, b = (self.array(arg) for arg in found.args)
            if a is None or b is None:
                return None
            return a >> b if name == "relax.right_shift" else a & b
        if name not in ("relax.astype", "relax.expand_dims", "relax.reshape", "relax.permute_dims"):
            return None
        inner = self.array(found.args[0])
        if inner is None or (name == "relax.astype" and dt.is_float(str(inner.dtype))):
            return None
        dims = tensor_dims(found.struct_info)
        shape = [const_int(d, -1) for d in dims or ()]
        if dims is None or -1 in shape:
            return None
        if name == "relax.astype":
            return inner.astype(dt.numpy_dtype(found.struct_info.dtype))
        if name == "relax.permute_dims":
            return inner.transpose(_axes(found))
        return inner.reshape(shape)

    def coded(self, expr: Expr) -> _Coded | None:
        """An expression as codes."""
        call = self.value(expr)
        if not isinstance(call, Call) or call.struct_info.dtype != "float32":
            return None
        match op_name_of(call):
            case "relax.astype":
                codes = self.array(call.args[0])
                if codes is None or codes.dtype.kind not in "iu" or codes.dtype.itemsize != 1:
                    return None
                one = _ranked(np.ones((), "float32"), codes.ndim)
                return _Coded(codes, one, np.zeros_like(one))
            case "relax.subtract":
                return self._moved(self.coded(call.args[0]), self.array(call.args[1]))
            case "relax.multiply":
                made = self._scaled(self.coded(call.args[0]), self.array(call.args[1]))
                return made or self._scaled(self.coded(call.args[1]), self.array(call.args[0]))
            case "relax.dequantize":
                return self._dequantized(call)
        return None

    def rows(self, expr: Expr) -> _Rows | None:
        """A matrix as rows of groups."""
        call = self.value(expr)
        if not isinstance(call, Call) or call.struct_info.ndim != 2:
            return None
        name = op_name_of(call)
        if name == "relax.permute_dims" and _axes(call) == [1, 0]:
            inner = self.rows(call.args[0])
            return None if inner is None else replace(inner, turned=not inner.turned)
        if name == "relax.strided_slice":
            return self.rows(call.args[0]) if _same_shape(call) else None
        coded = self.coded(call.args[0] if name == "relax.reshape" else call)
        dims = tensor_dims(call.struct_info)
        if coded is None or dims is None or len(dims) != 2:
            return None
        columns = const_int(dims[1], -1)
        group = coded.codes.shape[-1]
        if coded.scale.shape[-1] == coded.zero.shape[-1] == 1:  # nothing differs within a group
            if columns % group:
                return None
            lead = coded.codes.shape[:-1]
            scale, zero = (
                np.broadcast_to(v[..., 0], lead).reshape(-1, columns // group) for v in (coded.scale, coded.zero)
            )
            uniform = coded.scale.size == coded.zero.size == 1
            return _Rows(coded.codes.reshape(-1, columns), scale, zero, False, uniform)
        if name != "relax.reshape" and coded.codes.ndim == 2 and coded.scale.shape[0] == coded.zero.shape[0] == 1:
            # Every column has numbers of its own: the rows of the transpose.
            lead = (columns, 1)
            scale, zero = (np.broadcast_to(v.T, lead) for v in (coded.scale, coded.zero))
            return _Rows(coded.codes.T, scale, zero, True, False)
        return None

    def _moved(self, coded: _Coded | None, by: _Array | None) -> _Coded | None:
        if coded is None or by is None or by.ndim > coded.codes.ndim or (coded.scale != 1).any():
            return None
        zero = coded.zero + _ranked(by.astype("float32"), coded.codes.ndim)
        return None if _wider(zero, coded.codes) else replace(coded, zero=zero)

    def _scaled(self, coded: _Coded | None, by: _Array | None) -> _Coded | None:
        if coded is None or by is None or by.ndim > coded.codes.ndim or by.dtype != np.float32:
            return None
        scale = coded.scale * _ranked(by, coded.codes.ndim)
        return None if _wider(scale, coded.codes) else replace(coded, scale=scale)

    def _dequantized(self, call: Call) -> _Coded | None:
        codes, scale, zero = (self.array(a) for a in call.args[:3])
        if codes is None or scale is None or zero is None or scale.dtype != np.float32 or codes.dtype.itemsize != 1:
            return None
        if codes.dtype.kind not in "iu" or max(scale.ndim, zero.ndim) > 1:
            return None
        shape = [1] * codes.ndim
        along = list(shape)
        along[int(call.attrs.axis) % codes.ndim] = -1
        parts = [v.astype("float32").reshape(along if v.size > 1 else shape) for v in (scale, zero)]
        return _Coded(codes, *parts)


def _axes(call: Call) -> list[int]:
    rank = call.struct_info.ndim
    return [int(a) % rank for a in (call.attrs.axes or reversed(range(rank)))]


def _wider(part: _Array, codes: _Array) -> bool:
    return any(a not in (1, b) for a, b in zip(part.shape, codes.shape))


def _same_shape(call: Call) -> bool:
    a, b = ([const_int(d, -1) for d in tensor_dims(x.struct_info) or (-1,)] for x in (call, call.args[0]))
    return a == b and -1 not in a


@dataclass(frozen=True)
class _Tiles:
    """What the kernel reads; see :func:`coded_product`."""

    codes: _Array
    scales: _Array
    zeros: _Array
    group: int


def _tiles(rows: _Rows, widths: Sequence[int]) -> _Tiles | None:
    """Weights in the order of the kernel; None for sizes that it does not have."""
    columns, depth = rows.codes.shape
    scale, zero = rows.scale, rows.zero
    if scale.shape[1] == 1 and depth % _GROUP == 0:  # long sums are less exact
        scale, zero = (np.repeat(v, depth // _GROUP, 1) for v in (scale, zero))
    group = depth // scale.shape[1]
    width = next((w for w in widths if columns % w == 0), 0)
    low, high = int(rows.codes.min()), int(rows.codes.max())
    if group % 2 or not width or high - low > 255:
        return None
    codes = (rows.codes.astype("int16") - low).astype("uint8") if low else rows.codes.astype("uint8")
    codes = np.ascontiguousarray(codes.T)
    if high - low < 16:
        codes = codes[0::2] | (codes[1::2] << 4)
    zero = zero.T - np.float32(low)
    if (zero == zero[:1]).all():
        zero = zero[:1]

    def tiled(value: _Array) -> _Array:
        return np.ascontiguousarray(value.reshape(value.shape[0], columns // width, width).transpose(1, 0, 2))

    return _Tiles(tiled(codes), tiled(scale.T.astype("float32")), tiled(zero.astype("float32")), group)


class _Rewriter(PyExprMutator):
    def __init__(self, mod: IRModule, func: Function, widths: Sequence[int]) -> None:
        super().__init__(mod)
        self.reader, self.widths = _Reader(func), widths
        self.made: dict[Expr, _Tiles | None] = {}

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or op_name_of(op) != "relax.matmul":
            return call
        x, weights = op.args
        dims, size = tensor_dims(x.struct_info), tensor_dims(weights.struct_info)
        if dims is None or size is None or len(size) != 2 or len(dims) < 2:
            return call
        if x.struct_info.dtype != "float32" or op.struct_info.dtype != "float32":
            return call
        rows = product(dims[:-1])
        if const_int(rows, 0) > _MOST_ROWS or const_int(product(size), 0) < _LEAST_ELEMENTS:
            return call
        if weights not in self.made:
            found = self.reader.rows(weights)
            found = None if found is None else found.by_output()
            self.made[weights] = None if found is None else _tiles(found, self.widths)
        tiles = self.made[weights]
        if tiles is None:
            return call
        data = call.args[0] if len(dims) == 2 else self.builder_.emit(reshape(call.args[0], [rows, dims[-1]]))
        parts = [Constant(v) for v in (tiles.codes, tiles.scales, tiles.zeros)]
        made = self.builder_.call_te(coded_product, data, *parts, tiles.group, primfunc_name_hint="coded_product")
        return made if len(dims) == 2 else reshape(self.builder_.emit(made), [*dims[:-1], size[1]])


class CodedWeights(ModuleRewrite):
    """Keep constant weights of a few bits as codes where they are multiplied with few rows, or any number of rows.

    Before::

        lv = R.subtract(R.astype(codes, "float32"), R.const(8.0))    # codes: constants of 0 to 15, (n, groups, 32)
        lv1 = R.multiply(lv, scales)                                 # (n, groups, 1)
        lv2 = R.matmul(x, R.permute_dims(R.reshape(lv1, (n, k))))

    After::

        lv2 = R.call_tir(coded_product, (x, codes, scales, zeros))   # two codes a byte, tile by tile
    """

    target: Target

    def rewrite(self, mod: IRModule) -> IRModule:
        if self.target.kind.name != "llvm":
            return mod
        lanes = max(4, llvm_get_vector_width(self.target) // 32)
        widths = [w for w in (4 * lanes, 2 * lanes, lanes) if w >= 8]
        out = mod
        for var, func in functions_of(mod, Function):
            if (func.attrs and func.attrs.get("Primitive")) or not hasattr(func.body, "blocks"):
                continue
            rewriter = _Rewriter(out, func, widths)
            made = rewriter.visit_expr(func)
            if any(rewriter.made.values()):
                out = rewriter.builder_.get()
                out.update_func(var, made)
        return out if out is mod else eliminate(out, [v.name_hint for v, f in functions_of(out, Function)])
