"""Replaced slices and diagonals, searches, transforms, and windows over blocks, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from te.test_topi_rearrange import evaluate, normal
from torch.nn import functional

import relaxish
from relaxish import te, topi
from relaxish.support.errors import RelaxishError


def compiled(outputs, *inputs):
    """As ``evaluate``, by machine code."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"in{i}") for i, a in enumerate(inputs)]
    made = outputs(*tensors)
    results = made if isinstance(made, list) else [made]
    function = relaxish.compile(te.create_prim_func([*tensors, *results]), "llvm")
    arrays = [relaxish.nd.empty([int(d) for d in t.shape], t.dtype) for t in results]
    function(*(relaxish.nd.array(a) for a in inputs), *arrays)
    out = [a.numpy() for a in arrays]
    return out if isinstance(made, list) else out[0]


both = pytest.mark.parametrize("run", [evaluate, compiled])
SLICES = [
    ([1, 0], [4, 3], [1, 1]), ([0], [5], [2]), ([-4, 1], [-1, -1], [1, 2]), ([4, -1], [0, -4], [-2, -1]),
    ([3, 0], [-9, 99], [-1, 3]), ([-99, 2], [99, 3], [3, 1]), ([2, 1], [2, 3], [1, 1]),
]  # fmt: skip


@both
@pytest.mark.parametrize("begin, end, strides", SLICES)
def test_strided_set(run, begin, end, strides):
    x = normal(5, 4)
    places = tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides))
    wanted = x.copy()
    v = normal(*wanted[places].shape)
    wanted[places] = v
    if v.size == 0:
        v = normal(1, 1)
    np.testing.assert_array_equal(run(lambda a, b: topi.strided_set(a, b, begin, end, strides), x, v), wanted)
    if all(s == 1 for s in strides):
        np.testing.assert_array_equal(run(lambda a, b: topi.strided_set(a, b, begin, end), x, v), wanted)
    bounds = [np.array(part, "int64") for part in (begin, end, strides)]
    np.testing.assert_array_equal(run(topi.strided_set, x, v, *bounds), wanted)


@both
@pytest.mark.parametrize("axis, start, end, step", [(0, 1, 5, 2), (1, -3, 9, 1), (-1, 0, 3, 1)])
def test_slice_scatter(run, axis, start, end, step):
    x = normal(6, 5, 4)
    view = torch.from_numpy(x).narrow(0, 0, 6)
    picked = [slice(None)] * 3
    picked[axis] = slice(start, end, step)
    src = normal(*x[tuple(picked)].shape)
    wanted = torch.slice_scatter(view, torch.from_numpy(src), axis, start, end, step).numpy()
    np.testing.assert_array_equal(run(lambda a, b: topi.slice_scatter(a, b, start, end, step, axis), x, src), wanted)


@both
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(run, accumulate):
    x = normal(5, 4, 3)
    rows, columns = np.array([[4], [-2], [0]], "int64"), np.array([1, -1], "int32")
    for given, values in (
        ((rows, columns), normal(3, 2, 3)), ((rows, columns), normal(3)), ((rows[:, 0],), normal(3, 4, 3)),
    ):  # fmt: skip
        indices = tuple(torch.from_numpy(i.astype("int64")) for i in given)
        wanted = torch.from_numpy(x).index_put(indices, torch.from_numpy(values), accumulate).numpy()
        got = run(lambda a, v, *i: topi.index_put(a, i, v, accumulate), x, values, *given)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    twice = np.array([1, 1, 3], "int64")
    got = run(lambda a, v, i: topi.index_put(a, [i], v, True), x, normal(1, 4, 3), twice)
    assert not np.allclose(got[1], x[1]) and np.array_equal(got[0], x[0])


@both
def test_adv_index(run):
    x = normal(5, 4, 3)
    rows, columns = np.array([[4], [-2], [0]], "int64"), np.array([1, -1], "int32")
    np.testing.assert_array_equal(run(lambda a, *i: topi.adv_index(a, i), x, rows, columns), x[rows, columns])
    np.testing.assert_array_equal(run(lambda a, i: topi.adv_index(a, [i]), x, rows), x[rows])
    with pytest.raises(RelaxishError, match="1 to 3"):
        topi.adv_index(te.placeholder((2, 2, 2)), [])


