"""Small programs of many kinds for ``cuda_build_sweep.py``: products, convolutions, reductions, and what is around them.

``PROGRAMS`` maps a name to (family, function that makes the program). Sizes are small, so that a candidate is quick to
lower and to emulate, and many are odd, prime or 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from relaxish import te, tir, topi
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target

PROGRAMS: dict[str, tuple[str, Callable[[], Any]]] = {}
TYPES = (
    ("float16", "float32"), ("float16", "float16"), ("int8", "int32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16"),
    ("float32", "float32"),
)  # fmt: skip


def _add(family: str, name: str, make: Callable[[], Any]) -> None:
    assert name not in PROGRAMS, name
    PROGRAMS[name] = (family, make)


def _input(shape: Sequence[Any], dtype: str = "float32", name: str = "X") -> Any:
    return te.placeholder(tuple(shape), dtype, name=name)


def _unary(op: Callable[[Any], Any], dtype: str, shape: Sequence[int]) -> Any:
    x = _input(shape, dtype)
    return te.create_prim_func([x, op(x)])


def _with(shapes: Sequence[Any], op: Callable[..., Any]) -> Any:
    """A function of inputs given by (shape, dtype, name)."""
    inputs = [_input(*shape) for shape in shapes]
    return te.create_prim_func([*inputs, op(*inputs)])


# ---- products

Epilogue = Callable[[Any, list[Any]], Any]


def _bias(c: Any, inputs: list[Any]) -> Any:
    inputs.append(_input((c.shape[-1],), c.dtype, "bias"))
    bias = inputs[-1]
    return te.compute(c.shape, lambda *i: c(*i) + bias[i[-1]], name="biased")


def _residual(c: Any, inputs: list[Any]) -> Any:
    inputs.append(_input(c.shape, c.dtype, "R"))
    other = inputs[-1]
    return te.compute(c.shape, lambda *i: c(*i) + other(*i), name="added")


def _relu(c: Any, _: list[Any]) -> Any:
    return te.compute(c.shape, lambda *i: tir.max(c(*i), tir.const(0, c.dtype)), name="relu")


def _gelu_cast(c: Any, _: list[Any]) -> Any:
    def half(x: Any) -> Any:
        return x * tir.const(0.5, c.dtype) * (tir.const(1, c.dtype) + tir.erf(x * tir.const(0.70710678, c.dtype)))

    return te.compute(c.shape, lambda *i: half(c(*i)).astype("float16"), name="gelu")


def _turned(c: Any, _: list[Any]) -> Any:
    shape = (*c.shape[:-2], c.shape[-1], c.shape[-2])
    return te.compute(shape, lambda *i: c(*i[:-2], i[-1], i[-2]), name="turned")


def _weight(kind: str, shape: tuple[int, ...], trans_b: bool, dtype: str, inputs: list[Any]) -> Any:
    """The second operand, computed from what is stored: ``plain``, ``scaled`` bytes, four-bit ``packed``, ``cast``."""
    if kind == "plain":
        inputs.append(_input(shape, dtype, "B"))
        return inputs[-1]
    if kind == "cast":
        inputs.append(_input(shape, "float32", "B"))
        stored = inputs[-1]
        return te.compute(shape, lambda *i: stored(*i).astype(dtype), name="cast")
    column = -2 if trans_b else -1
    packed = kind == "packed"
    stored = _input((*shape[:-1], shape[-1] // 8) if packed else shape, "uint32" if packed else "int8", "B")
    scale = _input((shape[column],), dtype, "S")
    inputs += [stored, scale]

    def value(*i: Any) -> Any:
        if not packed:
            return stored(*i).astype(dtype) * scale[i[column]]
        word = stored(*i[:-1], i[-1] // 8) >> ((i[-1] % 8) * 4).astype("uint32")
        return ((word & tir.const(15, "uint32")).astype("int32") - 8).astype(dtype) * scale[i[column]]

    return te.compute(shape, value, name="unpacked")


def product(
    size: tuple[int, int, int], dtypes: tuple[str, str], trans: tuple[bool, bool] = (False, False),
    batch: tuple[int, ...] = (), epilogue: Sequence[Epilogue] = (), weight: str = "plain", masked: bool = False,
) -> Any:  # fmt: skip
    """``C = A B`` with operands transposed, computed first, or results changed afterwards."""
    (m, n, k), (dtype, out), (trans_a, trans_b) = size, dtypes, trans
    inputs = [_input((*batch, k, m) if trans_a else (*batch, m, k), dtype, "A")]
    b = _weight(weight, (*batch, n, k) if trans_b else (*batch, k, n), trans_b, dtype, inputs)
    a = inputs[0]
    if masked:
        whole = a
        a = te.compute(
            whole.shape, lambda *i: tir.Select(i[-1] <= i[-2], whole(*i), tir.const(0, dtype)), name="masked"
        )
    r = te.reduce_axis((0, k), name="r")

    def element(*i: Any) -> Any:
        left = a(*i[:-2], r, i[-2]) if trans_a else a(*i[:-2], i[-2], r)
        right = b(*i[:-2], i[-1], r) if trans_b else b(*i[:-2], r, i[-1])
        return te.sum(left.astype(out) * right.astype(out), axis=r)

    result = te.compute((*batch, m, n), element, name="C")
    for step in epilogue:
        result = step(result, inputs)
    return te.create_prim_func([*inputs, result])


def _products() -> None:
    sizes = {
        "nn": (64, 64, 64), "odd": (33, 50, 70), "prime": (17, 13, 31), "row": (1, 64, 64), "column": (64, 1, 64),
        "outer": (64, 64, 1), "one": (1, 1, 1), "skinny": (8, 128, 48), "tall": (200, 16, 16),
    }  # fmt: skip
    cases: dict[str, dict[str, Any]] = {name: {"size": size} for name, size in sizes.items()}
    small = (32, 32, 64)
    cases |= {
        "nt": {"size": (64, 32, 64), "trans": (False, True)}, "tn": {"size": (32, 64, 32), "trans": (True, False)},
        "tt": {"size": small, "trans": (True, True)}, "batch": {"size": (32, 32, 32), "batch": (3,)},
        "batch_nt": {"size": (20, 36, 24), "batch": (2,), "trans": (False, True)},
        "bias_relu": {"size": small, "epilogue": (_bias, _relu)}, "turned": {"size": small, "epilogue": (_turned,)},
        "residual": {"size": (40, 24, 32), "epilogue": (_bias, _residual)}, "masked": {"size": small, "masked": True},
    }  # fmt: skip
    floats = {
        "gelu": {"size": small, "epilogue": (_bias, _gelu_cast)}, "scaled": {"size": (32, 64, 64), "weight": "scaled"},
        "scaled_nt": {"size": (33, 48, 64), "weight": "scaled", "trans": (False, True)},
        "packed": {"size": small, "weight": "packed", "trans": (False, True)},
        "cast": {"size": small, "weight": "cast"},
    }  # fmt: skip
    for dtypes in TYPES:
        for name, options in (cases if dtypes[0] == "int8" else cases | floats).items():
            _add(f"product {dtypes[0]}", "_".join((name, *dtypes)), partial(product, dtypes=dtypes, **options))


# ---- convolutions and the other workloads of the testing module

_WORKLOADS: dict[str, tuple[str, tuple[int, ...]]] = {
    "c1d": ("conv1d_nlc", (1, 32, 16, 32, 3, 2, 1)), "c1d_odd": ("conv1d_nlc", (1, 17, 7, 13, 5, 1, 2)),
    "c2d": ("conv2d_nhwc", (1, 8, 8, 16, 32, 3, 1, 1)), "c2d_1x1": ("conv2d_nhwc", (1, 8, 8, 32, 32, 1, 1, 0)),
    "c2d_7x7": ("conv2d_nhwc", (1, 14, 14, 3, 16, 7, 2, 3)), "c2d_odd": ("conv2d_nhwc", (2, 9, 5, 7, 11, 3, 2, 1)),
    "c3d": ("conv3d_ndhwc", (1, 4, 4, 4, 16, 16, 3, 1, 1)), "grp": ("conv2d_nhwc", (1, 8, 8, 16, 32, 3, 2, 1, 1, 4)),
    "dil": ("conv2d_nhwc", (1, 10, 10, 16, 16, 3, 1, 1, 2)), "dep": ("depthwise_conv2d_nhwc", (1, 9, 9, 13, 3, 2, 1)),
    "t2d": ("conv2d_transpose_nhwc", (1, 4, 4, 16, 8, 4, 2, 1)), "nchw": ("conv2d_nchw", (1, 16, 8, 8, 16, 3, 3, 1, 1)),
    "cap": ("conv2d_capsule_nhwijc", (1, 6, 6, 4, 4, 3, 2, 1)), "cbr": ("conv2d_nhwc_bn_relu", (1, 8, 8, 16, 16, 3, 1, 1)),
    "tbg": ("transpose_batch_matmul", (1, 32, 2, 32)), "tbg_odd": ("transpose_batch_matmul", (2, 13, 3, 7)),
    "gmm": ("batch_matmul_nkkm", (3, 20, 36, 24)), "nrm": ("norm_bmn", (3, 17, 64)), "nrm_one": ("norm_bmn", (1, 1, 1)),
    "sfm": ("softmax_mn", (7, 13)), "sfm_row": ("softmax_mn", (1, 1000)), "sfm_column": ("softmax_mn", (300, 1)),
    "mxp": ("max_pool2d_nchw", (1, 8, 8, 4, 1)), "win": ("conv2d_winograd_nhwc", (1, 6, 6, 8, 8, 6)),
}  # fmt: skip


def _workload(name: str, arguments: tuple[int, ...], **dtypes: str) -> Any:
    with Target("nvidia/nvidia-a100"):
        return te.create_prim_func(getattr(te_workload, name)(*arguments, **dtypes))


def _workloads() -> None:
    for name, (function, arguments) in _WORKLOADS.items():
        typed = "in_dtype" in inspect.signature(getattr(te_workload, function)).parameters
        for dtype, out in TYPES if typed else (("float32", "float32"),):
            options = {"in_dtype": dtype, "out_dtype": out} if typed else {}
            _add(f"workload {dtype}", f"{name}_{dtype}_{out}", partial(_workload, function, arguments, **options))


# ---- rows, and what has no reduction


def _pairs(x: Any) -> Any:
    """Sums of numbers and of squares at once."""
    r = te.reduce_axis((0, x.shape[1]), name="r")
    pair = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda s, t: (tir.const(0, s), tir.const(0, t)), name="pair"
    )
    total, squares = te.compute(x.shape[:1], lambda i: pair((x[i, r], x[i, r] * x[i, r]), axis=r), name="sums")
    return te.compute(x.shape[:1], lambda i: squares[i] - total[i] * total[i], name="spread")


def _rows() -> None:
    shapes = [(4, 64), (7, 13), (1, 300), (33, 1), (1, 1), (257, 3)]
    for op in ("sum", "max", "prod", "argmax", "argmin", "all", "any"):
        dtype = "bool" if op in ("all", "any") else "float32"
        for axis, label in ((-1, "last"), (0, "first"), (None, "whole")):
            for shape in shapes if axis == -1 else shapes[1:5:3]:
                reduce = partial(getattr(topi, op), axis=axis)
                _add("reduction", f"{op}_{label}_{'x'.join(map(str, shape))}", partial(_unary, reduce, dtype, shape))
    for dtype in ("float16", "bfloat16", "int8"):
        _add("reduction", f"max_last_{dtype}", partial(_unary, partial(topi.max, axis=-1), dtype, (4, 96)))
    for shape in shapes:
        size = "x".join(map(str, shape))
        _add("rows", f"softmax_{size}", partial(_unary, partial(topi.nn.softmax, axis=-1), "float32", shape))
        _add("rows", f"spread_{size}", partial(_unary, _pairs, "float32", shape))
        row = ((shape[-1],), "float32", "G")
        _add("rows", f"rms_norm_{size}", partial(_with, [(shape,), row], lambda x, g: topi.nn.rms_norm(x, g, [1])))
        norm = lambda x, g, b: topi.nn.layer_norm(x, g, b, [1])
        _add("rows", f"layer_norm_{size}", partial(_with, [(shape,), row, (*row[:2], "B")], norm))


def _others() -> None:
    unary: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        "number": ((), topi.exp), "long": ((100003,), topi.exp), "chain": ((100, 3), lambda x: topi.nn.relu(topi.exp(x))),
        "pad": ((13, 17), lambda x: topi.nn.pad(x, [1, 2], [0, 3])), "flip": ((6, 7), lambda x: topi.flip(x, 1)),
        "transpose": ((5, 16, 33), lambda x: topi.transpose(x, [2, 0, 1])), "tile": ((4, 5), lambda x: topi.tile(x, (2, 3))),
        "slice": ((10, 16), lambda x: topi.strided_slice(x, [1, 2], [9, 15], [2, 3])),
        "reshape": ((8, 15), lambda x: topi.reshape(x, (12, 10))), "cast": ((40, 5), lambda x: topi.cast(x, "int8")),
        "resize": ((1, 2, 4, 4), lambda x: topi.image.resize2d(x, [0.0] * 4, (8, 6), layout="NCHW", method="linear")),
        "average": ((1, 4, 9, 9), lambda x: topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1] * 4, "avg")),
        "largest": ((2, 8, 8, 3), lambda x: topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "max", layout="NHWC")),
        "global": ((1, 16, 7, 7), lambda x: topi.nn.global_pool(x, "avg")),
    }  # fmt: skip
    for name, (shape, op) in unary.items():
        _add("injective", name, partial(_unary, op, "float32", shape))
    places = ((7,), "int32", "I")
    _add("injective", "take", partial(_with, [((10, 12),), places], lambda x, i: topi.take(x, i, axis=0, mode="clip")))
    _add("injective", "spread_out", partial(_with, [((3, 1, 7),), ((5, 1), "float32", "Y")], topi.add))
    _add(
        "injective",
        "joined",
        partial(_with, [((3, 5),), ((3, 9), "float32", "Y")], lambda x, y: topi.concatenate([x, y], 1)),
    )
    _add("injective", "constant", lambda: te.create_prim_func([topi.full((4, 5), "float32", 3.0)]))


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = topi.nn.batch_matmul(q, k, transpose_b=True, out_dtype="float32")
    shares = topi.cast(topi.nn.softmax(scores, -1), "float16")
    return topi.nn.batch_matmul(shares, v, transpose_b=False, out_dtype="float32")


def _chains() -> None:
    heads = [((2, 16, 16), "float16", name) for name in "QKV"]
    _add("chain float16", "attention", partial(_with, heads, _attention))
    layers = [((16, 32), "float16", "X"), ((32, 64), "float16", "V"), ((64, 32), "float16", "W")]
    forward = lambda x, v, w: topi.nn.matmul(topi.nn.relu(topi.nn.matmul(x, v)), w)
    _add("chain float16", "two_layers", partial(_with, layers, forward))
    pair = [((8, 16),), ((16, 32), "float32", "Y")]
    _add("chain", "product_softmax", partial(_with, pair, lambda x, y: topi.nn.softmax(topi.nn.matmul(x, y), -1)))
    _add("chain", "product_sum", partial(_with, pair, lambda x, y: topi.sum(topi.nn.matmul(x, y), -1)))


for _fill in (_products, _workloads, _rows, _others, _chains):
    _fill()
