"""Attention, rotations and caches of the standard's domain, and conversions of bits, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours

onnx = pytest.importorskip("onnx")

_rng = np.random.default_rng(37)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    q, k, v = f(2, 4, 5, 8), f(2, 2, 7, 8), f(2, 2, 7, 6)

    def add(name: str, given: list[Any], **options: Any) -> None:
        made[name] = Case("Attention", given, opset=options.pop("opset", 24), **options)

    add("shared heads", [q, k, v])
    add("scaled", [q, k, v], scale=0.2)
    add("flat", [f(2, 5, 32), f(2, 7, 16), f(2, 7, 12)], q_num_heads=4, kv_num_heads=2)
    add("causal", [q, k, v], is_causal=1)
    add("causal, all equal", [f(1, 2, 6, 8), f(1, 2, 6, 8), f(1, 2, 6, 8)], is_causal=1)
    add("added mask", [q, k, v, f(5, 7)])
    add("mask of heads", [q, k, v, f(2, 4, 5, 7)], is_causal=1)
    seen = _rng.uniform(size=(2, 1, 5, 7)) > 0.4
    seen[0, 0, 2] = False
    add("who sees nothing", [q, k, v, seen])
    add("short mask", [q, k, v, f(5, 4)])
    past = [f(2, 2, 3, 8), f(2, 2, 3, 6)]
    add("past", [q, k, v, None, *past], outputs=3, is_causal=1)
    add("past and mask", [q, k, v, f(5, 10), *past], outputs=3)
    for mode in range(4):
        add(f"between {mode}", [q, k, v, seen], outputs=4, softcap=2.0, qk_matmul_output_mode=mode)
    add("lengths", [q, k, v, None, None, None, np.array([3, 7])])
    add("lengths, causal", [q, k, v, None, None, None, np.array([4, 7])], is_causal=1)
    add("wide softmax", [q, k, v], softmax_precision=11, softcap=3.0)
    for mixed in (0, 1):
        places = np.array([[3, 1, 0, 6, 2], [0, 1, 2, 3, 4]])
        made[f"rotations {mixed}"] = Case("RotaryEmbedding", [q, f(7, 4), f(7, 4), places], opset=23, interleaved=mixed)
        made[f"rotations of a part {mixed}"] = Case(
            "RotaryEmbedding",
            [f(2, 5, 32), f(2, 5, 3), f(2, 5, 3)],
            opset=23,
            interleaved=mixed,
            num_heads=4,
            rotary_embedding_dim=6,
        )
    for mode, starts in (("linear", [2, 0]), ("circular", [5, 3])):
        made[f"cache {mode}"] = Case(
            "TensorScatter", [f(2, 3, 6, 4), f(2, 3, 3, 4), np.array(starts)], opset=24, mode=mode
        )
    for to, kind in ((7, "float64"), (1, "int32"), (5, "float16"), (2, "int8")):
        value = f(3, 5).astype(kind) if kind.startswith("float") else _rng.integers(-99, 99, (3, 5)).astype(kind)
        made[f"bits of {kind}"] = Case("BitCast", [value], opset=26, to=to)
    return made


_CASES = cases()
_SOME = [name if k % 3 == 0 else pytest.param(name, marks=pytest.mark.slow) for k, name in enumerate(_CASES)]


@pytest.mark.parametrize("name", _SOME)
@pytest.mark.filterwarnings("ignore")
def test_operator(name: str) -> None:
    model, feeds = _CASES[name].model(), _CASES[name].feeds()
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    for have, want in zip(ours(model, feeds), wanted, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.filterwarnings("ignore")
def test_powers_of_two(mode: str) -> None:
    """Numbers as exponents alone."""
    x = np.concatenate([np.exp2(_rng.uniform(-120, 120, 60)), [1.5, 3.0, 1.0, 0.25, 6.0, np.nan]]).astype("float32")
    model = Case("Cast", [x], opset=24, to=onnx.TensorProto.FLOAT8E8M0, round_mode=mode).model()
    (have,) = ours(model, {"x0": x})
    exact = np.log2(x.astype("float64"))
    near = np.where(x / np.exp2(np.floor(exact)) >= 1.5, np.ceil(exact), np.floor(exact))
    power = {"up": np.ceil(exact), "down": np.floor(exact), "nearest": near}[mode]
    np.testing.assert_array_equal(have.astype("float64")[:-1], np.exp2(power)[:-1])
    assert np.isnan(have.astype("float64")[-1])