def diagonals(x, d, low, high, above, below):
    """By loops, as TensorFlow describes it."""
    out = x.copy()
    rows, columns = x.shape[-2:]
    for number in range(low, high + 1):
        length = min(rows + min(number, 0), columns - max(number, 0))
        right = (number >= 0 and above) or (number <= 0 and below)
        for k in range(length):
            at = k + (d.shape[-1] - length if right else 0)
            out[..., k + max(-number, 0), k + max(number, 0)] = d[..., high - number, at]
    return out


@both
@pytest.mark.parametrize("align", ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])
@pytest.mark.parametrize("k", [(-2, 1), (0, 2), (-1, 0)])
def test_matrix_set_diag(run, align, k):
    x = normal(2, 4, 6)
    longest = max(min(4 + min(n, 0), 6 - max(n, 0)) for n in range(k[0], k[1] + 1))
    d = normal(2, k[1] - k[0] + 1, longest)
    wanted = diagonals(x, d, *k, align.startswith("RIGHT"), align.endswith("RIGHT"))
    np.testing.assert_array_equal(run(lambda a, b: topi.matrix_set_diag(a, b, k, align), x, d), wanted)


@both
def test_matrix_set_one_diagonal(run):
    x, d = normal(3, 5, 4), normal(3, 3)
    for k in (1, -2):
        wanted = diagonals(x, d[:, None], k, k, False, False)
        np.testing.assert_array_equal(run(lambda a, b: topi.matrix_set_diag(a, b, k), x, d), wanted)


@both
def test_sparse_to_dense(run):
    places, values = np.array([[0, 3], [2, 1], [4, 0]], "int32"), normal(3)
    wanted = np.full((5, 4), -1.5, "float32")
    wanted[tuple(places.T)] = values
    np.testing.assert_array_equal(run(lambda p, v: topi.sparse_to_dense(p, (5, 4), v, -1.5), places, values), wanted)
    row = np.zeros(6, "float32")
    row[[4, 1]] = values[0]
    got = run(lambda p, v: topi.sparse_to_dense(p, (6,), v), np.array([4, 1], "int64"), values[0])
    np.testing.assert_array_equal(got, row)


@both
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 33])
def test_searchsorted(run, count, right):
    rng = np.random.default_rng(count)
    table = np.sort(rng.integers(-9, 9, (3, count)), axis=1).astype("float32")
    values = rng.integers(-11, 11, (3, 5)).astype("float32")
    wanted = torch.searchsorted(torch.from_numpy(table), torch.from_numpy(values), right=right).numpy()
    np.testing.assert_array_equal(run(lambda s, v: topi.searchsorted(s, v, right), table, values), wanted)
    one = torch.searchsorted(torch.from_numpy(table[0]), torch.from_numpy(values), right=right).numpy()
    got = run(lambda s, v: topi.searchsorted(s, v, right, "int32"), table[0], values)
    np.testing.assert_array_equal(got, one)
    assert got.dtype == np.int32


@both
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("kind", ["int32", "float32"])
def test_unique(run, is_sorted, kind):
    x = np.random.default_rng(3).integers(-4, 5, 23).astype(kind)
    found, first, which, number, counts = run(lambda a: topi.unique(a, is_sorted, True), x)
    elements, places, back, often = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(elements)) if is_sorted else np.argsort(places)
    n = int(number[0])
    assert n == len(elements)
    np.testing.assert_array_equal(found[:n], elements[order])
    np.testing.assert_array_equal(first[:n], places[order])
    np.testing.assert_array_equal(counts[:n], often[order])
    np.testing.assert_array_equal(found[which], x)
    assert len(run(lambda a: topi.unique(a), x)) == 4


@pytest.mark.parametrize(
    "text, shapes",
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("...ij,...kj->...ik", [(2, 3, 4), (5, 4)]),
        ("ii", [(4, 4)]),
        ("i,j", [(3,), (2,)]),
    ],
)
def test_einsum(text, shapes):
    given = [normal(*s) for s in shapes]
    np.testing.assert_allclose(
        evaluate(lambda *t: topi.einsum(text, *t), *given), np.einsum(text, *given), rtol=2e-5, atol=1e-6
    )
    with pytest.raises(RelaxishError, match="operands"):
        topi.einsum(text, *[te.placeholder(s) for s in [*shapes, (2,)]])


