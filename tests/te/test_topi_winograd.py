"""Winograd's convolutions equal direct ones, whatever the layout, size, border and number of images."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import te, topi
from relaxish.target import Target
from relaxish.topi.nn.winograd_util import cook_toom, interpolation_points, winograd_transform_matrices


def direct(data, weight, padding):
    """The convolution of an NCHW image, in double precision."""
    padded = np.pad(data.astype("float64"), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight.astype("float64"))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(("size", "padding"), [((14, 14), 0), ((9, 14), 1), ((6, 20), 2)])
def test_equals_direct_convolution(layout, computed, size, padding):
    rng = np.random.default_rng(1)
    data = rng.standard_normal((2, 5, *size)).astype("float32")
    weight = rng.standard_normal((3, 5, 3, 3)).astype("float32")
    expected = direct(data, weight, padding)
    if layout == "nhwc":
        data, weight, expected = (
            data.transpose(0, 2, 3, 1),
            weight.transpose(2, 3, 1, 0),
            expected.transpose(0, 2, 3, 1),
        )
    if computed:
        g = cook_toom(interpolation_points(5), 4, 3)[2]
        weight = np.einsum("ai,bj,ocij->abco" if layout == "nchw" else "ai,bj,ijco->aboc", g, g, weight)
    arrays = [np.ascontiguousarray(x, dtype="float32") for x in (data, weight, np.zeros(expected.shape))]
    x, w = (te.placeholder(a.shape, "float32") for a in arrays[:2])
    suffix = "_without_weight_transform" if computed else ""
    out = getattr(topi.nn, f"conv2d_winograd_{layout}{suffix}")(x, w, 1, padding, 1, "float32")
    held = [relaxish.nd.array(a) for a in arrays]
    relaxish.build(te.create_prim_func([x, w, out]), target="llvm")["main"](*held)
    np.testing.assert_allclose(held[2].numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tile", range(2, 9))
@pytest.mark.parametrize("kernel", range(3, 8))
def test_matrices_make_a_correlation(tile, kernel):
    rng = np.random.default_rng(tile)
    signal, taps = rng.standard_normal(tile + kernel - 1), rng.standard_normal(kernel)
    a, b, g = cook_toom(interpolation_points(tile + kernel - 2), tile, kernel)
    got = a.T @ ((g @ taps) * (b.T @ signal))
    np.testing.assert_allclose(got, np.correlate(signal, taps, "valid"), rtol=1e-7, atol=1e-7)


def test_weight_transform():
    kernel = te.placeholder((4, 5, 3, 3), "float32", name="kernel")
    assert [int(n) for n in topi.nn.conv2d_winograd_weight_transform(kernel, 2).shape] == [4, 4, 5, 4]


@pytest.mark.parametrize(("tile", "kernel"), [(1, 3), (9, 3), (4, 2), (4, 8)])
def test_sizes_out_of_range(tile, kernel):
    with pytest.raises(ValueError, match="Unsupported"):
        winograd_transform_matrices(tile, kernel, "float32")


@pytest.mark.parametrize("changed", [{"strides": 2}, {"dilation": 2}])
def test_only_dense_unit_steps(changed):
    x, w = te.placeholder((1, 8, 8, 4), "float32"), te.placeholder((3, 3, 4, 4), "float32")
    arguments = {"strides": 1, "padding": 1, "dilation": 1, "out_dtype": "float32", **changed}
    with pytest.raises(AssertionError):
        topi.nn.conv2d_winograd_nhwc(x, w, **arguments)


def test_targets_may_have_their_own():
    """On GPUs the product's results stay one level of tiles further in."""
    x, w = te.placeholder((1, 8, 8, 4), "float32"), te.placeholder((3, 3, 4, 4), "float32")
    with Target("cuda -arch=sm_80", host="llvm"):
        gpu = topi.nn.conv2d_winograd_nhwc(x, w, 1, 1, 1, "float32")
    for out, level in ((gpu, 3), (topi.nn.conv2d_winograd_nhwc(x, w, 1, 1, 1, "float32"), 2)):
        product = out.op.input_tensors[0].op.input_tensors[0].op
        assert product.name == "bgemm"
        assert [int(n) for n in product.attrs["meta_schedule.write_cache_level"]] == [level]
