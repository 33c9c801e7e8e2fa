"""Upsampling and the other small computations of topi, against torch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import te, topi

RANDOM = np.random.default_rng(29)


def run(result: te.Tensor, source: te.Tensor, value: np.ndarray) -> np.ndarray:
    built = relaxish.build(te.create_prim_func([source, result]), target="llvm")
    out = relaxish.nd.empty(tuple(int(d) for d in result.shape), result.dtype)
    built(relaxish.nd.array(value), out)
    return out.numpy()


@pytest.mark.parametrize(
    ("method", "aligned", "mode"), [("nearest_neighbor", False, "nearest"), ("bilinear", True, "bilinear")]
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_upsampling(method: str, aligned: bool, mode: str, layout: str) -> None:
    torch = pytest.importorskip("torch")
    value = RANDOM.standard_normal((2, 3, 5, 7)).astype("float32")
    kwargs = {"align_corners": True} if aligned else {}
    expected = torch.nn.functional.interpolate(torch.tensor(value), scale_factor=(2, 3), mode=mode, **kwargs).numpy()
    if layout == "NHWC":
        value, expected = value.transpose(0, 2, 3, 1).copy(), expected.transpose(0, 2, 3, 1)
    source = te.placeholder(value.shape, "float32", name="x")
    got = run(topi.nn.upsampling(source, 2, 3, layout, method, aligned), source, value)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_upsampling_by_fractions_and_to_a_shape() -> None:
    source = te.placeholder((1, 2, 4, 6), "float32", name="x")
    assert [int(d) for d in topi.nn.upsampling(source, 1.5, 2.5).shape] == [1, 2, 6, 15]
    assert [int(d) for d in topi.nn.upsampling(source, 1, 1, output_shape=(1, 2, 9, 8)).shape] == [1, 2, 9, 8]
    with pytest.raises(ValueError, match="layout"):
        topi.nn.upsampling(source, 2, 2, "CHWN")


def test_fast_softmax() -> None:
    value = RANDOM.standard_normal((4, 9)).astype("float32")
    source = te.placeholder((4, 9), "float32", name="x")
    powers = np.exp(value - value.max(0))
    np.testing.assert_allclose(run(topi.nn.fast_softmax(source, 0), source, value), powers / powers.sum(0), rtol=1e-4)