@both
@pytest.mark.parametrize("inverse", [False, True])
def test_dft(run, inverse):
    re, im = normal(2, 3, 12), normal(2, 3, 12)
    wanted = (np.fft.ifft if inverse else np.fft.fft)(re + 1j * im)
    got = run(lambda a, b: topi.dft(a, b, inverse), re, im)
    np.testing.assert_allclose(got[0], wanted.real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], wanted.imag, rtol=1e-4, atol=1e-5)


@both
@pytest.mark.parametrize("width, normalized, onesided", [(16, False, True), (10, True, True), (16, True, False)])
def test_stft(run, width, normalized, onesided):
    x, window = normal(2, 50), np.hanning(width).astype("float32") + np.float32(0.1)
    wanted = torch.stft(
        torch.from_numpy(x), 16, 5, width, torch.from_numpy(window), center=False, normalized=normalized, onesided=onesided,
        return_complex=True,
    )  # fmt: skip
    wanted = torch.view_as_real(wanted).numpy()
    got = run(lambda a, w: topi.stft(a, 16, 5, width, w, normalized, onesided, wanted.shape), x, window)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def in_blocks(x, block):
    n, c, h, w = x.shape
    return x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2).copy()


@pytest.mark.parametrize(
    "groups, stride, padding, dilation", [(1, 1, 1, 1), (2, (2, 1), (1, 0), 1), (1, 1, (2, 1, 0, 1), 2)]
)
def test_conv2d_in_blocks(groups, stride, padding, dilation):
    x, w = normal(2, 8, 7, 6), normal(16, 8 // groups, 3, 2)
    pads = padding if isinstance(padding, tuple) and len(padding) == 4 else None
    image = torch.from_numpy(x)
    if pads is not None:
        image = functional.pad(image, (pads[1], pads[3], pads[0], pads[2]))
    wanted = functional.conv2d(
        image, torch.from_numpy(w), None, stride, 0 if pads else padding, dilation, groups
    ).numpy()
    kernel = w.reshape(4, 4, 8 // groups // 2, 2, 3, 2).transpose(0, 2, 4, 5, 3, 1).copy()
    got = evaluate(
        lambda a, k: topi.nn.conv2d_NCHWc(a, k, stride, padding, dilation, "NCHW2c", "NCHW4c"), in_blocks(x, 2), kernel
    )
    np.testing.assert_allclose(got, in_blocks(wanted, 4), rtol=1e-4, atol=1e-5)
    with pytest.raises(RelaxishError, match="blocks"):
        image, odd = te.placeholder((1, 4, 5, 5, 2)), te.placeholder((3, 2, 3, 3, 2, 4))
        topi.nn.conv2d_NCHWc(image, odd, 1, 0, 1, "NCHW2c", "NCHW4c")


@pytest.mark.parametrize(
    "multiplier, stride, padding, dilation", [(1, 1, 1, 1), (2, (2, 1), (1, 0), 1), (1, 2, "SAME", 1)]
)
def test_depthwise_channels_last_and_in_blocks(multiplier, stride, padding, dilation):
    x, w = normal(2, 4, 7, 6), normal(4 * multiplier, 1, 3, 3)
    image, pads = torch.from_numpy(x), padding
    if padding == "SAME":  # one row and column in front, one behind
        image, pads = functional.pad(image, (1, 1, 1, 1)), 0
    wanted = functional.conv2d(image, torch.from_numpy(w), None, stride, pads, dilation, 4).numpy()
    filters = w.reshape(4, multiplier, 3, 3).transpose(2, 3, 0, 1)
    last = x.transpose(0, 2, 3, 1).copy()
    for layout, kernel in (("HWOI", filters), ("HWIO", filters.transpose(0, 1, 3, 2))):
        got = evaluate(
            lambda a, k: topi.nn.depthwise_conv2d_nhwc(a, k, stride, padding, dilation, layout), last, kernel.copy()
        )
        np.testing.assert_allclose(got, wanted.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
    blocks = w.reshape(2 * multiplier, 2, 1, 3, 3).transpose(0, 2, 3, 4, 1)[:, :, :, :, None].copy()
    got = evaluate(
        lambda a, k: topi.nn.depthwise_conv2d_NCHWc(a, k, stride, padding, dilation, "NCHW2c", "NCHW2c"),
        in_blocks(x, 2), blocks,
    )  # fmt: skip
    np.testing.assert_allclose(got, in_blocks(wanted, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
@pytest.mark.parametrize("method", ["nearest_neighbor", "trilinear"])
def test_upsampling3d(layout, method):
    x = normal(1, 2, 3, 4, 5)
    mode = "trilinear" if method == "trilinear" else "nearest"
    wanted = functional.interpolate(torch.from_numpy(x), scale_factor=(2, 3, 2), mode=mode).numpy()
    given = x if layout == "NCDHW" else x.transpose(0, 2, 3, 4, 1).copy()
    transform = "half_pixel" if method == "trilinear" else "asymmetric"
    got = evaluate(lambda a: topi.nn.upsampling3d(a, 2, 3, 2, layout, method, transform), given)
    np.testing.assert_allclose(got if layout == "NCDHW" else got.transpose(0, 4, 1, 2, 3), wanted, rtol=1e-4, atol=1e-5)


def bent_convolution(x, offset, w, stride, pad, dilation, deformable, groups):
    """By loops over everything."""
    n, c, height, width = x.shape
    filters, inner, kh, kw = w.shape
    _, _, rows, columns = offset.shape
    out = np.zeros((n, filters, rows, columns))

    def at(image, y, x):
        y0, x0 = int(np.floor(y)), int(np.floor(x))
        total = 0.0
        for yy, wy in ((y0, 1 - (y - y0)), (y0 + 1, y - y0)):
            for xx, wx in ((x0, 1 - (x - x0)), (x0 + 1, x - x0)):
                if 0 <= yy < height and 0 <= xx < width:
                    total += image[yy, xx] * wy * wx
        return total

    for b, f, r, s, k, i, j in np.ndindex(n, filters, rows, columns, inner, kh, kw):
        channel = f // (filters // groups) * inner + k
        tap = ((channel // (c // deformable)) * kh * kw + i * kw + j) * 2
        y = r * stride - pad + i * dilation + offset[b, tap, r, s]
        xx = s * stride - pad + j * dilation + offset[b, tap + 1, r, s]
        out[b, f, r, s] += at(x[b, channel], y, xx) * w[f, k, i, j]
    return out


@pytest.mark.parametrize(
    "stride, pad, dilation, deformable, groups", [(1, 1, 1, 1, 1), (2, 0, 1, 2, 1), (1, 1, 2, 2, 2)]
)
def test_deformable_convolution(stride, pad, dilation, deformable, groups):
    x, w = normal(1, 4, 6, 5), normal(2, 4 // groups, 3, 2)
    rows = (6 + 2 * pad - 2 * dilation - 1) // stride + 1
    columns = (5 + 2 * pad - dilation - 1) // stride + 1
    offset = normal(1, 12 * deformable, rows, columns) * 2
    wanted = bent_convolution(x, offset, w, stride, pad, dilation, deformable, groups)
    got = evaluate(
        lambda a, o, k: topi.nn.deformable_conv2d_nchw(a, o, k, stride, pad, dilation, deformable, groups, "float32"),
        x, offset, w,
    )  # fmt: skip
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    last = [x.transpose(0, 2, 3, 1).copy(), offset.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy()]
    got = evaluate(
        lambda a, o, k: topi.nn.deformable_conv2d_nhwc(a, o, k, stride, pad, dilation, deformable, groups, None), *last
    )
    np.testing.assert_allclose(got, wanted.transpose(0, 2, 3, 1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernel, most, stride1, stride2, pad", [(1, 2, 1, 1, 2), (3, 3, 2, 2, 4)])
@pytest.mark.parametrize("is_multiply", [True, False])
def test_correlation(kernel, most, stride1, stride2, pad, is_multiply):
    a, b = normal(1, 3, 8, 7), normal(1, 3, 8, 7)
    got = evaluate(lambda x, y: topi.nn.correlation_nchw(x, y, kernel, most, stride1, stride2, pad, is_multiply), a, b)
    widths = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    first, second = np.pad(a, widths), np.pad(b, widths)
    radius = most // stride2
    wanted = np.zeros(got.shape)
    for q, y, x in np.ndindex(*got.shape[1:]):
        top, left = y * stride1 + most, x * stride1 + most
        dy, dx = (q // (2 * radius + 1) - radius) * stride2, (q % (2 * radius + 1) - radius) * stride2
        one = first[0, :, top : top + kernel, left : left + kernel]
        other = second[0, :, top + dy : top + dy + kernel, left + dx : left + dx + kernel]
        wanted[0, q, y, x] = np.mean(one * other if is_multiply else np.abs(one - other))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def between(image, y, x):
    """A value between the elements of an image; nothing far outside of it."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return []
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    wy, wx = y - y0, x - x0
    return [
        image[y0, x0] * (1 - wy) * (1 - wx), image[y0, x1] * (1 - wy) * wx, image[y1, x0] * wy * (1 - wx), image[y1, x1] * wy * wx
    ]  # fmt: skip


def aligned(x, rois, size, scale, largest, ratio):
    out = np.zeros((len(rois), x.shape[1], *size))
    for n, c, i, j in np.ndindex(*out.shape):
        image, x1, y1, x2, y2 = rois[n]
        step = [max((b - a) * scale, 1) / s for a, b, s in ((y1, y2, size[0]), (x1, x2, size[1]))]
        counts = [ratio if ratio > 0 else int(np.ceil(s)) for s in step]
        found = []
        for p, q in np.ndindex(*counts):
            y = y1 * scale + i * step[0] + (p + 0.5) * step[0] / counts[0]
            xx = x1 * scale + j * step[1] + (q + 0.5) * step[1] / counts[1]
            found += between(x[int(image), c], y, xx) or [0.0]
        out[n, c, i, j] = max(found) if largest else sum(found) / (counts[0] * counts[1])
    return out


ROIS = np.array([[0, 1.0, 2.0, 9.0, 7.5], [1, -3.0, 0.5, 4.0, 11.0], [1, 6.0, 6.0, 6.2, 6.1]], "float32")


@both
@pytest.mark.parametrize("mode, ratio", [("avg", 2), ("max", 2), (b"avg", -1)])
def test_aligned_regions(run, mode, ratio):
    x = normal(2, 3, 9, 8)
    wanted = aligned(x, ROIS, (3, 2), 0.7, mode == "max", ratio)
    got = run(lambda a, r: topi.vision.roi_align_nchw(a, r, (3, 2), 0.7, mode, ratio), x, ROIS)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    last = x.transpose(0, 2, 3, 1).copy()
    got = run(lambda a, r: topi.vision.roi_align_nhwc(a, r, (3, 2), 0.7, mode, ratio), last, ROIS)
    np.testing.assert_allclose(got, wanted.transpose(0, 2, 3, 1), rtol=1e-3, atol=1e-4)
    with pytest.raises(RelaxishError, match="avg or max"):
        topi.vision.roi_align_nchw(te.placeholder((1, 1, 4, 4)), te.placeholder((1, 5)), 2, 1.0, "sum")


@both
def test_pooled_regions(run):
    x, rois = normal(2, 2, 9, 8), np.array([[0, 1, 2, 6, 7], [1, 0, 0, 3, 14], [0, 4, 4, 4, 4]], "float32")
    got = run(lambda a, r: topi.vision.roi_pool_nchw(a, r, (3, 2), 0.5), x, rois)
    wanted = np.zeros(got.shape)
    for n, c, i, j in np.ndindex(*got.shape):
        image, *bounds = rois[n]
        x1, y1, x2, y2 = (int(np.floor(b * 0.5 + 0.5)) for b in bounds)
        cells = []
        for first, last, size, at, limit in ((y1, y2, 3, i, 9), (x1, x2, 2, j, 8)):
            step = max(last - first + 1, 1) / size
            cells.append(
                slice(
                    min(max(int(at * step) + first, 0), limit),
                    min(max(int(np.ceil((at + 1) * step)) + first, 0), limit),
                )
            )
        part = x[int(image), c, cells[0], cells[1]]
        wanted[n, c, i, j] = part.max() if part.size else 0
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
