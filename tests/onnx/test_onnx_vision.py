"""Sampling at places, choice of boxes and orders of rows, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours, reference

_rng = np.random.default_rng(53)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def boxes(*shape: int) -> np.ndarray:
    """Two opposite corners each."""
    return np.sort(_rng.uniform(0, 10, (*shape, 2, 2)), axis=-2).reshape(*shape, 4).astype("float32")


def number(value: float, kind: str = "float32") -> np.ndarray:
    return np.array([value], kind)


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for aligned in (0, 1):
                # Places beyond the border by more than the image is wide.
                data = [f(2, 3, 5, 6), 1.4 * f(2, 4, 7, 2)]
                made[f"grid {mode} {padding} {aligned}"] = Case(
                    "GridSample", data, opset=20, mode=mode, padding_mode=padding, align_corners=aligned
                )
    made["grid in space"] = Case("GridSample", [f(2, 3, 4, 5, 6), f(2, 3, 4, 5, 3)], opset=20, padding_mode="border")

    def choice(name: str, data: list[Any], **attrs: Any) -> None:
        made[name] = Case("NonMaxSuppression", data, list(range(2, len(data))), opset=11, **attrs)

    for count, classes in ((30, 1), (50, 3), (1, 1)):
        for most in (0, 5, 1000):
            data = [boxes(2, count), np.abs(f(2, classes, count)), number(most, "int64"), number(0.3), number(0.4)]
            choice(f"boxes {count} {classes} {most}", data)
    centred = np.abs(f(1, 40, 4)) * 3
    choice("boxes by centres", [centred, np.abs(f(1, 2, 40)), number(7, "int64"), number(0.5)], center_point_box=1)
    equal = np.round(np.abs(f(1, 2, 40)), 1)
    choice("boxes of equal scores", [boxes(1, 40), equal, number(70, "int64"), number(0.5)])
    lengths = np.array([1, 5, 3])
    made["reverse"] = Case("ReverseSequence", [f(5, 3, 2), lengths], opset=10)
    made["reverse rows first"] = Case("ReverseSequence", [f(3, 5, 2), lengths], opset=10, batch_axis=0, time_axis=1)
    made["col2im"] = Case("Col2Im", [f(2, 12, 30), np.array([6, 7]), np.array([2, 2])], [1, 2], opset=18)
    made["col2im with steps"] = Case(
        "Col2Im",
        [f(1, 12, 9), np.array([5, 6]), np.array([2, 3])],
        [1, 2],
        opset=18,
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    )
    made["cumprod"] = Case("CumProd", [f(3, 4), np.array(1)], [1], opset=26, exclusive=1, reverse=1)
    return made


_CASES = cases()
_SOME = [n if k % 4 == 0 else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(_CASES)]


@pytest.mark.parametrize("name", _SOME)
@pytest.mark.filterwarnings("ignore")
def test_operator(name: str) -> None:
    model, feeds = _CASES[name].model(), _CASES[name].feeds()
    for have, want in zip(ours(model, feeds), reference(model, feeds), strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
