"""Blocks, windows, grids and layouts of convolutions against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from relaxish import interp, te, topi
from relaxish.support.errors import RelaxishError

rng = np.random.default_rng(5)


def evaluate(outputs, *inputs):
    """What ``outputs`` of placeholders shaped like the inputs are."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"in{i}") for i, a in enumerate(inputs)]
    made = outputs(*tensors)
    results = made if isinstance(made, list) else [made]
    arrays = [np.full([int(d) for d in t.shape], 77, t.dtype) for t in results]
    interp.run_prim_func(te.create_prim_func([*tensors, *results]), [*inputs, *arrays])
    return arrays if isinstance(made, list) else arrays[0]


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["DCR", "CDR"])
def test_depth_to_space(layout, mode):
    x = normal(2, 12, 3, 5)
    view = x.reshape(2, 2, 2, 3, 3, 5) if mode == "DCR" else x.reshape(2, 3, 2, 2, 3, 5)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    wanted = view.transpose(order).reshape(2, 3, 6, 10)
    given = x if layout == "NCHW" else x.transpose(0, 2, 3, 1).copy()
    got = evaluate(lambda a: topi.nn.depth_to_space(a, 2, layout, mode), given)
    np.testing.assert_array_equal(got if layout == "NCHW" else got.transpose(0, 3, 1, 2), wanted)
    if mode == "DCR":
        back = evaluate(lambda a: topi.nn.space_to_depth(a, 2, layout), got)
        np.testing.assert_array_equal(back, given)


def test_space_to_batch_and_back():
    x = normal(2, 5, 6, 3)
    apart = evaluate(lambda a: topi.nn.space_to_batch_nd(a, [2, 3], [1, 0], [0, 3], 9.0), x)
    padded = np.pad(x, [(0, 0), (1, 0), (0, 3), (0, 0)], constant_values=9.0)
    wanted = np.concatenate([padded[:, r::2, c::3] for r in range(2) for c in range(3)])
    np.testing.assert_array_equal(apart, wanted)
    np.testing.assert_array_equal(evaluate(lambda a: topi.nn.batch_to_space_nd(a, [2, 3], [1, 0], [0, 3]), apart), x)


@pytest.mark.parametrize("size, axis", [(3, 1), (5, 3), (4, 1)])
def test_lrn(size, axis):
    x = normal(2, 6, 4, 7)
    moved = torch.from_numpy(np.moveaxis(x, axis, 1).copy())
    wanted = np.moveaxis(functional.local_response_norm(moved, size, 0.2, 0.6, 1.5).numpy(), 1, axis)
    np.testing.assert_allclose(evaluate(lambda a: topi.nn.lrn(a, size, axis, 0.2, 0.6, 1.5), x), wanted, rtol=1e-5)


def test_reverse_sequence():
    x, lengths = normal(5, 3), np.array([4, 1, 5], "int64")
    wanted = x.copy()
    for column, length in enumerate(lengths):
        wanted[:length, column] = x[:length, column][::-1]
    np.testing.assert_array_equal(evaluate(lambda a, n: topi.reverse_sequence(a, n, 0, 1), x, lengths), wanted)


def test_positions():
    shape, flat = np.array([3, 4, 5], "int32"), rng.integers(0, 60, (2, 7), dtype="int32")
    np.testing.assert_array_equal(evaluate(topi.unravel_index, flat, shape), np.stack(np.unravel_index(flat, shape)))
    order = rng.permutation(9).astype("int32")
    np.testing.assert_array_equal(evaluate(topi.invert_permutation, order), np.argsort(order))
    assert evaluate(lambda a: topi.ndarray_size(a, "int64"), normal(3, 4, 5)) == 60


def test_windows():
    x = normal(2, 7, 9)
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 4), (1, 2))[:, ::2, ::3]
    np.testing.assert_array_equal(evaluate(lambda a: topi.sliding_window(a, 1, [3, 4], [2, 3]), x), wanted)
    with pytest.raises(RelaxishError, match="over 2 axes"):
        topi.sliding_window(te.placeholder((2, 7, 9)), 1, [3], [1])


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_grids(indexing):
    vectors = [normal(3), normal(4), normal(2)]
    got = evaluate(lambda *v: topi.meshgrid(v, indexing), *vectors)
    for have, want in zip(got, np.meshgrid(*vectors, indexing=indexing), strict=True):
        np.testing.assert_array_equal(have, want)


def test_layouts_of_convolutions():
    x, w = normal(2, 4, 7, 8), normal(6, 4, 3, 3)
    wanted = functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=2, padding=1).numpy()
    got = evaluate(
        lambda a, b: topi.nn.conv2d_hwcn(a, b, 2, 1, 1), x.transpose(2, 3, 1, 0).copy(), w.transpose(2, 3, 1, 0).copy()
    )
    np.testing.assert_allclose(got.transpose(3, 2, 0, 1), wanted, rtol=1e-4, atol=1e-4)
    g = normal(6, 2, 3, 3)
    wanted = functional.conv2d(torch.from_numpy(x), torch.from_numpy(g), padding=1, groups=2).numpy()
    got = evaluate(lambda a, b: topi.nn.group_conv2d_nchw(a, b, 1, 1, 1, 2), x, g)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    got = evaluate(
        lambda a, b: topi.nn.group_conv2d_nhwc(a, b, 1, 1, 1, 2),
        x.transpose(0, 2, 3, 1).copy(),
        g.transpose(2, 3, 1, 0).copy(),
    )
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-4)


def test_convolutions_over_one_and_three_axes():
    x, w = normal(2, 4, 9), normal(6, 4, 3)
    wanted = functional.conv1d(torch.from_numpy(x), torch.from_numpy(w), stride=2, dilation=2).numpy()
    np.testing.assert_allclose(
        evaluate(lambda a, b: topi.nn.conv1d_ncw(a, b, 2, 0, 2), x, w), wanted, rtol=1e-4, atol=1e-4
    )
    got = evaluate(
        lambda a, b: topi.nn.conv1d_nwc(a, b, 2, 0, 2), x.transpose(0, 2, 1).copy(), w.transpose(2, 1, 0).copy()
    )
    np.testing.assert_allclose(got.transpose(0, 2, 1), wanted, rtol=1e-4, atol=1e-4)
    x, w = normal(1, 4, 3, 5, 4), normal(6, 2, 2, 3, 2)
    wanted = functional.conv3d(torch.from_numpy(x), torch.from_numpy(w), padding=1, groups=2).numpy()
    got = evaluate(lambda a, b: topi.nn.conv3d_ncdhw(a, b, 1, 1, 1, 2), x, w)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    channels_last = x.transpose(0, 2, 3, 4, 1).copy(), w.transpose(2, 3, 4, 1, 0).copy()
    got = evaluate(lambda a, b: topi.nn.conv3d_ndhwc(a, b, 1, 1, 1, 2), *channels_last)
    np.testing.assert_allclose(got.transpose(0, 4, 1, 2, 3), wanted, rtol=1e-4, atol=1e-4)
