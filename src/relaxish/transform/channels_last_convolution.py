"""Convolutions of groups and of volumes as one loop nest over channels in vectors.

``CPULayoutPacking`` keeps activations channels-last around convolutions of images without groups. Those of groups, of one to
three dimensions, and all of three, are computed here on a channels-last copy of their input, with the groups outermost: what
is left is a product for every group and window, whose columns fill vectors whatever the image's width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import te, topi
from ..ir import dtype as dt
from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op import manipulate
from ..op.index import strided_slice
from ..relax.expr import Call, Constant, Expr, Function
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int
from ..target import Target
from .aligned_columns import aligned
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["ChannelsLastConvolution"]

_LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}
# Fewer outputs of a group than half a vector are not worth one; fewer operations than this not the copies around them.
_LEAST_WORK = 1 << 14
# Where rows of the image are whole vectors, so few channels are as fast from where they are.
_FEW_INPUTS = 8


class _Shape(NamedTuple):
    """Sizes of one convolution; ``inputs`` and ``outputs`` are those of a group."""

    batch: int
    groups: int
    inputs: int
    outputs: int
    image: tuple[int, ...]
    result: tuple[int, ...]
    window: tuple[int, ...]


def _convolution(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    dtype: str,
) -> te.Tensor:
    """``[g, n, image..., i]`` by ``[g, window..., i, o]`` to ``[g, n, result..., o]``."""
    dims = len(strides)
    before, after = padding[:dims], padding[dims:]
    padded = data
    if any(padding):
        padded = topi.nn.pad(data, [0, 0, *before, 0], [0, 0, *after, 0], name="pad_temp")
    image = padded.shape[2 : 2 + dims]
    window = weight.shape[1 : 1 + dims]
    size = [(a - d * (k - 1) - 1) // s + 1 for a, k, s, d in zip(image, window, strides, dilation, strict=True)]
    taps = [te.reduce_axis((0, k), f"r{i}") for i, k in enumerate(window)]
    channel = te.reduce_axis((0, data.shape[-1]), "rc")

    def product(g: Any, n: Any, *at: Any) -> PrimExpr:
        *place, o = at
        source = [p * s + t * d for p, s, t, d in zip(place, strides, taps, dilation, strict=True)]
        factors = padded[(g, n, *source, channel)], weight[(g, *taps, channel, o)]
        return te.sum(factors[0].astype(dtype) * factors[1].astype(dtype), axis=[*taps, channel])

    return te.compute((data.shape[0], data.shape[1], *size, weight.shape[-1]), product, "conv_channels_last")


class _ChannelsLastRewriter(PyExprMutator):
    def __init__(self, mod: IRModule, target: Target) -> None:
        super().__init__(mod)
        self.vector_bits = target.vector_bits

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if op_name_of(call) not in _LAYOUTS:
            return call
        call = self.builder_.normalize(call)
        shape = _shape_of(call)
        lanes = self.vector_bits // max(32, dt.bits(call.struct_info.dtype))
        return self._channels_last(call, shape, lanes) if shape is not None and _pays(shape, lanes) else call

    def _channels_last(self, call: Call, shape: _Shape, lanes: int) -> Expr:
        emit, dims = self.builder_.emit, len(shape.window)
        spatial = range(3, 3 + dims)
        grouped = [shape.batch, shape.groups, shape.inputs, *shape.image]
        turned = [1, 0, *spatial, 2]
        data = emit(manipulate.permute_dims(emit(manipulate.reshape(call.args[0], grouped)), turned))
        weight = call.args[1].data.numpy().reshape(shape.groups, shape.outputs, shape.inputs, *shape.window)
        weight = weight.transpose(0, *spatial, 2, 1)
        width = aligned(shape.outputs, lanes)
        weight = np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, width - shape.outputs)])
        a = call.attrs
        numbers = [[int(v) for v in values] for values in (a.strides, a.padding, a.dilation)]
        wide = self.builder_.emit_te(
            _convolution, data, Constant(np.ascontiguousarray(weight)), *numbers, call.struct_info.dtype,
            primfunc_name_hint=f"conv{dims}d_channels_last",
        )  # fmt: skip
        if width != shape.outputs:
            wide = emit(strided_slice(wide, [2 + dims], [0], [shape.outputs]))
        back = emit(manipulate.permute_dims(wide, [1, 0, 2 + dims, *range(2, 2 + dims)]))
        return manipulate.reshape(back, [shape.batch, shape.groups * shape.outputs, *shape.result])


def _shape_of(call: Call) -> _Shape | None:
    """Sizes of a call that can be rewritten: standard layouts, known sizes, a constant weight."""
    a = call.attrs
    data_layout, kernel_layout = _LAYOUTS[call.op.name]
    if str(a.data_layout) != data_layout or str(a.kernel_layout) != kernel_layout:
        return None
    if str(a.out_layout or data_layout) != data_layout or not isinstance(call.args[1], Constant):
        return None
    infos = (call.args[0].struct_info, call.args[1].struct_info, call.struct_info)
    data, weight, result = ([const_int(d) for d in (info.dims() or ())] for info in infos)
    sizes = [*data, *weight, *result]
    if None in sizes or not sizes or min(int(s or 0) for s in sizes) < 1:
        return None
    if len({info.dtype for info in infos}) != 1 or not dt.is_float(infos[0].dtype) or dt.bits(infos[0].dtype) < 16:
        return None
    known = [[int(s or 0) for s in sizes] for sizes in (data, weight, result)]
    groups = int(a.groups)
    if groups == 1 and len(known[2]) != 5:
        return None
    return _Shape(
        known[0][0], groups, known[1][1], known[1][0] // groups, tuple(known[0][2:]), tuple(known[2][2:]),
        tuple(known[1][2:]),
    )  # fmt: skip


def _pays(shape: _Shape, lanes: int) -> bool:
    columns = shape.batch * shape.groups * math.prod(shape.result) * shape.outputs
    work = columns * shape.inputs * math.prod(shape.window)
    if shape.groups == 1 and shape.inputs < _FEW_INPUTS and shape.result[-1] % lanes == 0:
        return False
    return shape.outputs >= lanes // 2 and work >= _LEAST_WORK


class ChannelsLastConvolution(ModuleRewrite):
    """Convolutions of groups or volumes with constant weights, channels-last; see the module.

    Before::

        y = R.nn.conv2d(x, w, groups=2)                                      # x: (1, 64, 9, 9), w: (64, 32, 3, 3)

    After::

        lv = R.permute_dims(R.reshape(x, (1, 2, 32, 9, 9)), [1, 0, 3, 4, 2])     # groups, batch, image, channels
        lv1 = R.call_tir(cls.conv2d_channels_last, (lv, w0), R.Tensor((2, 1, 7, 7, 32)))
        y = R.reshape(R.permute_dims(lv1, [1, 0, 4, 2, 3]), (1, 64, 7, 7))
    """

    target: Target

    def rewrite(self, mod: IRModule) -> IRModule:
        rewriter = _ChannelsLastRewriter(mod, self.target)

        def rewrite(_: GlobalVar, func: Function) -> Function:
            made: Function = rewriter.visit_expr(func)
            return made

        changed = map_relax_functions(mod, rewrite)
        if changed is mod:
            return mod
        out = rewriter.builder_.get()
        for gvar, func in changed.functions.items():
            if isinstance(func, Function):
                out.update_func(gvar, func)
        return out
