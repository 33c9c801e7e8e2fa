"""Random calls of each ONNX operator; the names in :data:`~.onnx_operators.OPERATORS`."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import onnx_window_table  # noqa: F401  (windows, products and normalisations)
from .onnx_operators import FLOATS, INTS, NUMBERS, Draw, OperatorCase, register

# ---- element-wise


def _attributes(d: Draw, **ranges: tuple[float, float]) -> dict[str, Any]:
    return {k: d.real(*r) for k, r in ranges.items() if d.chance(0.7)}


def _unary(names: str, dtypes: tuple[str, ...], wide: float = 2.0, **ranges: tuple[float, float]) -> None:
    for name in names.split():

        @register(name)
        def make(d: Draw, name: str = name) -> OperatorCase:
            x = d.values(d.shape(), d.pick(dtypes), wide=wide)
            # Attributes are numbers of single precision.
            rtol = 1e-6 if ranges else None
            return OperatorCase(name, [x], _attributes(d, **ranges), opset=d.pick([13, 18, 22]), rtol=rtol)


_unary("Relu Abs Neg Sign", (*FLOATS, "int32", "int64", "int8"))
_unary("Exp Sqrt Log Sigmoid Tanh Softplus Softsign Reciprocal", FLOATS)
_unary("Erf", ("float32", "float32", "float16"))  # no judge computes it in double precision
_unary("Floor Ceil Round", FLOATS, wide=5.0)
_unary("Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh", ("float32", "float32", "float64"))
_unary("Identity", (*NUMBERS, "bool", "uint8"))
_unary("IsNaN", FLOATS)
_unary("Not", ("bool",))
_unary("BitwiseNot", INTS)
_unary("Elu LeakyRelu ThresholdedRelu", FLOATS, alpha=(-2, 3))
_unary("Celu", ("float32",), alpha=(0.2, 3))
_unary("Selu", FLOATS, alpha=(0.5, 3), gamma=(0.5, 3))
_unary("HardSigmoid", FLOATS, alpha=(0.1, 1), beta=(0, 1))
_unary("HardSwish Mish", ("float32", "float32", "float16"))
_unary("Shrink", ("float32", "int8", "float64"), lambd=(0, 2), bias=(-1, 1))
_unary("Size Shape", (*NUMBERS, "bool"))


@register("IsInf")
def _is_inf(d: Draw) -> OperatorCase:
    attrs = {f"detect_{side}": d.integer(0, 1) for side in ("positive", "negative") if d.chance(0.7)}
    return OperatorCase("IsInf", [d.values(d.shape(), d.pick(["float32", "float64"]))], attrs, opset=20)


@register("Gelu")
def _gelu(d: Draw) -> OperatorCase:
    attrs = {"approximate": d.pick(["none", "tanh"])} if d.chance(0.7) else {}
    x = d.values(d.shape(), d.pick(["float32", "float16"]))
    return OperatorCase("Gelu", [np.where(np.isinf(x), x.dtype.type(1), x)], attrs, opset=20)


@register("Shape-range")
def _shape_range(d: Draw) -> OperatorCase:
    x = d.values(d.shape(), "float32")
    attrs = {k: d.integer(-5, 5) for k in ("start", "end") if d.chance(0.7)}
    return OperatorCase("Shape", [x], attrs)


def _binary(names: str, dtypes: tuple[str, ...], opsets: tuple[int, ...] = (13, 18), nonzero: bool = False) -> None:
    for name in names.split():

        @register(name)
        def make(d: Draw, name: str = name) -> OperatorCase:
            left, right = d.pair()
            dtype = d.pick(dtypes)
            a, b = d.values(left, dtype), d.values(right, dtype)
            if nonzero and not dtype.startswith("float"):
                # Division of the least number by -1 has no result either.
                b = np.where((b == 0) | (b == -1 if not dtype.startswith("uint") else False), b.dtype.type(3), b)
            weights = d.stored(1) if d.chance(0.3) else set()
            return OperatorCase(name, [a, np.asarray(b, dtype)], opset=d.pick(opsets), weights=weights)


_binary("Add Sub Mul", (*NUMBERS, "int8", "uint8"), (14, 18))
_binary("Div", (*NUMBERS, "int8", "uint8"), (14, 18), nonzero=True)
_binary("Less LessOrEqual Greater GreaterOrEqual", (*NUMBERS, "uint8"), (16, 18))
_binary("Equal", (*NUMBERS, "bool"))
_binary("And Or Xor", ("bool",))
_binary("BitwiseAnd BitwiseOr BitwiseXor", INTS, (18,))


@register("PRelu")
def _prelu(d: Draw) -> OperatorCase:
    opset = d.pick([6, 9, 16])
    shape = d.shape(1)
    dtype = d.pick(["float32", "float32", "float64"])
    if opset == 6:
        while len(shape) > 2 and shape[-1] in (1, shape[1]):
            shape[-1] += 1  # or the reference would take the slopes for the last axis'
        slope = [shape[1]] if len(shape) > 1 and d.chance(0.8) else [1]
    else:
        slope = d.broadcast(shape)
    return OperatorCase("PRelu", [d.values(shape, dtype), d.values(slope, dtype)], opset=opset, weights=d.stored(1))


@register("Mod")
def _mod(d: Draw) -> OperatorCase:
    left, right = d.pair()
    dtype = d.pick([*NUMBERS, "int8", "uint8"])
    fmod = 1 if dtype.startswith("float") else d.integer(0, 1)
    a, b = d.values(left, dtype), d.values(right, dtype)
    if not dtype.startswith("float"):
        b = np.where((b == 0) | (b.astype("int64") == -1), b.dtype.type(3), b).astype(dtype)
    return OperatorCase("Mod", [a, b], {"fmod": fmod}, opset=13)


@register("BitShift")
def _bit_shift(d: Draw) -> OperatorCase:
    left, right = d.pair()
    dtype = d.pick(["uint8", "uint32", "uint64", "uint16"])
    bits = np.iinfo(dtype).bits
    count = np.asarray(d.rng.integers(0, bits + (bits // 2 if d.chance(0.4) else 0), right)).astype(dtype)
    return OperatorCase("BitShift", [d.values(left, dtype), count], {"direction": d.pick(["LEFT", "RIGHT"])}, opset=11)


@register("Pow")
def _pow(d: Draw) -> OperatorCase:
    left, right = d.pair()
    dtype = d.pick(["float32", "float32", "float64", "int32", "int64"])
    power = d.pick([dtype, dtype, "int64", "float32"])
    if dtype.startswith("int"):
        base = np.asarray(d.rng.integers(-9, 10, left)).astype(dtype)
        exponent = np.asarray(d.rng.integers(0, 6, right)).astype(dtype if power.startswith("float") else power)
    else:
        base = d.values(left, dtype)
        exponent = d.values(right, power)
        exponent = np.clip(exponent, -5, 5).astype(power) if power.startswith("int") else exponent
    return OperatorCase("Pow", [base, exponent], opset=15, weights=d.stored(1) if d.chance(0.5) else set(), rtol=1e-4)


def _variadic(name: str, dtypes: tuple[str, ...]) -> None:
    @register(name)
    def make(d: Draw) -> OperatorCase:
        shape, dtype = d.shape(), d.pick(dtypes)
        inputs = [d.values(d.broadcast(shape), dtype) for _ in range(d.integer(1, 4))]
        return OperatorCase(name, inputs, opset=13)


for _name in ("Max", "Min"):
    _variadic(_name, (*NUMBERS, "int8", "uint8"))
for _name in ("Sum", "Mean"):
    _variadic(_name, FLOATS)


@register("Clip")
def _clip(d: Draw) -> OperatorCase:
    dtype = d.pick([*NUMBERS, "int8", "uint8"])
    low, high = (np.asarray(d.values([], dtype)) if d.chance(0.75) else None for _ in range(2))
    x = d.values(d.shape(), dtype)
    if d.chance(0.25) and dtype == "float32":
        attrs = {k: float(v) for k, v in (("min", low), ("max", high)) if v is not None and np.isfinite(v)}
        return OperatorCase("Clip", [x], attrs, opset=6)
    return OperatorCase("Clip", [x, low, high], opset=13, weights=d.stored(1, 2))


@register("Where")
def _where(d: Draw) -> OperatorCase:
    shape, dtype = d.shape(), d.pick([*NUMBERS, "bool", "uint8"])
    inputs = [d.values(d.broadcast(shape), t) for t in ("bool", dtype, dtype)]
    return OperatorCase("Where", inputs, opset=16)


@register("Cast")
def _cast(d: Draw) -> OperatorCase:
    import onnx

    source, target = (
        d.pick(["float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool"]) for _ in "ab"
    )
    x = d.values(d.shape(), source, special=0.15 if target.startswith("float") or target == "bool" else 0.0, wide=3.0)
    if not target.startswith("float") and source.startswith("float") and np.dtype(target).kind == "u":
        x = np.abs(x)  # negative numbers as unsigned ones are nobody's business
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return OperatorCase("Cast", [x], {"to": code}, opset=13)


# ---- reductions


def _reduce(names: str, dtypes: tuple[str, ...], since: int, rtol: float | None = None) -> None:
    """``since``: the opset from which on axes are an input."""
    for name in names.split():

        @register(name)
        def make(d: Draw, name: str = name) -> OperatorCase:
            shape, dtype = d.shape(), d.pick(dtypes)
            axes = d.axes(len(shape))
            attrs: dict[str, Any] = {"keepdims": d.integer(0, 1)} if d.chance(0.8) else {}
            by_input = d.chance(0.7)
            inputs: list[Any] = [d.values(shape, dtype)]
            weights: set[int] = set()
            if by_input:
                if d.chance(0.4):
                    attrs["noop_with_empty_axes"] = d.integer(0, 1)
                if d.chance(0.8):
                    inputs.append(np.array(axes, "int64"))
                    weights = {1}
            elif axes and d.chance(0.8):
                attrs["axes"] = axes
            opset = max(since, 18) if by_input else since - 1
            return OperatorCase(name, inputs, attrs, opset=opset, weights=weights, rtol=rtol, atol=1e-5)


_reduce("ReduceSum", (*FLOATS, "int32", "int64"), 13, 1e-4)
_reduce("ReduceMax ReduceMin", (*FLOATS, "int32", "int64", "int8", "uint8"), 18)
_reduce("ReduceMean ReduceL1 ReduceL2 ReduceSumSquare", (*FLOATS, "int32"), 18, 1e-4)
_reduce("ReduceProd", ("float32", "float64", "int32", "int64"), 18, 1e-4)
_reduce("ReduceLogSum ReduceLogSumExp", ("float32", "float64"), 18, 1e-4)


for _name in ("ArgMax", "ArgMin"):

    @register(_name)
    def _arg(d: Draw, name: str = _name) -> OperatorCase:
        shape = d.shape(1, empty=0.0)
        attrs: dict[str, Any] = {k: d.integer(0, 1) for k in ("keepdims", "select_last_index") if d.chance(0.6)}
        if d.chance(0.8):
            attrs["axis"] = d.axis(len(shape))
        return OperatorCase(
            name, [d.values(shape, d.pick(["float32", "float64", "int32", "int8", "uint8"]))], attrs, opset=13
        )


for _name in ("Softmax", "LogSoftmax", "Hardmax"):

    @register(_name)
    def _softmax(d: Draw, name: str = _name) -> OperatorCase:
        shape = d.shape(1)
        attrs = {"axis": d.axis(len(shape))} if d.chance(0.8) else {}
        opset = d.pick([11, 13, 18]) if "axis" in attrs or len(shape) > 1 else 13
        dtype = d.pick(FLOATS) if name != "Hardmax" else "float32"
        return OperatorCase(name, [d.values(shape, dtype, special=0.05, nan=name != "Hardmax")], attrs, opset=opset)


@register("CumSum")
def _cumsum(d: Draw) -> OperatorCase:
    shape = d.shape(1)
    attrs = {k: d.integer(0, 1) for k in ("exclusive", "reverse") if d.chance(0.6)}
    x = d.values(shape, d.pick(["float32", "float64", "int32", "int64"]))
    axis = np.array(d.axis(len(shape)), d.pick(["int32", "int64"]))
    return OperatorCase("CumSum", [x, axis], attrs, opset=14, weights={1}, rtol=1e-4, atol=1e-5)


@register("TopK")
def _topk(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    axis = d.axis(len(shape))
    k = d.integer(1, shape[axis])
    attrs = {"axis": axis, "largest": d.integer(0, 1), "sorted": 1}
    x = d.values(shape, d.pick(["float32", "float64", "int32", "int64"]), special=0.0)
    return OperatorCase("TopK", [x, np.array([k], "int64")], attrs, outputs=2, opset=11, weights={1})


@register("NonZero")
def _nonzero(d: Draw) -> OperatorCase:
    return OperatorCase("NonZero", [d.values(d.shape(1), d.pick(["float32", "int32", "int64", "bool"]))], opset=13)


@register("Unique")
def _unique(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    attrs: dict[str, Any] = {"sorted": 1 if d.chance(0.7) else 0}
    if d.chance(0.6):
        attrs["axis"] = d.axis(len(shape))
    x = np.asarray(d.rng.integers(0, 3, shape)).astype(d.pick(["float32", "int64", "int8", "float64"]))
    return OperatorCase("Unique", [x], attrs, outputs=d.integer(1, 4), opset=11)


# ---- shapes


@register("Reshape")
def _reshape(d: Draw) -> OperatorCase:
    shape = d.shape()
    total = int(np.prod(shape))
    dims = _factors(d, total) if total else [d.pick([0, *shape]) for _ in shape]
    attrs: dict[str, Any] = {}
    if total == 0:
        attrs["allowzero"] = 1
        if int(np.prod(dims)) != 0 or not dims:
            dims = [0, *dims]
    elif dims:
        place = d.integer(0, len(dims) - 1)
        if place < len(shape) and dims[place] == shape[place] and d.chance(0.5):
            dims[place] = 0
        elif d.chance(0.5):
            dims[place] = -1
    weights = d.stored(1)
    return OperatorCase("Reshape", [d.values(shape, d.pick(NUMBERS)), np.array(dims, "int64")], attrs, weights=weights)


def _factors(d: Draw, total: int) -> list[int]:
    """Sizes whose product is ``total``."""
    dims: list[int] = []
    while total > 1 and len(dims) < 3:
        options = [k for k in range(1, total + 1) if total % k == 0]
        dims.append(int(d.pick(options)))
        total //= dims[-1]
    if total > 1 or d.chance(0.3):
        dims.append(total)
    return dims


@register("Flatten")
def _flatten(d: Draw) -> OperatorCase:
    shape = d.shape()
    attrs = {"axis": d.integer(-len(shape), len(shape))} if d.chance(0.8) or len(shape) < 1 else {}
    return OperatorCase("Flatten", [d.values(shape, d.pick(NUMBERS))], attrs, opset=13)


@register("Transpose")
def _transpose(d: Draw) -> OperatorCase:
    shape = d.shape()
    attrs = {"perm": [int(p) for p in d.rng.permutation(len(shape))]} if shape and d.chance(0.8) else {}
    return OperatorCase("Transpose", [d.values(shape, d.pick([*NUMBERS, "bool"]))], attrs, opset=13)


@register("Unsqueeze")
def _unsqueeze(d: Draw) -> OperatorCase:
    shape = d.shape(0, 3)
    count = d.integer(1, 2)
    rank = len(shape) + count
    axes = [int(a) - rank if d.chance(0.4) else int(a) for a in d.rng.permutation(rank)[:count]]
    x = d.values(shape, d.pick(NUMBERS))
    if d.chance(0.3):
        return OperatorCase("Unsqueeze", [x], {"axes": axes}, opset=11)
    return OperatorCase("Unsqueeze", [x, np.array(axes, "int64")], opset=13, weights={1})


@register("Squeeze")
def _squeeze(d: Draw) -> OperatorCase:
    shape = d.shape()
    ones = [k for k, s in enumerate(shape) if s == 1]
    axes = [k - len(shape) if d.chance(0.4) else k for k in ones if d.chance(0.7)]
    x = d.values(shape, d.pick(NUMBERS))
    if not axes or d.chance(0.2):
        return OperatorCase("Squeeze", [x], opset=13)
    if d.chance(0.3):
        return OperatorCase("Squeeze", [x], {"axes": axes}, opset=11)
    return OperatorCase("Squeeze", [x, np.array(axes, "int64")], opset=13, weights={1})


@register("Expand")
def _expand(d: Draw) -> OperatorCase:
    left, right = d.pair()
    weights = d.stored(1)
    return OperatorCase(
        "Expand", [d.values(left, d.pick(NUMBERS)), np.array(right, "int64")], opset=13, weights=weights
    )


@register("Tile")
def _tile(d: Draw) -> OperatorCase:
    shape = d.shape()
    repeats = [d.pick([0, 1, 1, 2, 3]) if d.chance(0.3) else d.integer(1, 3) for _ in shape]
    return OperatorCase("Tile", [d.values(shape, d.pick(NUMBERS)), np.array(repeats, "int64")], opset=13, weights={1})


@register("Concat")
def _concat(d: Draw) -> OperatorCase:
    shape, dtype = d.shape(1), d.pick([*NUMBERS, "bool"])
    axis = d.axis(len(shape))
    inputs = []
    for _ in range(d.integer(1, 4)):
        dims = list(shape)
        dims[axis] = d.integer(0 if d.chance(0.2) else 1, 4)
        inputs.append(d.values(dims, dtype))
    return OperatorCase("Concat", inputs, {"axis": axis}, opset=13)


@register("Split")
def _split(d: Draw) -> OperatorCase:
    shape = d.shape(1)
    axis, count = d.axis(len(shape)), d.integer(1, 4)
    attrs: dict[str, Any] = {"axis": axis} if d.chance(0.9) else {}
    axis = axis if attrs else 0
    style = d.pick(["sizes", "equal", "count", "attribute"])
    sizes = [d.integer(0 if d.chance(0.2) else 1, 3) for _ in range(count)]
    if style in ("sizes", "attribute"):
        shape[axis] = sum(sizes)
    elif style == "equal":
        shape[axis] = count * d.integer(1, 3)
    else:
        shape[axis] = max(shape[axis], count)
        # As many parts of equal size as fill the axis, the last one smaller.
        while -(-shape[axis] // count) * (count - 1) >= shape[axis] > 0 and count > 1:
            count -= 1
    x = d.values(shape, d.pick(NUMBERS))
    if style == "sizes":
        return OperatorCase("Split", [x, np.array(sizes, "int64")], attrs, count, 13, weights={1})
    if style == "attribute":
        return OperatorCase("Split", [x], {**attrs, "split": sizes}, count, 11)
    if style == "count":
        return OperatorCase("Split", [x], {**attrs, "num_outputs": count}, count, 18)
    return OperatorCase("Split", [x], attrs, count, 13)


@register("Slice")
def _slice(d: Draw) -> OperatorCase:
    shape = d.shape(1)
    axes = d.axes(len(shape), 1)
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = shape[axis]
        far = d.pick([2**31 - 1, 2**63 - 1, -(2**31), -(2**63), 10000, -10000])
        starts.append(far if d.chance(0.1) else d.integer(-extent - 2, extent + 2))
        ends.append(far if d.chance(0.25) else d.integer(-extent - 2, extent + 2))
        steps.append(d.pick([1, 1, 1, 2, 3, -1, -2, -3, 7]))
    x = d.values(shape, d.pick([*NUMBERS, "bool"]))
    if d.chance(0.15):
        limit = 2**31 - 1
        attrs = {
            "starts": [max(-limit, min(limit, s)) for s in starts],
            "ends": [max(-limit, min(limit, e)) for e in ends],
            "axes": axes,
        }
        return OperatorCase("Slice", [x], attrs, opset=9)
    inputs: list[Any] = [x, np.array(starts, "int64"), np.array(ends, "int64"), np.array(axes, "int64")]
    if d.chance(0.8):
        inputs.append(np.array(steps, "int64"))
    return OperatorCase("Slice", inputs, opset=13, weights={1, 2, 3, 4})


@register("Pad")
def _pad(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    mode = d.pick(["constant", "constant", "reflect", "edge", "wrap"])
    dtype = d.pick(["float32", "float64", "int32", "int64"])
    axes = d.axes(len(shape), 1) if d.chance(0.4) else list(range(len(shape)))
    pads = []
    for _ in range(2):
        for axis in axes:
            extent = shape[axis]
            most = {"reflect": extent - 1, "wrap": extent}.get(mode, 3)
            least = -((extent - 1) // 2) if d.chance(0.25) else 0
            pads.append(d.integer(min(least, most), most))
    inputs: list[Any] = [d.values(shape, dtype), np.array(pads, "int64")]
    weights = {1, 2, 3}
    value = d.values([], dtype) if d.chance(0.7) and mode == "constant" else None
    inputs.append(value)
    if axes != list(range(len(shape))):
        inputs.append(np.array(axes, "int64"))
    return OperatorCase("Pad", inputs, {"mode": mode}, opset=19, weights=weights)


@register("DepthToSpace")
def _depth_to_space(d: Draw) -> OperatorCase:
    size = d.integer(1, 3)
    shape = [d.integer(1, 2), size * size * d.integer(1, 3), d.integer(1, 3), d.integer(1, 3)]
    attrs: dict[str, Any] = {"blocksize": size}
    if d.chance(0.7):
        attrs["mode"] = d.pick(["DCR", "CRD"])
    return OperatorCase("DepthToSpace", [d.values(shape, "float32")], attrs, opset=13)


@register("SpaceToDepth")
def _space_to_depth(d: Draw) -> OperatorCase:
    size = d.integer(1, 3)
    shape = [d.integer(1, 2), d.integer(1, 3), size * d.integer(1, 3), size * d.integer(1, 3)]
    return OperatorCase("SpaceToDepth", [d.values(shape, "float32")], {"blocksize": size}, opset=13)


@register("Trilu")
def _trilu(d: Draw) -> OperatorCase:
    shape = d.shape(2)
    inputs: list[Any] = [d.values(shape, d.pick(["float32", "int64", "float64"]))]
    if d.chance(0.7):
        inputs.append(np.array(d.integer(-4, 4), "int64"))
    attrs = {"upper": d.integer(0, 1)} if d.chance(0.7) else {}
    return OperatorCase("Trilu", inputs, attrs, opset=14, weights={1})


@register("EyeLike")
def _eye_like(d: Draw) -> OperatorCase:
    shape = [d.integer(1, 5), d.integer(1, 5)]
    attrs: dict[str, Any] = {"k": d.integer(-4, 4)} if d.chance(0.6) else {}
    if d.chance(0.5):
        attrs["dtype"] = d.pick([1, 6, 7, 11])
    return OperatorCase("EyeLike", [d.values(shape, d.pick(["float32", "int32", "int64"]))], attrs, opset=9)


@register("Range")
def _range(d: Draw) -> OperatorCase:
    dtype = d.pick(["float32", "int32", "int64", "float64"])
    step = d.pick([1, 2, 3, -1, -2]) if dtype.startswith("int") else d.pick([0.5, 1.0, 0.75, -0.25, 1.5])
    bounds = [d.integer(-9, 9) + (0.5 if dtype.startswith("float") and d.chance(0.5) else 0) for _ in "ab"]
    return OperatorCase("Range", [np.array(v, dtype) for v in (*bounds, step)], opset=11, weights={0, 1, 2})


@register("ConstantOfShape")
def _constant_of_shape(d: Draw) -> OperatorCase:
    import onnx

    value = np.asarray(d.values([1], d.pick(["float32", "int64", "int32", "bool", "float64"])))
    attrs = {"value": onnx.numpy_helper.from_array(value)} if d.chance(0.8) else {}
    return OperatorCase("ConstantOfShape", [np.array(d.shape(), "int64")], attrs, opset=9, weights={0})


# ---- indices


def _indices(d: Draw, shape: Any, extent: int) -> np.ndarray[Any, Any]:
    kind = d.pick(["int32", "int64"])
    low = -extent if d.chance(0.6) else 0
    return np.asarray(d.rng.integers(low, max(extent, low + 1), shape)).astype(kind)


@register("Gather")
def _gather(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    axis = d.axis(len(shape))
    where = _indices(d, d.shape(0, 2), shape[axis])
    weights = d.stored(1) if d.chance(0.4) else set()
    return OperatorCase("Gather", [d.values(shape, d.pick(NUMBERS)), where], {"axis": axis}, opset=13, weights=weights)


@register("GatherElements")
def _gather_elements(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    axis = d.axis(len(shape))
    where = [d.integer(1, s) for s in shape]
    where[axis] = d.integer(0 if d.chance(0.1) else 1, 5)
    inputs = [d.values(shape, d.pick(NUMBERS)), _indices(d, where, shape[axis])]
    return OperatorCase("GatherElements", inputs, {"axis": axis}, opset=13)


def _nd_indices(d: Draw, lead: list[int], extents: list[int]) -> np.ndarray[Any, Any]:
    columns = [np.asarray(d.rng.integers(-e if d.chance(0.6) else 0, e, lead)) for e in extents]
    return np.stack(columns, -1).astype("int64")


@register("GatherND")
def _gather_nd(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    batch = d.integer(0, min(1, len(shape) - 1))
    depth = d.integer(1, len(shape) - batch)
    lead = shape[:batch] + [d.integer(1, 3) for _ in range(d.integer(0, 2))]
    where = _nd_indices(d, lead, shape[batch : batch + depth])
    attrs = {"batch_dims": batch} if batch else {}
    return OperatorCase("GatherND", [d.values(shape, d.pick(NUMBERS)), where], attrs, opset=13)


@register("ScatterND")
def _scatter_nd(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    depth = d.integer(1, len(shape))
    reduction = d.pick(["none", "none", "add", "mul", "max", "min"])
    dtype = d.pick(["float32", "float64", "int32", "int64"])
    total = int(np.prod(shape[:depth]))
    count = d.integer(1, min(total, 4))
    if reduction == "none":  # Every place once: else it is anybody's guess which update stays.
        flat = d.rng.permutation(total)[:count]
        where = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype("int64")
        where = np.where(d.rng.random(where.shape) < 0.4, where - np.array(shape[:depth]), where)
    else:
        where = _nd_indices(d, [count], shape[:depth])
    updates = d.values([count, *shape[depth:]], dtype, special=0.05)
    attrs = {"reduction": reduction} if reduction != "none" or d.chance(0.3) else {}
    data = d.values(shape, dtype, special=0.05)
    return OperatorCase("ScatterND", [data, where.astype("int64"), updates], attrs, opset=18, rtol=1e-4)


for _name in ("ScatterElements", "Scatter"):

    @register(_name)
    def _scatter_elements(d: Draw, name: str = _name) -> OperatorCase:
        shape = d.shape(1, empty=0.0)
        axis = d.axis(len(shape))
        reduction = d.pick(["none", "none", "add", "mul", "max", "min"]) if name == "ScatterElements" else "none"
        dtype = d.pick(["float32", "float64", "int32", "int64"])
        part = [d.integer(1, s) for s in shape]
        at = np.argsort(d.rng.random([*part[:axis], shape[axis], *part[axis:][1:]]), axis) if axis >= 0 else None
        axis_from_start = axis % len(shape)
        if at is None:
            full = list(part)
            full[axis_from_start] = shape[axis_from_start]
            at = np.argsort(d.rng.random(full), axis_from_start)
        where = np.take(at, range(part[axis_from_start]), axis_from_start)
        if reduction != "none":
            where = np.asarray(d.rng.integers(0, shape[axis], part))
        where = np.where(d.rng.random(where.shape) < 0.4, where - shape[axis], where)
        updates = d.values(part, dtype, special=0.05)
        attrs: dict[str, Any] = {"axis": axis}
        if reduction != "none":
            attrs["reduction"] = reduction
        inputs = [d.values(shape, dtype, special=0.05), where.astype(d.pick(["int32", "int64"])), updates]
        return OperatorCase(name, inputs, attrs, opset=18 if name == "ScatterElements" else 9, rtol=1e-4)


@register("Compress")
def _compress(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    attrs = {"axis": d.axis(len(shape))} if d.chance(0.7) else {}
    extent = shape[attrs["axis"]] if attrs else int(np.prod(shape))
    keep = np.asarray(d.rng.random(d.integer(1, extent)) > 0.5)
    return OperatorCase("Compress", [d.values(shape, d.pick(NUMBERS)), keep], attrs, opset=11, weights={1})


@register("OneHot")
def _one_hot(d: Draw) -> OperatorCase:
    shape = d.shape(0, 3)
    depth = d.integer(1, 6)
    dtype = d.pick(["int64", "int32", "float32"])
    where = np.asarray(d.rng.integers(-depth - 2, depth + 2, shape)).astype(dtype)
    values = d.values([2], d.pick(["float32", "int64"]), special=0.0)
    attrs = {"axis": d.integer(-len(shape) - 1, len(shape))} if d.chance(0.8) else {}
    return OperatorCase("OneHot", [where, np.array(depth, "int64"), values], attrs, opset=11, weights={1, 2})
