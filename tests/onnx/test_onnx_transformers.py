"""Operators of ONNX Runtime's own domain that exported transformers hold, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ort, ours, reference
from relaxish.support.errors import OpNotImplemented

_rng = np.random.default_rng(53)
_OWN = {"domain": "com.microsoft"}


def f(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (_rng.standard_normal(shape) * scale).astype("float32")


def u8(*shape: int) -> np.ndarray:
    return np.asarray(_rng.integers(0, 256, shape), "uint8")


def s8(*shape: int) -> np.ndarray:
    return np.asarray(_rng.integers(-128, 128, shape), "int8")


def i32(values: Any) -> np.ndarray:
    return np.asarray(values, "int32")


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}

    def add(name: str, kind: str, inputs: list[Any], weights: tuple[int, ...] = (), **attrs: Any) -> None:
        made[name] = Case(kind, inputs, list(weights), **_OWN, **attrs)

    add("scaled product", "FusedMatMul", [f(2, 3, 5), f(2, 5, 4)], alpha=0.25)
    add("both turned", "FusedMatMul", [f(2, 5, 3), f(2, 4, 5)], transA=1, transB=1, alpha=2.0)
    add("batch behind", "FusedMatMul", [f(3, 2, 5), f(5, 2, 4)], transBatchA=1, transBatchB=1, transB=0)
    add("batch behind and turned", "FusedMatMul", [f(5, 2, 3), f(4, 2, 5)], transBatchA=1, transBatchB=1, transA=1,
        transB=1)  # fmt: skip
    for name, params in (("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])):
        add(f"convolution, {name}", "FusedConv", [f(1, 3, 7, 7), f(4, 3, 3, 3), f(4)], (1, 2), activation=name,
            pads=[1, 1, 1, 1], **({"activation_params": params} if params else {}))  # fmt: skip
    add("convolution and sum", "FusedConv", [f(1, 3, 7, 7), f(4, 3, 3, 3), f(4), f(1, 4, 5, 5)], (1, 2),
        activation="Relu")  # fmt: skip
    add("gemm", "FusedGemm", [f(3, 5), f(4, 5), f(4)], transB=1, alpha=0.5, activation="LeakyRelu",
        activation_alpha=0.3)  # fmt: skip
    add("quick gelu", "QuickGelu", [f(3, 5)], alpha=1.5)
    made["root mean square"] = Case("SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], epsilon=1e-4)
    add("root mean square of a sum", "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)])
    packed = [f(2, 5, 8), f(8, 24, scale=0.5), f(24)]
    past = f(2, 2, 2, 3, 4)
    add("attention", "Attention", packed, num_heads=2)
    add("attention, causal", "Attention", packed, num_heads=2, unidirectional=1, scale=0.3)
    add("attention, mask", "Attention", [*packed, i32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])], num_heads=2)
    add("attention, lengths", "Attention", [*packed, i32([3, 4])], num_heads=2)
    seen = i32(_rng.integers(0, 2, (2, 5, 5)))
    seen[:, :, 0] = 1
    add("attention, mask of queries", "Attention", [*packed, seen], num_heads=2)
    add("attention, past", "Attention", [*packed, None, past], num_heads=2, outputs=2, unidirectional=1)
    q, k, v = f(2, 5, 8), f(2, 7, 8), f(2, 7, 12)
    add("heads", "MultiHeadAttention", [q, k, v], num_heads=2)
    add("heads, scaled", "MultiHeadAttention", [q, k, f(2, 7, 8), f(24)], num_heads=2, scale=0.3)
    add("heads, mask", "MultiHeadAttention", [q, k, v, None, i32([[1, 1, 1, 1, 0, 0, 0], [1] * 7])], num_heads=2)
    add("heads, added", "MultiHeadAttention", [q, k, v, None, None, f(1, 2, 5, 7)], num_heads=2)
    add("heads, past", "MultiHeadAttention", [q, f(2, 5, 8), f(2, 5, 8), None, None, None, f(2, 2, 3, 4),
        f(2, 2, 3, 4)], num_heads=2, outputs=3, unidirectional=1)  # fmt: skip
    angles = [f(16, 2), f(16, 2)]
    for mixed in (0, 1):
        add(f"rotations {mixed}", "RotaryEmbedding", [f(2, 5, 12), np.array([[0, 1, 2, 3, 4], [5, 2, 1, 7, 9]]),
            *angles], interleaved=mixed)  # fmt: skip
        add(f"rotations from a place {mixed}", "RotaryEmbedding", [f(2, 3, 5, 4), np.array([4]), *angles],
            interleaved=mixed)  # fmt: skip
    new = [f(2, 5, 64), f(2, 5, 32), f(2, 5, 32)]
    none, held, angles = [None, None], [f(2, 2, 3, 16), f(2, 2, 3, 16)], [f(16, 8), f(16, 8)]
    add(
        "shared heads",
        "GroupQueryAttention",
        [*new, *none, i32([4, 4]), i32(5)],
        num_heads=4,
        kv_num_heads=2,
        outputs=3,
    )
    step = [f(2, 1, 64), f(2, 1, 32), f(2, 1, 32)]
    for mixed in (0, 1):
        add(f"shared heads, past {mixed}", "GroupQueryAttention", [*step, *held, i32([3, 3]), i32(4), *angles],
            num_heads=4, kv_num_heads=2, outputs=3, do_rotary=1, rotary_interleaved=mixed)  # fmt: skip
    add("shared heads, packed", "GroupQueryAttention", [f(2, 5, 128), None, None, *none, i32([4, 4]), i32(5)],
        num_heads=4, kv_num_heads=2, outputs=3)  # fmt: skip
    scale, zero = np.array(0.02, "float32"), np.array(121, "uint8")
    small = np.array(0.01, "float32")
    add("attention of bytes", "QAttention", [u8(2, 5, 8), s8(8, 24), f(24), scale, small,
        i32([[1, 1, 1, 0, 0], [1] * 5]), zero, np.array(0, "int8")], (1, 2), num_heads=2)  # fmt: skip
    return made


_CASES = cases()
_SOME = [n if k % 4 == 0 else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(_CASES)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _SOME)
def test_operator(name: str) -> None:
    model, feeds = _CASES[name].model(), _CASES[name].feeds()
    if name == "root mean square":
        model.opset_import[0].version = 17
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for have, want in zip(ours(model, feeds), wanted, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=2e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_with_weights_of_bytes(direction: str) -> None:
    """ONNX Runtime rounds inputs and states to bytes as well; the judge is the LSTM of the numbers the bytes mean."""
    sides, hidden, inputs = 2 if direction == "bidirectional" else 1, 6, 5
    w, r = s8(sides, inputs, 4 * hidden), s8(sides, hidden, 4 * hidden)
    ws, rs = (_rng.uniform(0.002, 0.006, (sides, 4 * hidden)).astype("float32") for _ in range(2))
    zeros = np.zeros((sides, 4 * hidden), "int8")
    b, x = f(sides, 8 * hidden), f(7, 3, inputs)
    given = [x, w, r, b, None, None, None, None, ws, zeros, rs, zeros]
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "outputs": 3}
    quantised = Case("DynamicQuantizeLSTM", given, [1, 2, 3, 8, 9, 10, 11], **_OWN, **attrs)
    full = [(m * s[:, None]).transpose(0, 2, 1).copy() for m, s in ((w, ws), (r, rs))]
    plain = Case("LSTM", [x, *full, b], [1, 2, 3], opset=14, **attrs)
    found = ours(quantised.model(), quantised.feeds())
    rounded = reference(quantised.model(), quantised.feeds())
    for have, want, near in zip(found, reference(plain.model(), plain.feeds()), rounded, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
        assert np.abs(have - near).max() < 0.1


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_supported_is_an_error() -> None:
    q = f(2, 5, 8)
    for kind, inputs, attrs in (
        ("FusedGemm", [f(3, 5), f(5, 4), f(4)], {"activation": "Softsign"}),
        ("Attention", [q, f(8, 24), f(24), i32([1, 1, 4, 4])], {"num_heads": 2}),
        ("GroupQueryAttention", [q, q, q, None, None, i32([4, 4]), i32(5)],
         {"num_heads": 2, "kv_num_heads": 2, "local_window_size": 3}),
    ):  # fmt: skip
        case = Case(kind, inputs, **_OWN, **attrs)
        with pytest.raises(OpNotImplemented):
            ours(case.model(), case.feeds())


@pytest.mark.filterwarnings("ignore")
def test_caches_of_unequal_lengths_are_an_error() -> None:
    held = [f(2, 2, 3, 4), f(2, 2, 3, 4)]
    inputs = [f(2, 1, 16), f(2, 1, 8), f(2, 1, 8), *held, i32([3, 1]), i32(4)]
    case = Case("GroupQueryAttention", inputs, num_heads=4, kv_num_heads=2, outputs=3, **_OWN)
    with pytest.raises(Exception, match="(?i)shape|match|size"):
        ours(case.model(), case.feeds())
