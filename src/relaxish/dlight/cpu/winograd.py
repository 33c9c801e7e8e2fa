"""3x3 convolutions by Winograd's algorithm F(4x4, 3x3): a quarter of the multiplications.

Before::

    y = nn.conv2d(x, w)                              # NHWC, HWIO, stride 1, w a constant

After, with ``p`` numbering the 4x4 tiles of the output::

    v = call_tir(winograd_input, nn.pad(x))          # (36, p, channels in): 6x6 tiles of the input, transformed
    m = matmul(v, u)                                 # 36 products; u: (36, channels in, out), made at compile time
    y = call_tir(winograd_output, m)                 # 4x4 tiles of the output

The result differs from direct convolution by rounding only, about 1e-6 of its largest element.

Where batch, height or width are known only at run time, there may be too few tiles for this to pay. Then the padded image
and the products have no elements, and ``winograd_output`` is a direct convolution of the image instead.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arith import Analyzer
from ...ir.expr import PrimExpr, RelaxExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.prim import FloorDiv, IntImm, Min, const as const_of, const_int, const_ints
from ...ir.transform import Pass, PassContext, PassInfo
from ...op import matmul
from ...op.nn import pad
from ...relax.expr import Call, Constant, Tuple, const, is_call_of
from ...relax.expr_functor import PyExprMutator, rewrite_functions
from ...relax.struct_info import TensorStructInfo, tensor_dims
from ...script import from_source
from ...target import Target
from ...te import Tensor, compute, create_prim_func, placeholder
from ...tir import PrimFunc, SizeVar
from ...tir.op import all as every, if_then_else
from ...topi.nn import conv2d_nhwc
from ...topi.nn.winograd_util import cook_toom
from ..base import ApplyDefaultSchedule
from .attention import constant_shape
from .choices import either
from .contraction import Contraction
from .elementwise import Fallback
from .packing import CONSTANT_ATTR

_CALL_TIR = Op.get("relax.call_tir")
_TILE, _SPAN = 4, 6
# Whole numbers as points of evaluation, for the least arithmetic in the two transforms that run every time.
_MATRICES = cook_toom((0, 1, -1, 2, -2), _TILE, 3)
_OUTPUT, _INPUT = (matrix.T.astype(int).tolist() for matrix in _MATRICES[:2])
_KERNEL = _MATRICES[2]
# Below this many tiles the transformed kernel, four times as large as the kernel, costs more than it saves.
_MIN_TILES = 12
_MIN_CHANNELS = 32

#: A number, or a formula of sizes that only the run knows.
Extent = int | str


class WinogradConv2D(Pass):
    """Replace 3x3 convolutions with constant kernels where that pays; see the module."""

    def __init__(self, target: Target) -> None:
        super().__init__(PassInfo(0, "WinogradConv2D"))
        self.target = target

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with its 3x3 convolutions replaced."""
        rewriter = _WinogradRewriter(mod, self.target)
        made = rewrite_functions(rewriter, mod)
        return made if rewriter.found else mod


