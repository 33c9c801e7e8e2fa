"""3x3 convolutions by Winograd's algorithm F(4x4, 3x3): a quarter of the multiplications.

Before::

    y = nn.conv2d(x, w)                              # NHWC, HWIO, stride 1, w a constant

After, with ``p`` numbering the 4x4 tiles of the output::

    v = call_tir(winograd_input, nn.pad(x))          # (36, p, channels in): 6x6 tiles of the input, transformed
    m = matmul(v, u)                                 # 36 products; u: (36, channels in, out), made at compile time
    y = call_tir(winograd_output, m)                 # 4x4 tiles of the output

The result differs from direct convolution by rounding only, about 1e-6 of its largest element.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.expr import RelaxExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import Pass, PassContext, PassInfo
from ...op import matmul
from ...op.nn import pad
from ...relax.expr import Call, Constant, Tuple, const, is_call_of
from ...relax.expr_functor import PyExprMutator, rewrite_functions
from ...relax.struct_info import TensorStructInfo
from ...script import from_source
from ...target import Target
from ...tir import PrimFunc
from ...topi.nn.winograd_util import cook_toom
from .attention import constant_shape

_CALL_TIR = Op.get("relax.call_tir")
_TILE, _SPAN = 4, 6
# Whole numbers as points of evaluation, for the least arithmetic in the two transforms that run every time.
_MATRICES = cook_toom((0, 1, -1, 2, -2), _TILE, 3)
_OUTPUT, _INPUT = (matrix.T.astype(int).tolist() for matrix in _MATRICES[:2])
_KERNEL = _MATRICES[2]
# Below this many tiles the transformed kernel, four times as large as the kernel, costs more than it saves.
_MIN_TILES = 12
_MIN_CHANNELS = 32


class WinogradConv2D(Pass):
    """Replace 3x3 convolutions with constant kernels where that pays; see the module."""

    def __init__(self, target: Target) -> None:
        super().__init__(PassInfo(0, "WinogradConv2D"))
        self.target = target

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with its 3x3 convolutions replaced."""
        rewriter = _Rewrite(mod, self.target.vector_bits // 32)
        made = rewrite_functions(rewriter, mod)
        return made if rewriter.found else mod


class _Rewrite(PyExprMutator):
    def __init__(self, mod: IRModule, lanes: int) -> None:
        super().__init__(mod)
        self.lanes = lanes
        self.found = False

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.nn.conv2d") or not self._pays(call):
            return call
        self.found = True
        _, height, width, _ = _shape_of(op)
        data, kernel = call.args
        batch, rows, columns, channels = constant_shape(data) or ()
        tiles = _tiles(height), _tiles(width)
        top, left = (int(n) for n in list(call.attrs.padding)[:2])
        bottom = tiles[0] * _TILE + 2 - top - rows
        right = tiles[1] * _TILE + 2 - left - columns
        padded = self.builder_.emit(pad(data, [0, 0, top, bottom, left, right, 0, 0]))
        count = batch * tiles[0] * tiles[1]
        v = self._call(input_transform(batch, tiles, channels, self.lanes), padded, (36, count, channels))
        u = transformed_kernel(kernel.data.numpy())
        m = self.builder_.emit(matmul(v, const(u)))
        func = output_transform(batch, tiles, (height, width), u.shape[2], self.lanes)
        return self._call(func, m, (batch, height, width, u.shape[2]), emit=False)

    def _call(self, func: PrimFunc, arg: RelaxExpr, shape: Sequence[int], emit: bool = True) -> RelaxExpr:
        name = "winograd_input" if emit else "winograd_output"
        gvar = self.builder_.add_func(func, name)
        call = Call(_CALL_TIR, (gvar, Tuple([arg])), None, (TensorStructInfo(shape, "float32"),))
        return self.builder_.emit(call) if emit else call

    def _pays(self, call: Call) -> bool:
        a, shape = call.attrs, constant_shape(call.args[0])
        kernel = call.args[1]
        if shape is None or not isinstance(kernel, Constant) or a.data_layout != "NHWC" or a.kernel_layout != "HWIO":
            return False
        numbers = [int(n) for n in (*a.strides, *a.dilation, a.groups)]
        size = kernel.data.shape
        if size[:2] != (3, 3) or any(n != 1 for n in numbers) or a.get("out_dtype") not in (None, "", "float32"):
            return False
        if min(size[2:]) < _MIN_CHANNELS or size[2] % self.lanes or size[3] % self.lanes:
            return False
        pads = [int(n) for n in a.padding]
        rows, columns = shape[1] + pads[0] + pads[2] - 2, shape[2] + pads[1] + pads[3] - 2
        return shape[0] * _tiles(rows) * _tiles(columns) >= _MIN_TILES


def _shape_of(call: Call) -> tuple[int, ...]:
    shape = constant_shape(call)
    assert shape is not None
    return shape


def _tiles(extent: int) -> int:
    return -(-extent // _TILE)


def transformed_kernel(kernel: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(3, 3, in, out) as (36, in, out)."""
    both_axes = np.kron(_KERNEL, _KERNEL).astype(kernel.dtype)
    return (both_axes @ kernel.reshape(9, -1)).reshape(36, *kernel.shape[2:])


# ---- the two transforms


@functools.lru_cache(maxsize=64)
def input_transform(batch: int, tiles: tuple[int, int], channels: int, lanes: int) -> PrimFunc:
    """Every 6x6 tile ``d`` of a padded NHWC image as ``B d B^T``, one of its 36 elements after the other."""
    rows, columns = tiles
    source = (batch, rows * _TILE + 2, columns * _TILE + 2, channels)
    out = (36, batch * rows * columns, channels)
    place = f"(n * {rows} + th) * {columns} + tw, cb * {lanes} + l"
    body = [
        *_unrolled(_SPAN, "i", [*_unrolled(_SPAN, "j", _vector(f"d[i * 6 + j, l] = {_PIXEL}{lanes} + l]", lanes))]),
        *_unrolled(_SPAN, "j", _vectors([f"t[{i * 6} + j, l] = {_sum(_INPUT[i], 'd', 'j', 6)}" for i in range(6)], lanes)),
        *_unrolled(_SPAN, "i", _vectors(
            [f"out[i * 6 + {j}, {place}] = {_sum(_INPUT[j], 't', 'i * 6', 1)}" for j in range(6)], lanes)),
    ]  # fmt: skip
    return _kernel("winograd_input", source, out, (batch, *tiles, channels // lanes), lanes, body)


@functools.lru_cache(maxsize=64)
def output_transform(batch: int, tiles: tuple[int, int], size: tuple[int, int], channels: int, lanes: int) -> PrimFunc:
    """``A m A^T`` of every tile, into an NHWC image; what the last tiles have too much is dropped."""
    rows, columns = tiles
    source = (36, batch * rows * columns, channels)
    out = (batch, *size, channels)
    load = f"d[i, l] = x[i, (n * {rows} + th) * {columns} + tw, cb * {lanes} + l]"
    down = [f"t[{i * 6} + j, l] = {_sum(_OUTPUT[i], 'd', 'j', 6)}" for i in range(_TILE)]
    across: list[str] = []
    for j in range(_TILE):
        store = f"out[n, th * 4 + i, tw * 4 + {j}, cb * {lanes} + l] = {_sum(_OUTPUT[j], 't', 'i * 6', 1)}"
        across += _guarded(f"tw * 4 + {j}", size[1], (columns - 1) * _TILE + j, _vector(store, lanes))
    body = [
        *_unrolled(_SPAN * _SPAN, "i", _vector(load, lanes)),
        *_unrolled(_SPAN, "j", _vectors(down, lanes)),
        *_unrolled(_TILE, "i", _guarded("th * 4 + i", size[0], rows * _TILE - 1, across)),
    ]
    return _kernel("winograd_output", source, out, (batch, *tiles, channels // lanes), lanes, body)


_PIXEL = "x[n, th * 4 + i, tw * 4 + j, cb * "


def _unrolled(count: int, var: str, body: Sequence[str]) -> list[str]:
    return [f"for {var} in T.unroll({count}):", *("    " + line for line in body)]


def _vector(statement: str, lanes: int) -> list[str]:
    return [f"for l in T.vectorized({lanes}):", f"    {statement}"]


def _vectors(statements: Sequence[str], lanes: int) -> list[str]:
    return [line for statement in statements for line in _vector(statement, lanes)]


def _guarded(index: str, extent: int, largest: int, body: Sequence[str]) -> list[str]:
    """``body`` where ``index`` is inside; its largest value says whether it ever is not."""
    return list(body) if largest < extent else [f"if {index} < {extent}:", *("    " + line for line in body)]


def _sum(factors: Sequence[int], array: str, start: str, step: int) -> str:
    """``factors`` times every ``step``-th row of a local array."""
    text = ""
    for k, factor in enumerate(factors):
        if factor:
            item = f"{array}[{start} + {k * step}, l]"
            item = item if abs(factor) == 1 else f"{item} * T.float32({abs(factor)})"
            text = f"{text} {'-' if factor < 0 else '+'} {item}" if text else (f"-{item}" if factor < 0 else item)
    return text


def _kernel(
    name: str, source: tuple[int, ...], out: tuple[int, ...], grid: tuple[int, int, int, int], lanes: int,
    body: Sequence[str],
) -> PrimFunc:  # fmt: skip
    """A function that runs ``body`` for each tile and each vector of channels."""
    batch, rows, columns, vectors = grid
    lines = [
        "@T.prim_func(private=True)",
        f'def {name}(x: T.Buffer({source}, "float32"), out: T.Buffer({out}, "float32")):',
        '    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "op_pattern": 8})',
        f"    for nh in T.parallel({batch * rows}):",
        f"        for w, b in T.grid({columns}, {vectors}):",
        '            with T.block("tile"):',
        f"                n = T.axis.spatial({batch}, nh // {rows})",
        f"                th = T.axis.spatial({rows}, nh % {rows})",
        '                tw, cb = T.axis.remap("SS", [w, b])',
        f"                T.reads(x[{', '.join(f'0:{e}' for e in source)}])",
        f"                T.writes(out[{', '.join(f'0:{e}' for e in out)}])",
        f'                d = T.alloc_buffer((36, {lanes}), "float32")',
        f'                t = T.alloc_buffer((36, {lanes}), "float32")',
        *(" " * 16 + line for line in body),
    ]
    func: PrimFunc = from_source("\n".join(lines) + "\n")
    return func
