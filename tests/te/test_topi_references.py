"""The NumPy references of ``topi.testing`` against torch and against direct formulas."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import topi

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)
ref = topi.testing


def rand(*shape):
    return RNG.standard_normal(shape).astype("float32")


def same(mine, theirs, tolerance=1e-4):
    theirs = theirs.numpy() if hasattr(theirs, "numpy") else theirs
    assert mine.shape == theirs.shape
    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def t(x):
    return torch.from_numpy(np.ascontiguousarray(x))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1)])
def test_convolutions(groups, stride, padding):
    x, w = rand(2, 4, 7, 8), rand(6, 4 // groups, 3, 3)
    expected = F.conv2d(t(x), t(w), None, stride, padding, 1, groups)
    same(ref.conv2d_nchw_python(x, w, stride, padding, groups), expected)
    last = ref.conv2d_nhwc_python(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), stride, padding, groups)
    same(last.transpose(0, 3, 1, 2), expected)
    x1, w1 = rand(2, 4, 9), rand(6, 4 // groups, 3)
    same(
        ref.group_conv1d_ncw_python(x1, w1, stride, padding, 2, groups),
        F.conv1d(t(x1), t(w1), None, stride, padding, 2, groups),
    )
    x3, w3 = rand(1, 4, 5, 6, 7), rand(6, 4 // groups, 3, 3, 3)
    same(
        ref.conv3d_ncdhw_python(x3, w3, stride, padding, groups),
        F.conv3d(t(x3), t(w3), None, stride, padding, 1, groups),
    )
    turned = rand(4, 3, 3, 3)
    same(
        ref.conv2d_transpose_nchw_python(x, turned, stride, padding, stride - 1, groups),
        F.conv_transpose2d(t(x), t(turned), None, stride, padding, stride - 1, groups),
    )


def test_other_convolution_layouts():
    x, w = rand(2, 4, 7, 8), rand(6, 4, 3, 3)
    expected = F.conv2d(t(x), t(w), None, 1, "same")
    hwcn = ref.conv2d_hwcn_python(x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0), 1, "SAME")
    same(hwcn.transpose(3, 2, 0, 1), expected)
    own = rand(4, 2, 3, 3)
    same(ref.depthwise_conv2d_python_nchw(x, own, 1, 1), F.conv2d(t(x), t(own.reshape(8, 1, 3, 3)), None, 1, 1, 1, 4))
    turned = ref.conv2d_transpose_nhwc_python(x.transpose(0, 2, 3, 1), rand(3, 3, 5, 4), "HWOI", 2, 0)
    assert turned.shape == (2, 15, 17, 5)
    assert ref.dilate_python(np.ones((2, 2)), (1, 2), 7).tolist() == [[1, 7, 1]] * 2


def test_normalisations():
    x, g, b = rand(3, 8, 5), rand(8), rand(8)
    same(ref.softmax_python(x, 1), F.softmax(t(x), 1))
    same(ref.log_softmax_python(x, 2), F.log_softmax(t(x), 2))
    same(ref.layer_norm_python(x, rand(8, 5) * 0 + 1, None, (1, 2)), F.layer_norm(t(x), (8, 5)))
    same(ref.group_norm_python(x, g, b, 4, 1, [2]), F.group_norm(t(x), 4, t(g), t(b)))
    same(ref.instance_norm_python(x, g, b, 2), F.instance_norm(t(x), None, None, t(g), t(b)))
    same(ref.rms_norm_python(x, np.ones(5, "float32"), -1, 1e-6), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6))
    mean, var = rand(8), rand(8) ** 2
    for training in (False, True):
        got = ref.batch_norm(x, g, b, mean, var, 1, 1e-5, True, True, training, 0.1)
        same(got[0], F.batch_norm(t(x), t(mean.copy()), t(var.copy()), t(g), t(b), training))
    same(ref.l2_normalize_python(x, 1e-9, 1), F.normalize(t(x), dim=1))
    same(ref.lrn_python(x, 3, 1, 2.0, 0.1, 0.75), F.local_response_norm(t(x), 3, 0.1, 0.75, 2.0))


def test_losses_products_and_attention():
    scores, classes, weights = rand(4, 3, 5), RNG.integers(0, 3, (4, 5)), np.abs(rand(3))
    classes[0, 0] = 1
    for reduction in ("mean", "sum", "none"):
        theirs = F.nll_loss(t(scores), t(classes), t(weights), ignore_index=1, reduction=reduction)
        np.testing.assert_allclose(ref.nll_loss(scores, classes, weights, reduction, 1), theirs.numpy(), rtol=1e-4)
    x, y = rand(2, 3, 4), rand(2, 5, 4)
    same(ref.batch_matmul(x, y), x @ y.swapaxes(1, 2))
    same(ref.dense(x[0], y[0], rand(5) * 0 - 1, True, True), np.maximum(x[0] @ y[0].T - 1, 0))
    q, k, v = rand(2, 6, 4, 8), rand(2, 9, 2, 8), rand(2, 9, 2, 8)
    shared = [t(np.repeat(a.swapaxes(1, 2), n, 1)) for a, n in ((q, 1), (k, 2), (v, 2))]
    plain = F.scaled_dot_product_attention(*shared, scale=0.5).numpy().swapaxes(1, 2)
    same(ref.attention_python(q, k, v, None, 0.5, None), plain)
    masked = F.scaled_dot_product_attention(*shared, scale=0.5, is_causal=True).numpy().swapaxes(1, 2)
    same(ref.attention_python(q, k, v, None, 0.5, "TopLeft"), masked)


def test_pooling():
    x = rand(2, 3, 7, 8)
    args = ([3, 2], [2, 2], [1, 1], [1, 0], [1, 0])
    same(ref.poolnd_python(x, *args, "max"), F.max_pool2d(t(x), [3, 2], 2, [1, 0]))
    for counted in (True, False):
        same(ref.poolnd_python(x, *args, "avg", counted), F.avg_pool2d(t(x), [3, 2], 2, [1, 0], False, counted))
        for kind in ("avg", "max"):
            y = t(x).requires_grad_()
            pooled = F.max_pool2d(y, 2, 2) if kind == "max" else F.avg_pool2d(y, 2, 2, 0, False, counted)
            out = rand(*pooled.shape)
            pooled.backward(t(out))
            same(ref.pool_grad_nchw(x, out, [2, 2], [2, 2], [0] * 4, kind, False, counted), y.grad)
    same(ref.adaptive_pool(x, (3, 5), "avg", "NCHW"), F.adaptive_avg_pool2d(t(x), (3, 5)))
    same(ref.adaptive_pool(x, 2, "max", "NCHW"), F.adaptive_max_pool2d(t(x), 2))


def test_arrangement():
    x = rand(2, 8, 4, 6)
    same(ref.depth_to_space_python(x, 2, "CDR"), F.pixel_shuffle(t(x), 2))
    same(ref.space_to_depth_python(ref.depth_to_space_python(x, 2), 2), x)
    blocks = ref.space_to_batch_nd_python(x, [2, 3], [1, 0], [1, 2])
    assert blocks.shape == (12, 5, 2, 6)
    same(ref.batch_to_space_nd_python(blocks, [2, 3], [1, 0], [1, 2]), x)
    places = RNG.integers(0, 4, (2, 8, 3, 6))
    same(ref.gather_python(x, 2, places), torch.gather(t(x), 2, t(places)))
    same(ref.strided_slice_python(x, [0, 6], [2, 0], [1, -2]), x[0:2, 6:0:-2])
    same(ref.strided_slice_python(x, [1, 2], [-1, 3], None, "size", [2, 3]), x[:, :, 1:, 2:5])
    same(
        ref.strided_set_python(x, 0, [0, 1], [1, 3]),
        np.where(
            np.indices(x.shape)[0] == 0, np.where((np.indices(x.shape)[1] >= 1) & (np.indices(x.shape)[1] < 3), 0, x), x
        ),
    )
    hot = RNG.integers(0, 5, (2, 3))
    same(ref.one_hot(hot, 1, 0, 5, -1, "int64"), F.one_hot(t(hot), 5))
    same(ref.one_hot(hot, 1, 0, 5, 0, "int64"), F.one_hot(t(hot), 5).numpy().transpose(2, 0, 1))
    rows = np.sort(rand(3, 6), -1)
    same(
        ref.searchsorted_ref(rows, x[0, 0, :3], True, "int64"), torch.searchsorted(t(rows), t(x[0, 0, :3]), right=True)
    )
    masked = ref.sequence_mask(rand(4, 2, 3), np.array([1, 4]), 9, 0)
    assert (masked[1:, 0] == 9).all() and (masked[:, 1] != 9).all()
    diagonal = ref.matrix_set_diag(np.zeros((2, 3, 3)), np.ones((2, 3)))
    same(diagonal, np.broadcast_to(np.eye(3), (2, 3, 3)))


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners"])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_resizing(mode, method):
    x = rand(1, 2, 6, 5)
    theirs = F.interpolate(
        t(x), (9, 10), mode={"linear": "bilinear", "cubic": "bicubic"}[method], align_corners=mode == "align_corners"
    )
    same(ref.resize2d_python(x, (1.5, 2), "NCHW", method, mode, alpha=-0.75), theirs)
    same(ref.resize2d_python(x, (1.5, 2), "NCHW", "nearest_neighbor", "asymmetric"), F.interpolate(t(x), (9, 10)))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampling(padding):
    x, maps = rand(2, 3, 5, 6), rand(2, 2, 3)
    grid = ref.affine_grid_python(maps, (4, 7))
    theirs = F.affine_grid(t(maps), (2, 3, 4, 7), align_corners=True)
    same(grid.transpose(0, 2, 3, 1), theirs)
    for method in ("bilinear", "nearest"):
        for corners in (True, False):
            same(
                ref.grid_sample_python(x, grid, method, "NCHW", padding, corners),
                F.grid_sample(t(x), theirs, method, padding, corners),
            )
