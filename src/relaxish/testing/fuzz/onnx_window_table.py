"""Random calls of ONNX operators over windows, products, normalisations and quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .onnx_operators import FLOATS, Draw, OperatorCase, register


def _window(d: Draw, n: int, sizes: list[int], dilated: bool = True) -> dict[str, Any]:
    """Attributes of a window over ``n`` axes of ``sizes``, of at least one output each."""
    dilations = [d.pick([1, 1, 2]) if dilated else 1 for _ in range(n)]
    kernel = [d.integer(1, min(4, 1 + (s - 1) // e)) for s, e in zip(sizes, dilations)]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if d.chance(0.7):
        attrs["strides"] = [d.integer(1, 3) for _ in range(n)]
    if dilated and d.chance(0.5):
        attrs["dilations"] = dilations
    style = d.pick(["none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if style == "pads":
        attrs["pads"] = [d.integer(0, k - 1) for k in kernel * 2]
    elif style != "none":
        attrs["auto_pad"] = style
        if style.startswith("SAME"):
            attrs.pop("dilations", None)
            # A stride beyond the window would need less than no padding, which every runtime takes differently.
            if "strides" in attrs:
                attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], kernel)]
    return attrs


def _spatial(d: Draw) -> tuple[int, list[int]]:
    n = d.pick([1, 2, 2, 3])
    return n, [d.integer(1, 8 if n < 3 else 5) for _ in range(n)]


@register("MaxPool")
def _max_pool(d: Draw) -> OperatorCase:
    n, sizes = _spatial(d)
    attrs = _window(d, n, sizes)
    if d.chance(0.3):
        attrs["ceil_mode"] = 1
    shape = [d.integer(1, 2), d.integer(1, 3), *sizes]
    # Of NaN in a window, ONNX Runtime sees none, torch does, and so do we.
    x = d.values(shape, d.pick(["float32", "float32", "float64", "int8", "uint8"]), special=0.3, nan=False)
    return OperatorCase("MaxPool", [x], attrs, opset=12)


@register("AveragePool")
def _average_pool(d: Draw) -> OperatorCase:
    n, sizes = _spatial(d)
    attrs = _window(d, n, sizes)
    if d.chance(0.5):
        attrs["count_include_pad"] = d.integer(0, 1)
    if d.chance(0.3):
        attrs["ceil_mode"] = 1
    shape = [d.integer(1, 2), d.integer(1, 3), *sizes]
    return OperatorCase("AveragePool", [d.values(shape, "float32")], attrs, opset=19)


@register("LpPool")
def _lp_pool(d: Draw) -> OperatorCase:
    n, sizes = _spatial(d)
    attrs = _window(d, n, sizes)
    attrs["p"] = d.integer(1, 3)
    shape = [d.integer(1, 2), d.integer(1, 3), *sizes]
    return OperatorCase("LpPool", [d.values(shape, "float32")], attrs, opset=18, rtol=1e-4)


for _name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):

    @register(_name)
    def _global(d: Draw, name: str = _name) -> OperatorCase:
        _, sizes = _spatial(d)
        attrs = {"p": d.integer(1, 3)} if name == "GlobalLpPool" and d.chance(0.7) else {}
        x = d.values([d.integer(1, 2), d.integer(1, 3), *sizes], "float32", nan=name != "GlobalMaxPool")
        return OperatorCase(name, [x], attrs, opset=13, rtol=1e-4)


@register("Conv")
def _conv(d: Draw) -> OperatorCase:
    n, sizes = _spatial(d)
    attrs = _window(d, n, sizes)
    groups, per = d.pick([1, 1, 2, 3]), d.integer(1, 3)
    channels = groups * d.integer(1, 3)
    if groups > 1:
        attrs["group"] = groups
    weight = d.values([groups * per, channels // groups, *attrs["kernel_shape"]], "float32", special=0.0)
    if d.chance(0.4):
        attrs.pop("kernel_shape")
    inputs: list[Any] = [d.values([d.integer(1, 2), channels, *sizes], "float32", special=0.02), weight]
    if d.chance(0.5):
        inputs.append(d.values([groups * per], "float32", special=0.0))
    return OperatorCase("Conv", inputs, attrs, opset=11, weights=d.stored(1, 2), rtol=1e-4, atol=1e-4)


@register("ConvTranspose")
def _conv_transpose(d: Draw) -> OperatorCase:
    n = d.pick([1, 2, 2])
    sizes = [d.integer(1, 5) for _ in range(n)]
    groups, per = d.pick([1, 1, 2]), d.integer(1, 3)
    channels = groups * d.integer(1, 2)
    kernel, strides, dilations = ([d.integer(1, 3) for _ in range(n)] for _ in range(3))
    attrs: dict[str, Any] = {"strides": strides, "group": groups}
    if d.chance(0.4):
        attrs["dilations"] = dilations
    else:
        dilations = [1] * n
    spans = [s * (i - 1) + (k - 1) * e + 1 for s, i, k, e in zip(strides, sizes, kernel, dilations)]
    style = d.pick(["none", "pads", "extra", "shape", "SAME_UPPER", "SAME_LOWER"])
    if style in ("pads", "extra"):
        attrs["pads"] = [d.integer(0, min(k - 1, (span - 1) // 2)) for k, span in zip(kernel * 2, spans * 2)]
    if style == "extra":
        attrs["output_padding"] = [d.integer(0, s - 1) for s in strides]
    elif style == "shape":
        attrs["output_shape"] = [max(1, span + d.integer(-1, s - 1)) for span, s in zip(spans, strides)]
    elif style.startswith("SAME"):
        attrs["auto_pad"] = style
    inputs: list[Any] = [
        d.values([d.integer(1, 2), channels, *sizes], "float32", special=0.0),
        d.values([channels, per, *kernel], "float32", special=0.0),
    ]
    if d.chance(0.5):
        inputs.append(d.values([groups * per], "float32", special=0.0))
    return OperatorCase("ConvTranspose", inputs, attrs, opset=11, weights=d.stored(1, 2), rtol=1e-4, atol=1e-4)


# ---- products


@register("MatMul")
def _matmul(d: Draw) -> OperatorCase:
    m, k, n = (d.integer(0 if d.chance(0.05) else 1, 9) for _ in range(3))
    lead = d.shape(0, 2, empty=0.0)
    left, right = [*d.broadcast(lead), m, k], [*d.broadcast(lead), k, n]
    if d.chance(0.2):
        left = [k]
    if d.chance(0.2):
        right = [k]
    dtype = d.pick(["float32", "float32", "float64", "int32", "int64", "float16"])
    inputs = [d.values(s, dtype, special=0.02) for s in (left, right)]
    return OperatorCase(
        "MatMul", inputs, opset=13, weights=d.stored(1) if d.chance(0.4) else set(), rtol=1e-4, atol=1e-4
    )


@register("Gemm")
def _gemm(d: Draw) -> OperatorCase:
    m, k, n = (d.integer(1, 9) for _ in range(3))
    attrs: dict[str, Any] = {name: d.integer(0, 1) for name in ("transA", "transB") if d.chance(0.6)}
    attrs |= {name: d.real(-2, 2) for name in ("alpha", "beta") if d.chance(0.6)}
    a = d.values([k, m] if attrs.get("transA") else [m, k], "float32", special=0.02)
    b = d.values([n, k] if attrs.get("transB") else [k, n], "float32", special=0.02)
    inputs: list[Any] = [a, b]
    if d.chance(0.7):
        inputs.append(d.values(d.broadcast([m, n]), "float32", special=0.02))
    return OperatorCase("Gemm", inputs, attrs, opset=13, weights=d.stored(1, 2), rtol=1e-4, atol=1e-4)


@register("Einsum")
def _einsum(d: Draw) -> OperatorCase:
    equation, count = d.pick([
        ("ij,jk->ik", 2), ("bij,bjk->bik", 2), ("ij->ji", 1), ("ij->", 1), ("ij->j", 1), ("i,j->ij", 2), ("i,i->", 2),
        ("...ij,...jk->...ik", 2), ("bhid,bhjd->bhij", 2), ("ij,kj", 2), ("bij,jk->bik", 2), ("ij,ij->i", 2),
    ])  # fmt: skip
    sizes = {letter: d.integer(1, 5) for letter in "bhijkd"}
    terms = equation.split("->")[0].split(",")
    inputs = []
    for term in terms:
        lead = [2, 3] if "..." in term else []
        inputs.append(d.values(lead + [sizes[c] for c in term if c.isalpha()], "float32", special=0.0))
    assert len(inputs) == count
    return OperatorCase("Einsum", inputs, {"equation": equation}, opset=12, rtol=1e-4, atol=1e-4)


@register("MatMulInteger")
def _matmul_integer(d: Draw) -> OperatorCase:
    m, k, n = (d.integer(1, 9) for _ in range(3))
    kinds = [d.pick(["int8", "uint8"]) for _ in range(2)]
    inputs: list[Any] = [d.values([m, k], kinds[0]), d.values([k, n], kinds[1])]
    if d.chance(0.6):
        inputs += [d.values([], kinds[0]), d.values([] if d.chance(0.5) else [n], kinds[1])]
    return OperatorCase("MatMulInteger", inputs, opset=10)


# ---- normalisations


@register("BatchNormalization")
def _batch_norm(d: Draw) -> OperatorCase:
    shape = [d.integer(1, 3), d.integer(1, 4), *(d.integer(1, 4) for _ in range(d.integer(0, 3)))]
    c = shape[1]
    attrs: dict[str, Any] = {
        k: d.real(*r) for k, r in (("epsilon", (1e-5, 0.1)), ("momentum", (0.1, 0.95))) if d.chance(0.6)
    }
    inputs: list[Any] = [d.values(shape, "float32", special=0.02)]
    inputs += [d.values([c], "float32", special=0.0) for _ in range(3)]
    inputs.append(np.abs(d.values([c], "float32", special=0.0)) + np.float32(0.1))
    training = d.chance(0.5)
    if training:
        attrs["training_mode"] = 1
    weights = {1, 2, 3, 4} if d.chance(0.7) and not training else set()
    outputs = d.pick([1, 3]) if training else 1
    return OperatorCase("BatchNormalization", inputs, attrs, outputs, 15, weights=weights, rtol=1e-3, atol=1e-4)


@register("LayerNormalization")
def _layer_norm(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    axis = d.axis(len(shape))
    inner = shape[axis % len(shape) :]
    inputs: list[Any] = [d.values(shape, "float32", special=0.02), d.values(inner, "float32", special=0.0)]
    if d.chance(0.6):
        inputs.append(d.values(inner, "float32", special=0.0))
    attrs: dict[str, Any] = {"axis": axis}
    if d.chance(0.5):
        attrs["epsilon"] = d.real(1e-5, 0.1)
    return OperatorCase("LayerNormalization", inputs, attrs, d.pick([1, 1, 2, 3]), 17, rtol=1e-3, atol=1e-3)


@register("InstanceNormalization")
def _instance_norm(d: Draw) -> OperatorCase:
    _, sizes = _spatial(d)
    c = d.integer(1, 4)
    inputs: list[Any] = [d.values([d.integer(1, 3), c, *sizes], "float32", special=0.0)]
    inputs += [d.values([c], "float32", special=0.0) for _ in range(2)]
    attrs = {"epsilon": d.real(1e-3, 0.1)} if d.chance(0.7) else {}
    return OperatorCase("InstanceNormalization", inputs, attrs, opset=6, rtol=1e-3, atol=1e-3)


@register("MeanVarianceNormalization")
def _mean_variance(d: Draw) -> OperatorCase:
    shape = [d.integer(1, 4) for _ in range(4)]
    attrs = {"axes": sorted(a % 4 for a in d.axes(4, 1))} if d.chance(0.7) else {}
    # Equal elements deviate by nothing but rounding, of which the division would make anything.
    x = np.asarray(d.rng.normal(0, 2, shape), "float32")
    return OperatorCase("MeanVarianceNormalization", [x], attrs, opset=13, rtol=1e-3, atol=1e-3)


@register("LpNormalization")
def _lp_norm(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    attrs: dict[str, Any] = {"axis": d.axis(len(shape))} if d.chance(0.8) else {}
    if d.chance(0.8):
        attrs["p"] = d.integer(1, 2)
    x = d.values(shape, d.pick(["float32", "float64"]), special=0.0)
    if d.chance(0.3):
        x = x * np.asarray(0, x.dtype)
    return OperatorCase("LpNormalization", [x], attrs, opset=d.pick([1, 22]))


@register("LRN")
def _lrn(d: Draw) -> OperatorCase:
    shape = [d.integer(1, 2), d.integer(1, 6), *(d.integer(1, 4) for _ in range(2))]
    attrs: dict[str, Any] = {"size": d.pick([1, 3, 5])}
    attrs |= {k: d.real(*r) for k, r in (("alpha", (1e-4, 1)), ("beta", (0.3, 1)), ("bias", (0.5, 2))) if d.chance(0.6)}
    return OperatorCase("LRN", [d.values(shape, "float32", special=0.0)], attrs, opset=13, rtol=1e-4)


# ---- quantisation and resampling


@register("QuantizeLinear")
def _quantize(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    kind = d.pick(["int8", "uint8"])
    axis = d.axis(len(shape))
    side = [] if d.chance(0.5) else [shape[axis]]
    scale = (np.abs(d.values(side, "float32", special=0.0)) + np.float32(0.25)).astype("float32")
    x = np.asarray(d.values(shape, "float32", special=0.0) * np.float32(d.pick([1, 5, 60])), "float32")
    inputs: list[Any] = [x, scale]
    if d.chance(0.7):
        inputs.append(d.values(side, kind))
    attrs = {"axis": axis} if side else {}
    return OperatorCase("QuantizeLinear", inputs, attrs, opset=13, weights=d.stored(1, 2))


@register("DequantizeLinear")
def _dequantize(d: Draw) -> OperatorCase:
    shape = d.shape(1, empty=0.0)
    kind = d.pick(["int8", "uint8", "int32"])
    axis = d.axis(len(shape))
    side = [] if d.chance(0.5) else [shape[axis]]
    inputs: list[Any] = [d.values(shape, kind), d.values(side, "float32", special=0.0)]
    if d.chance(0.7) and kind != "int32":
        inputs.append(d.values(side, kind))
    attrs = {"axis": axis} if side else {}
    return OperatorCase("DequantizeLinear", inputs, attrs, opset=13, weights=d.stored(1, 2))


@register("Resize")
def _resize(d: Draw) -> OperatorCase:
    sizes = [d.integer(2, 6) for _ in range(2)]
    shape = [d.integer(1, 2), d.integer(1, 3), *sizes]
    mode = d.pick(["nearest", "linear", "cubic"])
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": d.pick(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    }
    if mode == "cubic" and d.chance(0.3):
        attrs["exclude_outside"] = 1
    if mode == "nearest":
        attrs["nearest_mode"] = d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    x = d.values(shape, "float32", special=0.0)
    if d.chance(0.5):
        scales = np.array([1, 1, *(d.pick([0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0]) for _ in range(2))], "float32")
        return OperatorCase("Resize", [x, None, scales], attrs, opset=13, weights={2}, rtol=1e-3, atol=1e-3)
    target = np.array([*shape[:2], d.integer(1, 9), d.integer(1, 9)], "int64")
    return OperatorCase("Resize", [x, None, None, target], attrs, opset=13, weights={3}, rtol=1e-3, atol=1e-3)


@register("Dropout")
def _dropout(d: Draw) -> OperatorCase:
    return OperatorCase("Dropout", [d.values(d.shape(), d.pick(FLOATS))], outputs=d.integer(1, 2), opset=13)
