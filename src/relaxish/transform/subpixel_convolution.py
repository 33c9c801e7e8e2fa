"""Transposed convolutions as plain ones: the pixels of an output cell become channels (Shi et al., 2016, sub-pixel
convolution), so that no product with an inserted zero is computed and the fast convolutions serve them.

With stride s and a window of k, outputs s*m .. s*m+s-1 read the same ceil(k/s) inputs ending at m: one convolution of stride
1 with s*s times the channels gives them all, and a transposition puts them side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import IRModule
from ..ir.op import op_name_of
from ..op import manipulate, nn
from ..op.index import strided_slice
from ..relax.expr import Call, Constant, Expr, Function
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int
from ..relax.struct_info import TensorStructInfo
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["SubPixelConvTranspose", "sub_pixel_convolution"]

_DIMS = {"relax.nn.conv1d_transpose": 1, "relax.nn.conv2d_transpose": 2}
_PLAIN: dict[int, Callable[..., Expr]] = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}
_LAYOUTS = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW")}


class _Arrays(NamedTuple):
    """The four operations that rearrange a kernel: NumPy's for constants, those of the graph for other kernels."""

    reshape: Callable[[Any, Sequence[int]], Any]
    pad: Callable[[Any, Sequence[int]], Any]
    flip: Callable[[Any, int], Any]
    permute: Callable[[Any, Sequence[int]], Any]


_NUMPY = _Arrays(
    np.reshape,
    lambda x, width: np.pad(x, np.reshape(width, (-1, 2)).tolist()),
    np.flip,
    lambda x, axes: x.transpose(axes),
)
_GRAPH = _Arrays(manipulate.reshape, nn.pad, manipulate.flip, manipulate.permute_dims)


