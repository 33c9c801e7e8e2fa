"""RNN, GRU and LSTM of every kind against ONNX Runtime, which knows no rows before steps: those against onnx.reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours, reference

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DIRECTIONS = ("forward", "reverse", "bidirectional")
#: Steps, rows, inputs and units: of fewer units than a vector, of whole vectors, of a part of one.
_SIZES = [(5, 3, 4, 7), (4, 4, 16, 64), (3, 1, 5, 48)]
_rng = np.random.default_rng(31)


def layer(
    op: str,
    sizes: tuple[int, int, int, int],
    direction: str,
    bias: bool = True,
    lengths: bool = False,
    initial: bool = False,
    peepholes: bool = False,
    constant: bool = True,
    dtype: str = "float32",
    **attrs: Any,
) -> Case:
    steps, rows, inputs, units = sizes
    count, gates = 2 if direction == "bidirectional" else 1, _GATES[op]

    def some(*shape: int) -> np.ndarray:
        return (0.5 * _rng.standard_normal(shape)).astype(dtype)

    def state() -> np.ndarray | None:
        if not initial:
            return None
        return some(rows, count, units) if attrs.get("layout") else some(count, rows, units)

    data: list[Any] = [
        some(rows, steps, inputs) if attrs.get("layout") else some(steps, rows, inputs),
        some(count, gates * units, inputs),
        some(count, gates * units, units),
        some(count, 2 * gates * units) if bias else None,
        _rng.integers(1, steps + 1, rows).astype("int32") if lengths else None,
        state(),
    ]
    if op == "LSTM":
        data += [state(), some(count, 3 * units) if peepholes else None]
    while data[-1] is None:
        data.pop()
    return Case(
        op, data, weights=[1, 2, 3, 7] if constant else [], outputs=3 if op == "LSTM" else 2, opset=14,
        hidden_size=units, direction=direction, **attrs,
    )  # fmt: skip


def check(case: Case) -> None:
    model, feeds = case.model(), case.feeds()
    for have, want in zip(ours(model, feeds), reference(model, feeds), strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


_FORMS: dict[str, dict[str, Any]] = {
    "plain": {}, "lengths": {"lengths": True, "initial": True}, "clipped": {"bias": False, "initial": True, "clip": 0.3},
    "fed": {"constant": False, "initial": True},
}  # fmt: skip
_OWN: dict[str, dict[str, dict[str, Any]]] = {
    "LSTM": {"peepholes": {"peepholes": True, "initial": True}, "coupled": {"input_forget": 1, "initial": True}},
    "GRU": {
        "after": {"linear_before_reset": 1, "initial": True},
        "after-no-bias": {"linear_before_reset": 1, "bias": False, "lengths": True},
    },
    "RNN": {},
}
_CASES = [
    (op, sizes, direction, name, form)
    for op in _GATES
    for sizes, direction in itertools.product(_SIZES, _DIRECTIONS)
    for name, form in {**_FORMS, **_OWN[op]}.items()
]
_SOME = [
    pytest.param(*case, id="-".join([case[0], str(case[1][3]), case[2], case[3]]), marks=[] if k % 9 == 0 else pytest.mark.slow)
    for k, case in enumerate(_CASES)
]  # fmt: skip


@pytest.mark.parametrize("op, sizes, direction, name, form", _SOME)
def test_layer(op: str, sizes: tuple[int, int, int, int], direction: str, name: str, form: dict[str, Any]) -> None:
    check(layer(op, sizes, direction, **form))


@pytest.mark.parametrize("function", ["Relu", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "ScaledTanh", "Affine"])
def test_functions_of_the_cell(function: str) -> None:
    given = {
        "LeakyRelu": {"activation_alpha": [0.3]}, "HardSigmoid": {"activation_alpha": [0.3], "activation_beta": [0.4]},
        "ScaledTanh": {"activation_alpha": [0.7], "activation_beta": [1.2]}, "Elu": {"activation_alpha": [0.8]},
        "Affine": {"activation_alpha": [0.5], "activation_beta": [0.1]},
    }  # fmt: skip
    check(layer("RNN", (4, 2, 3, 18), "forward", initial=True, activations=[function], **given.get(function, {})))


def test_rows_before_steps() -> None:
    """The states come by rows as well; ONNX Runtime does not run this, so the same layer by steps is the judge."""
    case = layer("LSTM", (4, 3, 5, 20), "forward", initial=True, layout=1)
    data = [np.swapaxes(x, 0, 1).copy() if k in (0, 5, 6) else x for k, x in enumerate(case.inputs)]
    by_steps = Case("LSTM", data, weights=[1, 2, 3], outputs=3, opset=14, hidden_size=20)
    got = ours(case.model(), case.feeds())
    want = reference(by_steps.model(), by_steps.feeds())
    for have, expected, order in zip(got, want, ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2]), strict=True):
        np.testing.assert_allclose(have, np.transpose(expected, order), rtol=1e-4, atol=1e-5)
