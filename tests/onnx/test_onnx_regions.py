"""Regions of images, bent windows and images resized in all ways, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case, ours, reference

_rng = np.random.default_rng(31)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def rois(count: int, size: float) -> np.ndarray:
    """Two opposite corners each, some of them outside."""
    return np.sort(_rng.uniform(-2, size, (count, 2, 2)), axis=1).reshape(count, 4).astype("float32")


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    images = np.array([0, 1, 1, 0, 1])
    for ratio in (0, 2):
        for how in ("half_pixel", "output_half_pixel"):
            made[f"regions {ratio} {how}"] = Case(
                "RoiAlign",
                [f(2, 3, 9, 11), rois(5, 18), images],
                opset=16,
                output_height=3,
                output_width=4,
                sampling_ratio=ratio,
                spatial_scale=0.5,
                coordinate_transformation_mode=how,
            )
    made["largest of regions"] = Case(
        "RoiAlign",
        [np.abs(f(2, 3, 9, 11)), rois(5, 9), images],
        opset=16,
        mode="max",
        sampling_ratio=2,
        output_height=2,
    )
    made["regions of old"] = Case("RoiAlign", [f(2, 3, 9, 11), rois(5, 9), images], opset=10, output_width=2)
    whole = np.concatenate([images[:, None], np.abs(rois(5, 16))], 1).astype("float32")
    made["pooled regions"] = Case("MaxRoiPool", [f(2, 3, 9, 11), whole], pooled_shape=[3, 2], spatial_scale=0.5)
    for name, groups, shifts, masked in (("plain", 1, 1, False), ("groups", 2, 2, True), ("masked", 1, 1, True)):
        given = [f(2, 4, 7, 6), f(6, 4 // groups, 3, 2), f(2, shifts * 12, 7, 7), f(6)]
        if masked:
            given.append(f(2, shifts * 6, 7, 7))
        made[f"bent {name}"] = Case(
            "DeformConv",
            given,
            [1],
            opset=19,
            group=groups,
            offset_group=shifts,
            pads=[1, 1, 1, 1],
            kernel_shape=[3, 2],
        )
    for matrix in ((3, 3), (2, 5, 5), (2, 2, 4, 4)):
        made[f"determinant {matrix}"] = Case("Det", [f(*matrix)], opset=11)
    for order in (0, 1):
        made[f"places of the largest {order}"] = Case(
            "MaxPool",
            [f(2, 3, 7, 6)],
            outputs=2,
            kernel_shape=[3, 2],
            strides=[2, 1],
            pads=[1, 0, 1, 1],
            storage_order=order,
        )
    made["transposed in space"] = Case(
        "ConvTranspose",
        [f(1, 4, 3, 4, 5), f(4, 3, 2, 3, 3), f(6)],
        [1],
        group=2,
        strides=[2, 1, 3],
        pads=[0, 1, 1, 1, 0, 2],
        output_padding=[1, 0, 2],
        dilations=[1, 2, 1],
    )
    return made


def resizes() -> dict[str, Case]:
    made: dict[str, Case] = {}
    empty, whole = np.zeros(0, "float32"), np.array([1, 1, 1.7, 0.6], "float32")

    def add(name: str, given: list[Any], weights: list[int] | None = None, **attrs: Any) -> None:
        made[name] = Case("Resize", given, weights, opset=19, **attrs)

    for mode in ("nearest", "linear", "cubic"):
        for how in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"):
            add(f"{mode} {how} by factors", [f(2, 3, 5, 8), None, whole], mode=mode, coordinate_transformation_mode=how)
            add(
                f"{mode} {how} to sizes",
                [f(2, 3, 5, 8), None, None, np.array([2, 3, 7, 6])],
                mode=mode,
                coordinate_transformation_mode=how,
            )
        region = np.array([0, 0, 0.2, 0.3, 1, 1, 0.8, 1.4], "float32")
        add(
            f"{mode} of a part",
            [f(1, 2, 6, 7), region, empty, np.array([1, 2, 4, 5])],
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=3.5,
        )
        for policy in ("not_larger", "not_smaller"):
            add(
                f"{mode} {policy}",
                [f(1, 2, 6, 8), None, None, np.array([9, 10])],
                [3],
                mode=mode,
                axes=[2, 3],
                keep_aspect_ratio_policy=policy,
            )
    for mode in ("linear", "cubic"):
        for outside in (0, 1):
            given = [f(1, 2, 9, 12), None, np.array([1, 1, 0.4, 0.7], "float32")]
            add(f"{mode} smooth {outside}", given, [2], mode=mode, antialias=1, exclude_outside=outside)
        given = [f(1, 2, 9, 12), None, None, np.array([1, 2, 4, 20])]
        add(f"{mode} smooth to sizes of the run", given, mode=mode, antialias=1)
    add("linear in space", [f(1, 2, 3, 4, 5), None, None, np.array([1, 2, 5, 3, 9])], [3], mode="linear")
    add("nearest of lines", [f(2, 3, 7), None, np.array([1, 1, 1.5], "float32")], [2], mode="nearest")
    add("linear of channels", [f(3, 7), None, None, np.array([5, 4])], [3], mode="linear")
    return made


_CASES = {**cases(), **resizes()}
_SOME = [name if k % 5 == 0 else pytest.param(name, marks=pytest.mark.slow) for k, name in enumerate(_CASES)]


@pytest.mark.parametrize("name", _SOME)
@pytest.mark.filterwarnings("ignore")
def test_operator(name: str) -> None:
    model, feeds = _CASES[name].model(), _CASES[name].feeds()
    for have, want in zip(ours(model, feeds), reference(model, feeds), strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=2e-4)