class _Shape(NamedTuple):
    """Sizes of one transposed convolution, those of the window and the stride by axis."""

    groups: int
    inputs: int  # of a group
    outputs: int  # of a group
    window: tuple[int, ...]
    strides: tuple[int, ...]

    def cells(self) -> tuple[int, ...]:
        """Number of inputs an output reads, by axis."""
        return tuple(-(-k // s) for k, s in zip(self.window, self.strides))


def _kernel(weight: Expr | np.ndarray[Any, Any], shape: _Shape, arrays: _Arrays) -> Any:
    """``[I, O/g, k...]`` as the kernel ``[g * s... * O/g, I/g, ceil(k/s)...]`` of the plain convolution."""
    dims, cells = len(shape.window), shape.cells()
    split = arrays.reshape(weight, (shape.groups, shape.inputs, shape.outputs, *shape.window))
    missing = [s * c - k for s, c, k in zip(shape.strides, cells, shape.window)]
    if any(missing):
        split = arrays.pad(split, [0] * 6 + [w for m in missing for w in (0, m)])
    pairs = [size for c, s in zip(cells, shape.strides) for size in (c, s)]
    split = arrays.reshape(split, (shape.groups, shape.inputs, shape.outputs, *pairs))
    for k in range(dims):
        split = arrays.flip(split, 3 + 2 * k)
    phases, taps = [4 + 2 * k for k in range(dims)], [3 + 2 * k for k in range(dims)]
    turned = arrays.permute(split, (0, *phases, 2, 1, *taps))
    channels = shape.groups * int(np.prod(shape.strides)) * shape.outputs
    return arrays.reshape(turned, (channels, shape.inputs, *cells))


class _SubpixelRewriter(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        dims = _DIMS.get(op_name_of(call))
        shape = None if dims is None else _shape_of(call, dims)
        if shape is None:
            return call
        call = self.builder_.normalize(call)
        wanted = list(call.struct_info.shape.values)[2:]
        padding = [int(v) for v in call.attrs.padding]
        return _plain(self.builder_.emit, call.args[0], call.args[1], shape, padding, wanted, call.struct_info.dtype)


def sub_pixel_convolution(
    emit: Callable[[Expr], Any],
    data: Expr,
    weight: Expr,
    strides: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
    groups: int,
    out_dtype: str,
) -> Expr | None:
    """A transposed convolution without dilation of one to three dimensions, ``[n, c, image...]`` by ``[i, o / groups, window...]``.

    ``padding`` is what is taken away before each axis and then behind each, ``extra`` the pixels added behind. None where
    these cannot be computed so, or a size of the window is known only at run time.
    """
    info = weight.struct_info
    sizes = [const_int(d) for d in (info.dims() or ())] if isinstance(info, TensorStructInfo) else []
    image = data.struct_info.dims() if isinstance(data.struct_info, TensorStructInfo) else None
    if len(sizes) < 3 or None in sizes or image is None:
        return None
    inputs, outputs, *window = (int(s or 0) for s in sizes)
    shape, dims = _Shape(groups, inputs // groups, outputs, tuple(window), tuple(strides)), len(window)
    if not _reaches(shape, padding[dims:], extra):
        return None
    wanted = [
        (size - 1) * s + k - p - q + e
        for size, s, k, p, q, e in zip(image[2:], strides, window, padding[:dims], padding[dims:], extra, strict=True)
    ]
    return _plain(emit, data, weight, shape, padding, wanted, out_dtype)


def _plain(
    emit: Callable[[Expr], Any],
    data: Expr,
    weight: Expr,
    shape: _Shape,
    padding: Sequence[int],
    wanted: Sequence[PrimExpr],
    out_dtype: str,
) -> Expr:
    """The convolution of stride 1 and what puts its channels side by side, with an image of ``wanted`` sizes."""
    dims, cells = len(shape.window), shape.cells()
    if isinstance(weight, Constant):
        kernel: Expr = Constant(np.ascontiguousarray(_kernel(weight.data.numpy(), shape, _NUMPY)))
    else:
        on_graph = _Arrays(*(lambda *given, f=f: emit(f(*given)) for f in _GRAPH))
        kernel = _kernel(weight, shape, on_graph)
    function = _PLAIN[dims]
    if all(s == 1 for s in shape.strides):
        pads = [c - 1 - p for c, p in zip(cells * 2, padding)]
        if min(pads) >= 0:
            return function(data, kernel, 1, pads, 1, shape.groups, out_dtype=out_dtype)
    pads = [c - 1 for c in cells] * 2
    fine = emit(function(data, kernel, 1, pads, 1, shape.groups, out_dtype=out_dtype))
    batch, _, *size = fine.struct_info.shape.values
    # [n, g, s..., o, m...] -> [n, g, o, m, s, ...]
    apart = emit(manipulate.reshape(fine, [batch, shape.groups, *shape.strides, shape.outputs, *size]))
    pairs = [axis for k in range(dims) for axis in (3 + dims + k, 2 + k)]
    turned = emit(manipulate.permute_dims(apart, [0, 1, 2 + dims, *pairs]))
    whole = [batch, shape.groups * shape.outputs, *(m * s for m, s in zip(size, shape.strides))]
    joined = emit(manipulate.reshape(turned, whole))
    before = list(padding[:dims])
    return strided_slice(joined, list(range(2, 2 + dims)), before, [p + size for p, size in zip(before, wanted)])


def _shape_of(call: Call, dims: int) -> _Shape | None:
    """Sizes of a call that can be rewritten: no dilation, standard layouts, a window of known size."""
    a = call.attrs
    data, kernel = _LAYOUTS[dims]
    if (str(a.data_layout), str(a.out_layout), str(a.kernel_layout)) != (data, data, kernel):
        return None
    info = call.args[1].struct_info
    sizes = [const_int(d) for d in (info.dims() or ())]
    if len(sizes) != dims + 2 or None in sizes or any(int(v) != 1 for v in a.dilation):
        return None
    if call.args[0].struct_info.dims() is None or call.struct_info.dims() is None:
        return None
    inputs, outputs, *window = (int(s or 0) for s in sizes)
    strides, extra = tuple(int(v) for v in a.strides), [int(v) for v in a.output_padding]
    shape = _Shape(int(a.groups), inputs // int(a.groups), outputs, tuple(window), strides)
    after = [int(v) for v in a.padding][dims:]
    return shape if _reaches(shape, after, extra) else None


def _reaches(shape: _Shape, after: Sequence[int], extra: Sequence[int]) -> bool:
    """Whether the last cells hold all pixels: output padding may ask for some behind them."""
    reach = zip(shape.cells(), shape.strides, shape.window, after, extra)
    return all(k - p + e <= c * s for c, s, k, p, e in reach)


class SubPixelConvTranspose(ModuleRewrite):
    """``conv2d_transpose`` and ``conv1d_transpose`` without dilation become convolutions of stride 1.

    Before::

        lv = R.nn.conv2d_transpose(x, w, strides=[2, 2])                # x: (1, 8, 5, 5), w: (8, 3, 4, 4)

    After, with the taps of ``w`` for each of the four pixels of a cell as channels of ``k``::

        lv = R.nn.conv2d(x, k, padding=[1, 1, 1, 1])                    # k: (12, 8, 2, 2), lv: (1, 12, 6, 6)
        lv1 = R.reshape(lv, R.shape([1, 1, 2, 2, 3, 6, 6]))
        lv2 = R.permute_dims(lv1, axes=[0, 1, 4, 5, 2, 6, 3])
        lv3 = R.reshape(lv2, R.shape([1, 3, 12, 12]))
        lv4 = R.strided_slice(lv3, ...)                                 # what padding takes away
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        def rewrite(_: GlobalVar, func: Function) -> Function:
            made: Function = _SubpixelRewriter(mod).visit_expr(func)
            return made

        return map_relax_functions(mod, rewrite)
