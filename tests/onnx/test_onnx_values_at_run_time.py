"""Axes, bounds, widths and counts that are inputs of the model, so that only the run knows them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours, reference

_rng = np.random.default_rng(181)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def n(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def scalar(value: Any, kind: str = "int64") -> np.ndarray:
    return np.array(value, kind)


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}

    def add(name: str, op: str, inputs: list[Any], **options: Any) -> None:
        made[name] = Case(op, inputs, **options)

    for op in ("ReduceMean", "ReduceMax", "ReduceLogSumExp", "ReduceL2", "ReduceSum", "ReduceProd"):
        add(f"{op} of one axis", op, [f(3, 4, 5), n(-2)], keepdims=1)
        add(f"{op} of two axes", op, [f(3, 4, 2, 5), n(3, 0)], keepdims=0)
    add("sum of no axes", "ReduceSum", [f(3, 4), np.zeros(0, "int64")], noop_with_empty_axes=1)
    add("largest of no axes", "ReduceMax", [f(3, 4), np.zeros(0, "int64")])
    add("running sums", "CumSum", [f(3, 4, 5), scalar(1)], opset=14, exclusive=1)
    add("running sums backwards", "CumSum", [f(3, 4, 5), scalar(-1)], opset=14, reverse=1)
    for name, begin, end, step in (
        ("forwards", n(1, -3), n(10**9, -1), n(2, 1)),
        ("backwards", n(-1, 3), n(-(10**9), 0), n(-2, -1)),
        ("beyond", n(-9, 2), n(-7, 2), n(1, 3)),
    ):
        add(f"slice {name}", "Slice", [f(5, 4, 6), begin, end, n(2, 0), step])
        add(f"slice {name} by known axes", "Slice", [f(5, 4, 6), begin, end, n(2, 0), step], weights=[3, 4])
    add("slice of all axes", "Slice", [f(5, 4), n(1, 0), n(4, 2)])
    for mode in ("constant", "edge", "reflect", "wrap"):
        opset = 19
        add(f"pad {mode}", "Pad", [f(4, 5), n(2, 1, 3, 0), scalar(1.5, "float32")], opset=opset, mode=mode)
        add(f"pad {mode} axes", "Pad", [f(4, 5, 3), n(2, 1), None, n(-2)], opset=opset, mode=mode)
    add("crop", "Pad", [f(4, 5), n(-1, 2, 0, -2), scalar(2.0, "float32")], opset=19)
    add("tile", "Tile", [f(2, 3), n(3, 2)])
    add("tile to nothing", "Tile", [f(2, 3), n(0, 2)])
    add("split", "Split", [f(6, 3), n(1, 2, 3)], outputs=3, axis=0)
    add("split with an empty part", "Split", [f(2, 5), n(0, 5)], outputs=2, axis=-1)
    add("squeeze", "Squeeze", [f(1, 3, 1, 4), n(-2, 0)])
    add("unsqueeze", "Unsqueeze", [f(3, 4), n(-1, 1)])
    for kind in ("int64", "int32", "float32"):
        add(f"range {kind}", "Range", [scalar(v, kind) for v in (2, 11, 3)])
        add(f"range down {kind}", "Range", [scalar(v, kind) for v in (9, -4, -3)])
    add("range of nothing", "Range", [scalar(v) for v in (5, 1, 2)])
    for k in (-2, 0, 3):
        add(f"upper {k}", "Trilu", [f(2, 4, 5), scalar(k)], upper=1)
        add(f"lower {k}", "Trilu", [f(4, 5), scalar(k)], upper=0)
    for largest in (0, 1):
        add(f"top {largest}", "TopK", [f(3, 9, 2), n(4)], outputs=2, axis=1, largest=largest)
    add("one hot", "OneHot", [n(1, -2, 7, 4), scalar(5), np.array([-1.5, 2.5], "float32")], axis=0)
    add("compress", "Compress", [f(4, 3), np.array([True, False, True])], axis=0)
    add("compress all", "Compress", [f(4, 3), np.array([True, False, True, True, False])])
    sparse = (f(3, 4) > 0.5).astype("float32")
    add("places", "NonZero", [sparse])
    add(
        "unique",
        "Unique",
        [
            np.round(f(12)),
        ],
        outputs=4,
        sorted=1,
    )
    add("constant", "ConstantOfShape", [n(2, 3)])
    add("image of columns", "Col2Im", [f(1, 12, 9), n(5, 6), n(2, 3)], strides=[2, 2], pads=[1, 1, 1, 1])
    boxes = np.sort(_rng.uniform(0, 9, (1, 20, 2, 2)), axis=-2).reshape(1, 20, 4).astype("float32")
    limits = [n(3), np.array([0.4], "float32"), np.array([0.2], "float32")]
    add("boxes", "NonMaxSuppression", [boxes, np.abs(f(1, 2, 20)), *limits], opset=11)
    return made


_CASES = cases()
_SOME = [name if k % 4 == 0 else pytest.param(name, marks=pytest.mark.slow) for k, name in enumerate(_CASES)]


@pytest.mark.parametrize("name", _SOME)
@pytest.mark.filterwarnings("ignore")
def test_values_that_only_the_run_knows(name: str) -> None:
    model, feeds = _CASES[name].model(), _CASES[name].feeds()
    for have, want in zip(ours(model, feeds), reference(model, feeds), strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_a_group_of_operators_runs_after_its_sizes_are_known() -> None:
    """The cast in front of a range's first use is no reason to run the range before its length is there."""
    case = Case("HannWindow", [np.array(11, "int32")], opset=17)
    (have,), (want,) = ours(case.model(), case.feeds()), reference(case.model(), case.feeds())
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
