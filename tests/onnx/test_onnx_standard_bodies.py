"""Operators that the standard defines by a body, with inputs left out, and those that came with their tests."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from onnx_node import Case, onnx, ours, reference

_rng = np.random.default_rng(72)


def _f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def _bodies() -> dict[str, Case]:
    heads, grouped = [_f(2, 4, 5, 8) for _ in range(3)], [_f(2, 4, 5, 8), _f(2, 2, 6, 8), _f(2, 2, 6, 8)]
    rows = [_f(2, 4, 32) for _ in range(3)]
    gate = 1 / (1 + np.exp(-_f(2, 4, 4)))
    wave = [_f(2, 4, 8), _f(4, 1, 4)]
    linear = {"q_num_heads": 4, "kv_num_heads": 4, "opset": 27, "outputs": 2}
    return {
        "flex": Case("FlexAttention", heads, domain="ai.onnx.preview", opset=26),
        "flex of groups": Case("FlexAttention", grouped, domain="ai.onnx.preview", opset=26, scale=0.5),
        "linear": Case("LinearAttention", [*rows, None, None, gate], update_rule="delta", **linear),
        "linear gated": Case("LinearAttention", [*rows, None, -gate], update_rule="gated", **linear),
        "convolution": Case("CausalConvWithState", wave, opset=27, outputs=2),
        "convolution after another": Case(
            "CausalConvWithState", [*wave, None, _f(2, 4, 3)], opset=27, outputs=2, activation="silu"
        ),
    }


_BODIES = _bodies()


@pytest.mark.parametrize("name", _BODIES)
def test_bodies_with_inputs_left_out(name: str) -> None:
    case = _BODIES[name]
    if not onnx.defs.has(case.op, case.domain):
        pytest.skip(f"this onnx does not know {case.op}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check(case)


def _check(case: Case) -> None:
    model, feeds = case.model(), case.feeds()
    for got, want in zip(ours(model, feeds), reference(model, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=1e-5)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_affine_grids(aligned: int, size: tuple[int, ...]) -> None:
    rank = len(size) - 2
    theta = _f(2, rank, rank + 1)
    for weights in ([], [1]):  # the size is an input of the model, or known
        _check(Case("AffineGrid", [theta, np.array(size)], weights, opset=20, align_corners=aligned))


def test_modulus_of_floats() -> None:
    x = np.array([-5.5, 5.5, -5.5, 5.5, 4, -4, 0, -0.0, 3, -3, np.inf, np.nan, 1, 3], "float32")
    y = np.array([2, 2, -2, -2, -2, 2, -3, 3, np.inf, np.inf, 2, 1, 0, -np.inf], "float32")
    model = Case("Mod", [x, y], opset=18).model()
    with np.errstate(invalid="ignore"):
        want = np.mod(x, y)
    got = ours(model, {"x0": x, "x1": y})[0]
    np.testing.assert_array_equal(got, want)
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(want[finite]))


_TRAINING = "ai.onnx.preview.training"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(
    ("op", "held", "attrs"),
    [
        ("Adagrad", 3, {"norm_coefficient": 0.01, "epsilon": 1e-4, "decay_factor": 0.1}),
        (
            "Adam",
            4,
            {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02, "alpha": 0.9, "beta": 0.8, "epsilon": 1e-3},
        ),
        ("Momentum", 3, {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.7, "mode": "standard"}),
        ("Momentum", 3, {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.7, "mode": "nesterov"}),
    ],
)
def test_steps_of_optimisers(op: str, held: int, attrs: dict[str, Any], steps: int, count: int) -> None:
    tensors = [np.abs(_f(3, 4 + k % count)) for k in range(held * count)]
    inputs = [np.float32(0.1).reshape(()), np.int64(steps).reshape(()), *tensors]
    case = Case(op, inputs, outputs=(held - 1) * count, domain=_TRAINING, **attrs)
    model, feeds = case.model(), case.feeds()
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    for got, want in zip(ours(model, feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("skip", [0, 2])
def test_counts_of_grams(mode: str, least: int, skip: int) -> None:
    attrs = {
        "mode": mode, "min_gram_length": least, "max_gram_length": 3, "max_skip_count": skip,
        "ngram_counts": [0, 3, 9], "pool_int64s": [2, 3, 5, 1, 2, 2, 2, 5, 1, 1, 2, 3, 3, 3, 3],
        "ngram_indexes": [6, 0, 3, 1, 2, 7, 4, 5], "weights": [0.5, 1.5, 2.0, 0.25, 3.0, 1.0, 0.75, 4.0],
    }  # fmt: skip
    rng = np.random.default_rng(73)
    for shape in ((12,), (4, 17), (2, 2)):
        x = rng.integers(1, 6, shape)
        for kind in ("int32", "int64"):
            _check(Case("TfIdfVectorizer", [x.astype(kind)], opset=9, **attrs))
