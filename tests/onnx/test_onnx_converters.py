"""Every converter of the ONNX frontend, alone, against ONNX Runtime (or onnx.reference) on random inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import onnx.reference  # noqa: E402

from onnx_node import Case, ours, reference  # noqa: E402
from test_onnx_quantized import cases as quantized_cases  # noqa: E402
from test_onnx_transformers import cases as transformer_cases  # noqa: E402
from test_onnx_attention import cases as attention_cases  # noqa: E402
from test_onnx_classic import CLASSIC  # noqa: E402
from test_onnx_optional import OPTIONAL  # noqa: E402
from test_onnx_regions import cases as region_cases  # noqa: E402
from test_onnx_vision import cases as vision_cases  # noqa: E402

from relaxish.frontend.onnx import converters  # noqa: E402
from relaxish.frontend.onnx.context import CONVERTERS, table_name  # noqa: E402

_RNG = np.random.default_rng(5)


def f(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return np.asarray(_RNG.uniform(low, high, shape)).astype("float32")


def i(*values: int, dtype: str = "int64") -> np.ndarray:
    return np.array(values, dtype)


def b(*shape: int) -> np.ndarray:
    return _RNG.random(shape) > 0.5


def ints(*shape: int, low: int = -9, high: int = 9, dtype: str = "int32") -> np.ndarray:
    return _RNG.integers(low, high, shape).astype(dtype)


def check(case: Case) -> None:
    model, feeds = case.model(), case.feeds()
    want = reference(model, feeds)
    got = ours(model, feeds)
    flat = [v for w in want for v in (w if isinstance(w, list) else [w])]
    assert len(got) == len(flat)
    for have, expected in zip(got, flat):
        expected = np.asarray(expected)
        assert have.shape == expected.shape
        assert have.dtype == expected.dtype
        np.testing.assert_allclose(have, expected, rtol=case.rtol, atol=1e-5)


_UNARY: dict[str, Any] = {
    "Log": (0.1, 3), "Exp": (-2, 2), "Acos": (-0.9, 0.9), "Acosh": (1.1, 3), "Asin": (-0.9, 0.9), "Asinh": (-2, 2),
    "Atan": (-2, 2), "Atanh": (-0.9, 0.9), "Cos": (-2, 2), "Cosh": (-2, 2), "Sin": (-2, 2), "Sinh": (-2, 2),
    "Tan": (-1, 1), "Tanh": (-2, 2), "Neg": (-2, 2), "Abs": (-2, 2), "Reciprocal": (0.5, 2), "Floor": (-5, 5),
    "Ceil": (-5, 5), "Round": (-5, 5), "Sqrt": (0.1, 3), "Relu": (-2, 2), "Sigmoid": (-3, 3), "Softplus": (-3, 3),
    "Softsign": (-3, 3), "Erf": (-2, 2), "Sign": (-2, 2), "Identity": (-1, 1), "Selu": (-2, 2), "Elu": (-2, 2),
    "HardSigmoid": (-4, 4), "HardSwish": (-4, 4), "LeakyRelu": (-2, 2), "ThresholdedRelu": (-2, 2), "Mish": (-3, 3),
    "Shrink": (-2, 2), "Softmax": (-2, 2), "LogSoftmax": (-2, 2), "Hardmax": (-2, 2), "GlobalAveragePool": (-1, 1),
    "GlobalMaxPool": (-1, 1), "GlobalLpPool": (-1, 1), "MeanVarianceNormalization": (-1, 1),
    "LpNormalization": (-1, 1), "IsNaN": (-1, 1), "IsInf": (-1, 1), "Flatten": (-1, 1), "Shape": (-1, 1),
    "Size": (-1, 1), "Transpose": (-1, 1), "Squeeze": (-1, 1), "Trilu": (-1, 1), "Dropout": (-1, 1),
    "ReduceMax": (-1, 1), "ReduceMin": (-1, 1), "ReduceSum": (-1, 1), "ReduceMean": (-1, 1), "ReduceProd": (-1, 1),
    "ReduceLogSumExp": (-1, 1), "ReduceLogSum": (0.5, 1), "ReduceSumSquare": (-1, 1), "ReduceL1": (-1, 1),
    "ReduceL2": (-1, 1), "ArgMax": (-1, 1), "ArgMin": (-1, 1),
}  # fmt: skip
_BINARY = ["Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Pow", "PRelu"]
_AXES = ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceLogSumExp", "ReduceL1", "ReduceL2",
         "ReduceLogSum", "ReduceSumSquare"]  # fmt: skip


def unary_cases() -> dict[str, Case]:
    return {name: Case(name, [f(2, 3, 4, 5, low=a, high=c)]) for name, (a, c) in _UNARY.items()}


def elementwise_cases() -> dict[str, Case]:
    made = {name: Case(name, [f(2, 3, 4, low=0.5, high=2), f(3, 1, low=0.5, high=2)]) for name in _BINARY}
    made |= {f"{n}-bool": Case(n, [b(2, 3), b(3)]) for n in ("And", "Or", "Xor")}
    made |= {
        f"{n}-int": Case(n, [ints(2, 3, low=1), ints(3, low=1)]) for n in ("Add", "Sub", "Mul", "Div", "Equal", "Less")
    }
    made |= {n: Case(n, [ints(2, 3, low=0), ints(3, low=0)]) for n in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")}
    made["Not"] = Case("Not", [b(2, 3)])
    made["BitwiseNot"] = Case("BitwiseNot", [ints(2, 3)])
    for way in ("LEFT", "RIGHT"):
        shift = [ints(2, 3, low=0, dtype="uint32"), ints(2, 3, low=0, high=5, dtype="uint32")]
        made[f"BitShift-{way}"] = Case("BitShift", shift, direction=way)
    made["Mod"] = Case("Mod", [ints(4, 5), ints(5, low=1)])
    made["Mod-fmod"] = Case("Mod", [f(4, 5, low=-5, high=5), f(5, low=0.5)], fmod=1)
    made |= {n: Case(n, [f(2, 3), f(3), f(2, 1)]) for n in ("Sum", "Mean", "Min", "Max")}
    made["Cast"] = Case("Cast", [f(2, 3, low=-3, high=3)], to=onnx.TensorProto.INT32)
    made["Cast-bool"] = Case("Cast", [ints(2, 3, low=-1, high=2)], to=onnx.TensorProto.BOOL)
    made["Clip"] = Case("Clip", [f(3, 4), f(low=-0.5, high=-0.4), f(low=0.4, high=0.5)], weights=[1, 2])
    made["Clip-6"] = Case("Clip", [f(3, 4)], opset=6, min=-0.3, max=0.2)
    made["Clip-low"] = Case("Clip", [f(3, 4), f(low=-0.5, high=-0.4)])
    made["Where"] = Case("Where", [b(2, 3), f(2, 3), f(3)])
    made["Gelu"] = Case("Gelu", [f(2, 3)], opset=20)
    made["Gelu-tanh"] = Case("Gelu", [f(2, 3)], opset=20, approximate="tanh")
    made["FastGelu"] = Case("FastGelu", [f(2, 3)], domain="com.microsoft", rtol=1e-3)
    made["Gelu-contributed"] = Case("Gelu", [f(2, 3)], domain="com.microsoft")
    made["Celu"] = Case("Celu", [f(3, 4)], alpha=0.7)
    made["CastLike"] = Case("CastLike", [f(2, 3, low=-3, high=3), ints(2)])
    made["BiasGelu"] = Case("BiasGelu", [f(2, 3), f(3)], domain="com.microsoft")
    made["Softmax-11"] = Case("Softmax", [f(2, 3, 4)], opset=11, axis=1)
    made["LogSoftmax-axis"] = Case("LogSoftmax", [f(2, 3, 4)], axis=1)
    made["Hardmax-11"] = Case("Hardmax", [f(3, 4)], opset=11, axis=1)
    made["IsInf-positive"] = Case("IsInf", [np.array([1, np.inf, -np.inf], "float32")], detect_negative=0)
    made["Elu-alpha"] = Case("Elu", [f(3, 4)], alpha=0.7)
    return made


def reduction_cases() -> dict[str, Case]:
    made = {f"{n}-axes": Case(n, [f(2, 3, 4, low=0.3)], opset=13, axes=[0, 2], keepdims=0) for n in _AXES}
    made |= {f"{n}-18": Case(n, [f(2, 3, 4, low=0.3), i(1)], weights=[1], keepdims=1) for n in _AXES}
    made["ReduceSum-input"] = Case("ReduceSum", [f(2, 3, 4), i(-1)], weights=[1], keepdims=0)
    made["ReduceSum-noop"] = Case("ReduceSum", [f(2, 3)], noop_with_empty_axes=1)
    made["ArgMax-last"] = Case("ArgMax", [ints(3, 4).astype("float32")], axis=1, keepdims=0, select_last_index=1)
    made["ArgMin-axis"] = Case("ArgMin", [f(3, 4)], axis=-1, keepdims=0)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            case = Case("CumSum", [f(3, 4), i(1).reshape(())], [1], exclusive=exclusive, reverse=reverse)
            made[f"CumSum-{exclusive}{reverse}"] = case
    made["TopK"] = Case("TopK", [f(3, 6), i(2)], [1], outputs=2)
    made["TopK-smallest"] = Case("TopK", [f(6, 3), i(4)], [1], outputs=2, axis=0, largest=0)
    return made


def shape_cases() -> dict[str, Case]:
    x = f(2, 3, 4)
    made = {
        "Reshape": Case("Reshape", [x, i(0, -1, 2)], [1]),
        "Reshape-allowzero": Case("Reshape", [f(0, 3), i(3, 0)], [1], allowzero=1),
        "Reshape-allowzero-inferred": Case("Reshape", [f(4, 3), i(2, -1)], [1], allowzero=1),
        "Transpose-perm": Case("Transpose", [x], perm=[1, 2, 0]),
        "Unsqueeze": Case("Unsqueeze", [x, i(0, -1)], [1]),
        "Unsqueeze-11": Case("Unsqueeze", [x], opset=11, axes=[1]),
        "Squeeze-axes": Case("Squeeze", [f(1, 3, 1), i(0)], [1]),
        "Squeeze-11": Case("Squeeze", [f(1, 3, 1)], opset=11, axes=[2]),
        "Concat": Case("Concat", [x, f(2, 1, 4), x], axis=1),
        "Split": Case("Split", [x, i(1, 2)], [1], outputs=2, axis=1),
        "Split-even": Case("Split", [x], outputs=2, axis=2, num_outputs=2),
        "Split-uneven": Case("Split", [f(7)], outputs=3, num_outputs=3),
        "Split-11": Case("Split", [x], outputs=2, opset=11, axis=1, split=[2, 1]),
        "Tile": Case("Tile", [x, i(1, 2, 3)], [1]),
        "Expand": Case("Expand", [f(3, 1), i(2, 1, 6)], [1]),
        "Flatten-axis": Case("Flatten", [x], axis=-1),
        "Slice": Case("Slice", [x, i(0, -3), i(2, 100), i(1, 2), i(1, 2)], [1, 2, 3, 4]),
        "Slice-back": Case("Slice", [x, i(-1), i(-100), i(2), i(-1)], [1, 2, 3, 4]),
        "Slice-1": Case("Slice", [x], opset=1, starts=[0, 1], ends=[1, -1], axes=[0, 2]),
        "Pad": Case("Pad", [x, i(0, 1, 2, 1, 0, 3), f()], [1, 2]),
        "Pad-reflect": Case("Pad", [x, i(0, 1, 2, 0, 2, 1)], [1], mode="reflect"),
        "Pad-edge": Case("Pad", [x, i(0, 1, 2, 1, 0, 3)], [1], mode="edge"),
        "Pad-wrap": Case("Pad", [x, i(0, 1, 2, 1, 0, 3)], [1], mode="wrap", opset=19),
        "Pad-crop": Case("Pad", [x, i(0, -1, 2, 0, 1, -2)], [1]),
        "Pad-axes": Case("Pad", [x, i(1, 2), None, i(2)], [1, 3]),
        "Pad-2": Case("Pad", [x], opset=2, pads=[0, 1, 0, 0, 0, 2], value=1.5),
        "DepthToSpace": Case("DepthToSpace", [f(1, 8, 2, 3)], blocksize=2),
        "DepthToSpace-crd": Case("DepthToSpace", [f(1, 8, 2, 3)], blocksize=2, mode="CRD"),
        "SpaceToDepth": Case("SpaceToDepth", [f(1, 2, 4, 6)], blocksize=2),
        "Shape-part": Case("Shape", [x], start=1, end=-1, opset=15),
        "ConstantOfShape": Case("ConstantOfShape", [i(2, 3)], [0],
                                value=onnx.numpy_helper.from_array(np.array([7], "int32"))),
        "Range": Case("Range", [i(1).reshape(()), i(9).reshape(()), i(2).reshape(())], [0, 1, 2]),
        "EyeLike": Case("EyeLike", [f(3, 4)], k=1),
        "Trilu-lower": Case("Trilu", [f(4, 4), i(1).reshape(())], [1], upper=0),
        "Constant": Case("Constant", [], value=onnx.numpy_helper.from_array(np.array([1.5, 2], "float32"))),
    }  # fmt: skip
    return made


def indexing_cases() -> dict[str, Case]:
    x = f(4, 5)
    made = {
        "Gather": Case("Gather", [x, i(0, -1, 2)], axis=1),
        "Gather-matrix": Case("Gather", [x, np.array([[0, 1], [3, -2]])], [1]),
        "GatherElements": Case("GatherElements", [x, np.array([[0, -1], [1, 2]])], axis=1),
        "GatherND": Case("GatherND", [x, np.array([[0, 1], [3, 4]])]),
        "GatherND-batch": Case("GatherND", [f(2, 3, 4), np.array([[1], [2]])], batch_dims=1),
        "Scatter": Case("Scatter", [x, np.array([[0, 1], [2, 3]]), f(2, 2)], opset=9, axis=1),
        "ScatterElements": Case("ScatterElements", [x, np.array([[0, 1], [2, 3]]), f(2, 2)], axis=1),
        "ScatterND": Case("ScatterND", [x, np.array([[0, 1], [3, 4]]), f(2)]),
        "ScatterND-rows": Case("ScatterND", [x, np.array([[0], [3]]), f(2, 5)], reduction="add"),
        "Compress": Case("Compress", [x, np.array([True, False, True])], [1], axis=0),
        "Compress-flat": Case("Compress", [x, np.array([True, False, True])], [1]),
        "OneHot": Case("OneHot", [i(0, 2, -1), i(4), np.array([0.5, 2], "float32")], [1, 2]),
        "OneHot-axis": Case("OneHot", [i(0, 2), i(3), i(0, 1)], [1, 2], axis=0),
        "NonZero": Case("NonZero", [ints(3, 4, low=-1, high=2)]),
        "Unique": Case("Unique", [ints(9, low=0, high=4).astype("float32")], outputs=4),
        "Unique-axis": Case("Unique", [ints(4, 2, low=0, high=2).astype("float32")], axis=0),
    }
    for kind in ("add", "mul", "max", "min"):
        made[f"ScatterElements-{kind}"] = Case(
            "ScatterElements", [x, np.array([[0, 0], [2, 2]]), f(2, 2)], axis=1, reduction=kind
        )
    return made


def linear_cases() -> dict[str, Case]:
    return {
        "MatMul": Case("MatMul", [f(2, 3, 4), f(4, 5)]),
        "MatMul-vector": Case("MatMul", [f(4), f(2, 4, 3)]),
        "Gemm": Case("Gemm", [f(3, 4), f(5, 4), f(5)], transB=1, alpha=0.5, beta=2.0),
        "Gemm-transA": Case("Gemm", [f(4, 3), f(4, 5)], transA=1),
        "Einsum": Case("Einsum", [f(2, 3, 4), f(2, 4, 5)], equation="bij,bjk->bik"),
        "Einsum-sum": Case("Einsum", [f(3, 4)], equation="ij->j"),
        "MatMulInteger": Case(
            "MatMulInteger", [ints(3, 4, low=0, dtype="uint8"), ints(4, 2, low=0, dtype="uint8"), np.array(3, "uint8")]
        ),
    }


def window_cases() -> dict[str, Case]:
    x, w = f(1, 4, 9, 8), f(6, 4, 3, 3)
    made = {
        "Conv": Case("Conv", [x, w, f(6)], [1, 2], pads=[1, 1, 1, 1]),
        "Conv-1d": Case("Conv", [f(2, 3, 9), f(4, 3, 3)], strides=[2], dilations=[2]),
        "Conv-3d": Case("Conv", [f(1, 2, 5, 6, 7), f(3, 2, 2, 3, 3)], pads=[0, 1, 1, 0, 1, 1]),
        "Conv-group": Case("Conv", [x, f(6, 2, 3, 3)], group=2, strides=[2, 1]),
        "ConvTranspose": Case("ConvTranspose", [f(1, 3, 4, 5), f(3, 2, 3, 3), f(2)], strides=[2, 2], pads=[1, 1, 1, 1],
                              output_padding=[1, 1]),
        "ConvTranspose-1d": Case("ConvTranspose", [f(1, 3, 5), f(3, 2, 3)], strides=[2]),
        "ConvTranspose-shape": Case("ConvTranspose", [f(1, 3, 4, 4), f(3, 2, 3, 3)], strides=[2, 2],
                                    output_shape=[9, 9]),
        "MaxPool": Case("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "MaxPool-ceil": Case("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        "MaxPool-1d": Case("MaxPool", [f(1, 3, 9)], kernel_shape=[2], strides=[2]),
        "MaxPool-3d": Case("MaxPool", [f(1, 2, 5, 6, 7)], kernel_shape=[2, 2, 2]),
        "MaxPool-dilated": Case("MaxPool", [x], kernel_shape=[2, 2], dilations=[2, 2]),
        "AveragePool": Case("AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "AveragePool-include": Case("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        "AveragePool-1d": Case("AveragePool", [f(1, 3, 9)], kernel_shape=[2]),
        "LpPool": Case("LpPool", [x], kernel_shape=[2, 2], strides=[2, 2], p=2),
        "MaxUnpool": Case("MaxUnpool", [f(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])], kernel_shape=[2, 2],
                          strides=[2, 2]),
        "BatchNormalization": Case("BatchNormalization", [x, f(4), f(4), f(4), f(4, low=0.5)], [1, 2, 3, 4]),
        "InstanceNormalization": Case("InstanceNormalization", [x, f(4), f(4)]),
        "LayerNormalization": Case("LayerNormalization", [f(2, 3, 4), f(4), f(4)]),
        "LayerNormalization-axis": Case("LayerNormalization", [f(2, 3, 4), f(3, 4)], axis=1),
        "LRN": Case("LRN", [x], size=3),
        "Resize": Case("Resize", [x, None, np.array([1, 1, 2, 2], "float32")], [2]),
        "Resize-linear": Case("Resize", [x, None, None, i(1, 4, 5, 7)], [3], mode="linear"),
        "Resize-cubic": Case("Resize", [x, None, None, i(1, 4, 18, 16)], [3], mode="cubic", rtol=1e-3),
        "Resize-corners": Case("Resize", [x, None, None, i(1, 4, 18, 16)], [3], mode="linear",
                               coordinate_transformation_mode="align_corners"),
        "Resize-10": Case("Resize", [x, np.array([1, 1, 2, 2], "float32")], [1], opset=10),
        "Upsample": Case("Upsample", [x, np.array([1, 1, 2, 2], "float32")], [1], opset=9),
    }  # fmt: skip
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        made[f"Conv-{pad}"] = Case("Conv", [x, w], auto_pad=pad, strides=[2, 2])
        made[f"AveragePool-{pad}"] = Case("AveragePool", [x], kernel_shape=[3, 3], auto_pad=pad, strides=[2, 2])
    return made


def contributed_cases() -> dict[str, Case]:
    ms = {"domain": "com.microsoft"}
    return {
        "SkipLayerNormalization": Case("SkipLayerNormalization", [f(2, 3, 4), f(2, 3, 4), f(4), f(4), f(4)], **ms),
        "EmbedLayerNormalization": Case(
            "EmbedLayerNormalization",
            [ints(2, 3, low=0, high=6), ints(2, 3, low=0, high=2), f(6, 4), f(3, 4), f(2, 4), f(4), f(4)],
            [2, 3, 4, 5, 6],
            outputs=2,
            **ms,
        ),
        "Attention": Case("Attention", [f(2, 3, 8), f(8, 24), f(24)], [1, 2], num_heads=2, **ms),
        "QuantizeLinear": Case("QuantizeLinear", [f(3, 4), f(low=0.01, high=0.02), np.array(3, "uint8")], [1, 2]),
        "DequantizeLinear": Case(
            "DequantizeLinear", [ints(3, 4, low=0, dtype="uint8"), f(low=0.01, high=0.02), np.array(3, "uint8")], [1, 2]
        ),
    }


CASES = {
    **unary_cases(), **elementwise_cases(), **reduction_cases(), **shape_cases(), **indexing_cases(), **linear_cases(),
    **window_cases(), **contributed_cases(),
}  # fmt: skip


# Compiling takes a quarter of a second each: by default every fourth.
_SOME = [n if k % 4 == 0 else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(CASES)]


@pytest.mark.parametrize("name", _SOME)
@pytest.mark.filterwarnings("ignore")
def test_converter(name: str) -> None:
    check(CASES[name])


def sequence_model(nodes: list[Any], outputs: int = 1) -> Any:
    helper = onnx.helper
    infos = [helper.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, [2, 4]) for k in range(2)]
    inits = [onnx.numpy_helper.from_array(np.array(v, "int64"), n) for n, v in (("zero", 0), ("last", -1), ("two", 2))]
    outs = [onnx.ValueInfoProto(name=f"y{k}") for k in range(outputs)]
    graph = helper.make_graph(nodes, "g", infos, outs, inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


_SEQUENCES: dict[str, list[tuple[str, list[str], str, dict[str, Any]]]] = {
    "construct-at": [("SequenceConstruct", ["x0", "x1"], "s", {}), ("SequenceAt", ["s", "last"], "y0", {})],
    "insert-erase-concat": [
        ("SequenceEmpty", [], "e", {}), ("SequenceInsert", ["e", "x0"], "a", {}),
        ("SequenceInsert", ["a", "x1", "zero"], "b", {}), ("SequenceInsert", ["b", "x1"], "c", {}),
        ("SequenceErase", ["c", "last"], "d", {}), ("ConcatFromSequence", ["d"], "y0", {"axis": 1}),
    ],
    "split-length": [("SplitToSequence", ["x0", "two"], "s", {"axis": 1}), ("SequenceLength", ["s"], "y0", {})],
    "stack": [("SequenceConstruct", ["x0", "x1"], "s", {}),
              ("ConcatFromSequence", ["s"], "y0", {"axis": 0, "new_axis": 1})],
}  # fmt: skip


@pytest.mark.parametrize("name", _SEQUENCES)
@pytest.mark.filterwarnings("ignore")
def test_sequences(name: str) -> None:
    nodes = [onnx.helper.make_node(op, ins, [out], **attrs) for op, ins, out, attrs in _SEQUENCES[name]]
    model = sequence_model(nodes)
    feeds = {"x0": f(2, 4), "x1": f(2, 4)}
    want = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    for have, expected in zip(ours(model, feeds), want):
        np.testing.assert_allclose(have, expected, rtol=1e-5)


_OPTIMISERS = ("Adagrad", "Adam", "Momentum")


def test_every_converter_has_a_case() -> None:
    assert converters.__all__ and len(CONVERTERS) > 200  # the package fills the table when it is imported
    seen = {table_name(case.op, case.domain) for case in CASES.values()}
    seen |= {op for chain in _SEQUENCES.values() for op, *_ in chain}
    seen |= {"If", "Loop", "Scan", "RNN", "GRU", "LSTM"}  # test_onnx_control_flow, test_onnx_recurrent
    seen |= {"com.microsoft.QuantizeLinear", "com.microsoft.DequantizeLinear"}  # the standard's own
    others = quantized_cases() | transformer_cases() | vision_cases() | region_cases() | attention_cases()
    seen |= {table_name(case.op, case.domain) for case in others.values()}
    seen |= {"com.microsoft.DynamicQuantizeLSTM"}  # test_onnx_transformers
    seen |= {"DFT", "STFT", "MelWeightMatrix"}  # test_onnx_signal
    seen |= {"Bernoulli", "Multinomial", "RandomNormal", "RandomUniform", "RandomUniformLike", "RandomNormalLike"}
    seen |= {f"ai.onnx.ml.{name}" for name in CLASSIC} | OPTIONAL
    # test_onnx_standard_bodies
    seen |= {"AffineGrid", "TfIdfVectorizer"} | {f"ai.onnx.preview.training.{name}" for name in _OPTIMISERS}
    assert sorted(set(CONVERTERS) - seen) == []
