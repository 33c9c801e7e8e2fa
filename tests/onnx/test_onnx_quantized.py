"""Quantised operators of the standard and of ONNX Runtime, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours, reference

_rng = np.random.default_rng(41)
_OWN = "com.microsoft"


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def scales(*shape: int) -> np.ndarray:
    return np.asarray(_rng.uniform(0.01, 0.05, shape), "float32")


def u8(*shape: int) -> np.ndarray:
    return np.asarray(_rng.integers(0, 256, shape), "uint8")


def s8(*shape: int) -> np.ndarray:
    return np.asarray(_rng.integers(-128, 128, shape), "int8")


def i32(*shape: int) -> np.ndarray:
    return np.asarray(_rng.integers(-500, 500, shape), "int32")


def zero(kind: str, *shape: int) -> np.ndarray:
    return np.zeros(shape, kind)


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}

    def add(name: str, op: str, inputs: list[Any], fed: int = 1, **attrs: Any) -> None:
        """All inputs but the first ``fed`` are constants."""
        weights = [k for k, x in enumerate(inputs) if k >= fed and x is not None]
        made[name] = Case(op, inputs, weights, **attrs)

    some, coarse, out = scales(), scales(), np.array(0.3, "float32")
    add("conv integer", "ConvInteger", [u8(1, 3, 8, 8), s8(4, 3, 3, 3), u8()], opset=10, pads=[1, 1, 1, 1])
    add("both zero points", "ConvInteger", [u8(1, 3, 8, 8), u8(4, 3, 3, 3), u8(), u8()], opset=10)
    add("conv", "QLinearConv", [u8(1, 3, 8, 8), some, u8(), s8(4, 3, 3, 3), coarse, zero("int8"), out, u8()], opset=10,
        pads=[1, 1, 1, 1])  # fmt: skip
    add("conv by channel", "QLinearConv", [u8(1, 4, 8, 8), some, u8(), s8(4, 2, 3, 3), scales(4), zero("int8", 4), out,
        u8(), i32(4)], opset=10, strides=[2, 2], group=2)  # fmt: skip
    add("conv 1-d", "QLinearConv", [s8(1, 3, 9), some, s8(), s8(4, 3, 3), coarse, zero("int8"), out, s8()], opset=10)
    add("matmul", "QLinearMatMul", [u8(5, 7), some, u8(), u8(7, 6), coarse, u8(), out, u8()], opset=10)
    add(
        "batched matmul",
        "QLinearMatMul",
        [s8(2, 5, 7), some, s8(), s8(7, 6), coarse, zero("int8"), out, s8()],
        opset=10,
    )
    add("matmul integer", "MatMulInteger", [u8(5, 7), s8(7, 6), u8(), s8()], 2, opset=10)
    add("zero points of columns", "MatMulInteger", [u8(5, 7), s8(7, 6), u8(), s8(6)], 2, opset=10)
    far = np.array(200, "uint8")
    narrow = np.asarray(_rng.integers(100, 156, (7, 6)), "uint8")
    add("weights around 128", "MatMulInteger", [u8(5, 7), narrow, u8(), np.array(128, "uint8")], opset=10)
    add("weights far from zero", "MatMulInteger", [u8(3, 5, 7), u8(7, 6), u8(), far], opset=10)
    add("given zero points", "MatMulInteger", [s8(3, 5, 7), s8(3, 7, 6), s8(), s8()], 4, opset=10)
    add("given columns", "MatMulInteger", [u8(5, 7), u8(7, 6), u8(), u8(6)], 4, opset=10)
    add("vectors", "MatMulInteger", [u8(7), s8(7, 6), u8(), s8()], 4, opset=10)
    add("given zero of an image", "ConvInteger", [u8(2, 3, 8, 9), s8(4, 3, 3, 3), u8()], 3, opset=10,
        pads=[1, 0, 2, 1], strides=[2, 1])  # fmt: skip
    add("image of signed numbers", "ConvInteger", [s8(1, 4, 9, 9), s8(4, 2, 3, 3), s8()], opset=10, group=2,
        auto_pad="SAME_UPPER", dilations=[2, 1])  # fmt: skip
    add("kernel far from zero", "ConvInteger", [u8(1, 3, 8, 8), u8(4, 3, 3, 3), u8(), far], opset=10,
        pads=[1, 1, 1, 1])  # fmt: skip
    add("kernel around 128", "QLinearConv", [u8(1, 3, 8, 8), some, u8(), np.asarray(narrow[:4, :3, None], "uint8"),
        coarse, np.array(128, "uint8"), out, u8()], opset=10)  # fmt: skip
    made["kernel around 128"].inputs[0] = u8(1, 3, 8)
    add("quantise by range", "DynamicQuantizeLinear", [f(5, 7)], opset=11, outputs=3)
    add("of zeros", "DynamicQuantizeLinear", [zero("float32", 5, 7)], opset=11, outputs=3)
    add("of negatives", "DynamicQuantizeLinear", [-np.abs(f(5, 7)) - 1], opset=11, outputs=3)
    add("quantise", "QuantizeLinear", [f(5, 7), some, u8()], opset=13)
    add("quantise by column", "QuantizeLinear", [f(5, 7), scales(7), u8(7)], opset=13, axis=1)
    add("quantise by block", "QuantizeLinear", [f(6, 8), scales(3, 8), u8(3, 8)], opset=21, axis=0, block_size=2)
    add("dequantise", "DequantizeLinear", [u8(6, 8), some, u8()], opset=13)
    add("dequantise by block", "DequantizeLinear", [u8(6, 8), scales(6, 3), u8(6, 3)], opset=21, axis=1, block_size=3)
    pair = [u8(5, 7), some, u8(), u8(5, 7), coarse, u8(), out, u8()]
    add("add", "QLinearAdd", pair, domain=_OWN)
    add("mul", "QLinearMul", [*pair[:3], u8(7), *pair[4:]], domain=_OWN)
    add("sigmoid", "QLinearSigmoid", [*pair[:3], np.array(1 / 256, "float32"), zero("uint8")], domain=_OWN)
    add("softmax", "QLinearSoftmax", [*pair[:3], np.array(1 / 256, "float32"), zero("uint8")], domain=_OWN, axis=-1)
    made["softmax"].attrs["opset"] = 13
    add("leaky relu", "QLinearLeakyRelu", [*pair[:3], coarse, u8()], domain=_OWN, alpha=0.2)
    add("mean", "QLinearGlobalAveragePool", [u8(2, 3, 4, 5), some, u8(), coarse, u8()], domain=_OWN)
    add("concat", "QLinearConcat", [out, u8(), u8(5, 7), some, u8(), u8(5, 3), coarse, u8()], 0, domain=_OWN, axis=1)
    made["concat"].weights -= {2, 5}
    gemm = [u8(5, 7), some, u8(), s8(6, 7), coarse, zero("int8"), i32(6)]
    add("gemm", "QGemm", [*gemm, out, u8()], domain=_OWN, transB=1)
    add("gemm to numbers", "QGemm", [*gemm[:3], s8(7, 6), *gemm[4:]], domain=_OWN)
    add("to numbers", "MatMulIntegerToFloat", [u8(5, 7), s8(7, 6), some, coarse, u8(), s8(), f(6)], domain=_OWN)
    add("by range", "DynamicQuantizeMatMul", [f(5, 7), s8(7, 6), coarse, s8(), f(6)], domain=_OWN)
    add("4 bits", "MatMulNBits", [f(3, 64), u8(5, 2, 16), scales(10)], domain=_OWN, K=64, N=5, bits=4, block_size=32)
    add("4 bits with zero points", "MatMulNBits", [f(3, 96), u8(5, 3, 16), scales(15), u8(10)], domain=_OWN, K=96, N=5,
        bits=4, block_size=32)  # fmt: skip
    add("8 bits", "MatMulNBits", [f(3, 64), u8(5, 2, 32), scales(10)], domain=_OWN, K=64, N=5, bits=8, block_size=32)
    return made


_CASES = cases()
_SOME = [n if k % 3 == 0 else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(_CASES)]


@pytest.mark.parametrize("name", _SOME)
@pytest.mark.filterwarnings("ignore")
def test_operator(name: str) -> None:
    model, feeds = _CASES[name].model(), _CASES[name].feeds()
    for have, want in zip(ours(model, feeds), reference(model, feeds), strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        if np.issubdtype(want.dtype, np.integer):
            # Numbers between two integers may be rounded after factors in another order.
            off = np.abs(have.astype("int64") - want)
            assert off.max() <= (0 if want.dtype == np.int32 else 1) and (off > 0).mean() < 0.1
        else:
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)


def test_the_padding_of_a_convolution_stands_for_zero() -> None:
    """Around the image is the number 0, which is the zero point: a kernel of ones tells."""
    x, point = np.full((1, 1, 2, 2), 9, "uint8"), np.array(9, "uint8")
    case = Case("ConvInteger", [x, np.ones((1, 1, 3, 3), "int8"), point], [1, 2], opset=10, pads=[1, 1, 1, 1])
    np.testing.assert_array_equal(ours(case.model(), case.feeds())[0], np.zeros((1, 1, 2, 2), "int32"))