class _WinogradRewriter(PyExprMutator):
    def __init__(self, mod: IRModule, target: Target) -> None:
        super().__init__(mod)
        self.target = target
        self.lanes = target.vector_bits // 32
        self.found = False

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.nn.conv2d") or not self._pays(call):
            return call
        self.found = True
        data, kernel = call.args
        if constant_shape(data) is None:
            return self._of_unknown_size(op, call)
        _, height, width, _ = _shape_of(op)
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

    def _of_unknown_size(self, op: Call, call: Call) -> RelaxExpr:
        """As for constant sizes; where there may be too few tiles, with a direct convolution for them."""
        data, kernel = call.args
        weight = kernel.data.numpy()
        image, out = (tensor_dims(each.struct_info) or () for each in (data, op))
        pads = [int(n) for n in call.attrs.padding]
        simplify = Analyzer().simplify
        tiles = [simplify(FloorDiv(extent + (_TILE - 1), IntImm("int64", _TILE))) for extent in out[1:3]]
        batch, least = image[0], const_int(tiles[0], 0) * const_int(tiles[1], 0)
        if least < _MIN_TILES:
            enough = FloorDiv(batch * tiles[0] * tiles[1], IntImm("int64", _MIN_TILES))
            batch = batch * Min(enough, IntImm("int64", 1))
        size = [tiles[0] * _TILE + 2, tiles[1] * _TILE + 2]
        padded = self.builder_.emit_te(_framed, data, batch, pads[:2], size, primfunc_name_hint="pad")
        count, channels = batch * tiles[0] * tiles[1], weight.shape[2:]
        v = self._call(input_transform_of_sizes(channels[0], self.lanes), padded, (36, count, channels[0]))
        m = self.builder_.emit(matmul(v, const(transformed_kernel(weight))))
        if least >= _MIN_TILES:
            return self._call(output_transform_of_sizes(channels[1], self.lanes), m, out, emit=False)
        made = _with_direct(channels, tuple(pads), self.lanes, self.target)
        return self._call(made, (m, data, kernel), out, emit=False)

    def _call(
        self, func: PrimFunc, args: RelaxExpr | Sequence[RelaxExpr], shape: Sequence[int | PrimExpr], emit: bool = True
    ) -> RelaxExpr:
        name = "winograd_input" if emit else "winograd_output"
        gvar = self.builder_.add_func(func, name)
        given = args if isinstance(args, Sequence) else [args]
        call = Call(_CALL_TIR, (gvar, Tuple(given)), None, (TensorStructInfo(shape, "float32"),))
        return self.builder_.emit(call) if emit else call

    def _pays(self, call: Call) -> bool:
        a, info, kernel = call.attrs, call.args[0].struct_info, call.args[1]
        dims = tensor_dims(info)
        if (
            dims is None
            or info.dtype != "float32"
            or not isinstance(kernel, Constant)
            or a.data_layout != "NHWC"
            or a.kernel_layout != "HWIO"
        ):
            return False
        numbers = [int(n) for n in (*a.strides, *a.dilation, a.groups)]
        size = kernel.data.shape
        if size[:2] != (3, 3) or any(n != 1 for n in numbers) or a.get("out_dtype") not in (None, "", "float32"):
            return False
        if min(size[2:]) < _MIN_CHANNELS or size[2] % self.lanes or size[3] % self.lanes:
            return False
        shape = const_ints(dims)
        if shape is None:
            return all(extent.dtype == "int64" for extent in dims)
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
    arrays = [("x", source), ("out", (36, batch * rows * columns, channels))]
    return _kernel(
        "winograd_input", arrays, (batch, *tiles, channels // lanes), lanes, _input_body(columns, rows, lanes)
    )


@functools.lru_cache(maxsize=64)
def input_transform_of_sizes(channels: int, lanes: int) -> PrimFunc:
    """:func:`input_transform` of images of any number and size."""
    rows, columns = "(height - 2) // 4", "(width - 2) // 4"
    arrays = [("x", ("images", "height", "width", channels)), ("out", (36, "tiles", channels))]
    body = _input_body(f"({columns})", f"({rows})", lanes)
    return _kernel("winograd_input", arrays, ("images", rows, columns, channels // lanes), lanes, body)


def _input_body(columns: Extent, rows: Extent, lanes: int) -> list[str]:
    place = f"(n * {rows} + th) * {columns} + tw, cb * {lanes} + l"
    return [
        *_unrolled(_SPAN, "i", [*_unrolled(_SPAN, "j", _vector(f"d[i * 6 + j, l] = {_PIXEL}{lanes} + l]", lanes))]),
        *_unrolled(_SPAN, "j", _vectors([f"t[{i * 6} + j, l] = {_sum(_INPUT[i], 'd', 'j', 6)}" for i in range(6)], lanes)),
        *_unrolled(_SPAN, "i", _vectors(
            [f"out[i * 6 + {j}, {place}] = {_sum(_INPUT[j], 't', 'i * 6', 1)}" for j in range(6)], lanes)),
    ]  # fmt: skip


@functools.lru_cache(maxsize=64)
def output_transform(batch: int, tiles: tuple[int, int], size: tuple[int, int], channels: int, lanes: int) -> PrimFunc:
    """``A m A^T`` of every tile, into an NHWC image; what the last tiles have too much is dropped."""
    rows, columns = tiles
    arrays = [("x", (36, batch * rows * columns, channels)), ("out", (batch, *size, channels))]
    body = _output_body(columns, rows, size, lanes)
    return _kernel("winograd_output", arrays, (batch, *tiles, channels // lanes), lanes, body)


@functools.lru_cache(maxsize=64)
def output_transform_of_sizes(
    channels: int, lanes: int, more: tuple[int, int] = (0, 0), others: tuple[tuple[str, tuple[Extent, ...]], ...] = ()
) -> PrimFunc:
    """:func:`output_transform` of images of any number and size, which are by ``more`` larger than ``height`` and
    ``width``; ``others`` are further parameters."""
    size = (f"(height + {more[0]})", f"(width + {more[1]})") if any(more) else ("height", "width")
    rows, columns = (f"({extent} + 3) // 4" for extent in size)
    arrays = [("x", (36, "tiles", channels)), *others, ("out", ("images", *size, channels))]
    body = _output_body(f"({columns})", f"({rows})", size, lanes)
    return _kernel("winograd_output", arrays, ("images", rows, columns, channels // lanes), lanes, body)


def _output_body(columns: Extent, rows: Extent, size: tuple[Extent, Extent], lanes: int) -> list[str]:
    load = f"d[i, l] = x[i, (n * {rows} + th) * {columns} + tw, cb * {lanes} + l]"
    down = [f"t[{i * 6} + j, l] = {_sum(_OUTPUT[i], 'd', 'j', 6)}" for i in range(_TILE)]
    across: list[str] = []
    for j in range(_TILE):
        store = f"out[n, th * 4 + i, tw * 4 + {j}, cb * {lanes} + l] = {_sum(_OUTPUT[j], 't', 'i * 6', 1)}"
        across += _guarded(f"tw * 4 + {j}", size[1], columns, j, _vector(store, lanes))
    return [
        *_unrolled(_SPAN * _SPAN, "i", _vector(load, lanes)),
        *_unrolled(_SPAN, "j", _vectors(down, lanes)),
        *_unrolled(_TILE, "i", _guarded("th * 4 + i", size[0], rows, _TILE - 1, across)),
    ]


# ---- sizes known only at run time


def _framed(data: Tensor, batch: PrimExpr, before: Sequence[int], size: Sequence[PrimExpr]) -> Tensor:
    """The first ``batch`` images with zeros around them, of a given size in all."""
    _, height, width, channels = data.shape

    def pixel(n: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> PrimExpr:
        top, left = before
        inside = every(y >= top, y < height + top, x >= left, x < width + left)
        return if_then_else(inside, data[n, y - top, x - left, c], const_of(0.0, data.dtype))

    return compute((batch, *size, channels), pixel, name="PadInput")


@functools.lru_cache(maxsize=64)
def _with_direct(channels: tuple[int, int], pads: tuple[int, ...], lanes: int, target: Target) -> PrimFunc:
    """The transform of the output, or a convolution of the image where nothing was transformed."""
    more = (pads[0] + pads[2] - 2, pads[1] + pads[3] - 2)
    image = ("images", "height", "width", channels[0])
    transform = output_transform_of_sizes(channels[1], lanes, more, (("image", image), ("kernel", (3, 3, *channels))))
    tiles = transform.buffer_map[transform.params[0]].shape[1]
    sizes = [SizeVar(name, "int64") for name in image[:3]]
    data, kernel = placeholder((*sizes, channels[0]), name="image"), placeholder((3, 3, *channels), name="kernel")
    products = placeholder((36, SizeVar("tiles", "int64"), channels[1]), name="x")
    result = conv2d_nhwc(data, kernel, 1, pads, 1)
    direct = create_prim_func([products, data, kernel, result], index_dtype_override="int64")
    # Of the kernel, too: in a function of its own it would be a constant.
    direct = direct.with_attr(CONSTANT_ATTR, [2]).with_attr("global_symbol", "direct")
    schedule = ApplyDefaultSchedule(Contraction(), Fallback(), simplify_shapes=True)
    with target:
        direct = schedule(IRModule({"direct": direct}))["direct"]
    return either(tiles > 0, transform, direct)


_PIXEL = "x[n, th * 4 + i, tw * 4 + j, cb * "


def _unrolled(count: int, var: str, body: Sequence[str]) -> list[str]:
    return [f"for {var} in T.unroll({count}):", *("    " + line for line in body)]


def _vector(statement: str, lanes: int) -> list[str]:
    return [f"for l in T.vectorized({lanes}):", f"    {statement}"]


def _vectors(statements: Sequence[str], lanes: int) -> list[str]:
    return [line for statement in statements for line in _vector(statement, lanes)]


def _guarded(index: str, extent: Extent, tiles: Extent, within: int, body: Sequence[str]) -> list[str]:
    """``body`` where ``index``, which is ``within`` a tile, is inside; the last tile says whether it ever is not."""
    if isinstance(extent, int) and isinstance(tiles, int) and (tiles - 1) * _TILE + within < extent:
        return list(body)
    return [f"if {index} < {extent}:", *("    " + line for line in body)]


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
    name: str,
    arrays: Sequence[tuple[str, tuple[Extent, ...]]],
    grid: tuple[Extent, ...],
    lanes: int,
    body: Sequence[str],
) -> PrimFunc:
    """A function of ``arrays`` that runs ``body`` for each tile and each vector of channels.

    Extents that are text are formulas of sizes, which are known where one is the extent of an array by itself.
    """
    batch, rows, columns, vectors = grid
    everything = {each: f"{each}[{', '.join(f'0:{e}' for e in dims)}]" for each, dims in arrays}
    lines = [
        "@T.prim_func(private=True)",
        f"def {name}({', '.join(f'p_{each}: T.handle' for each, _ in arrays)}):",
        '    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "op_pattern": 8})',
        *(f"    {size} = T.int64(is_size_var=True)" for size in _sizes(arrays)),
        *(f'    {each} = T.match_buffer(p_{each}, ({", ".join(map(str, dims))}), "float32")' for each, dims in arrays),
        f"    for nh in T.parallel({batch} * ({rows})):",
        f"        for w, b in T.grid({columns}, {vectors}):",
        '            with T.block("tile"):',
        f"                n = T.axis.spatial({batch}, nh // ({rows}))",
        f"                th = T.axis.spatial({rows}, nh % ({rows}))",
        '                tw, cb = T.axis.remap("SS", [w, b])',
        f"                T.reads({everything['x']})",
        f"                T.writes({everything['out']})",
        f'                d = T.alloc_buffer((36, {lanes}), "float32")',
        f'                t = T.alloc_buffer((36, {lanes}), "float32")',
        *(" " * 16 + line for line in body),
    ]
    func: PrimFunc = from_source("\n".join(lines) + "\n")
    return func


def _sizes(arrays: Sequence[tuple[str, tuple[Extent, ...]]]) -> list[str]:
    """Names that stand by themselves as extents."""
    return list(dict.fromkeys(e for _, dims in arrays for e in dims if isinstance(e, str) and e.isidentifier()))
