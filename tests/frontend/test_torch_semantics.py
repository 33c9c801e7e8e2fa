"""Corners of torch's operators: second results, norms and their statistics, scalars, crossed bounds, odd targets."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from frontend.torch_checks import check, export  # noqa: E402
from relaxish.frontend.torch import from_exported_program  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402

F = torch.nn.functional
aten = torch.ops.aten


def _seeded(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) * 11 + len(shape)))


def _whole(*shape):
    """Numbers that repeat: ties."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


SECOND = {
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), (2, 3, 11)),
    "max_pool2d": (lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), return_indices=True), (2, 3, 9, 8)),
    "max_pool2d_dilated": (lambda x: F.max_pool2d(x, 2, 2, 0, 3, return_indices=True), (2, 3, 9, 8)),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 3, 2, 0, 1, True, return_indices=True), (1, 2, 8, 8)),
    "max_pool2d_indices_only": (lambda x: F.max_pool2d(x, 2, return_indices=True)[1], (1, 2, 8, 8)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True), (1, 2, 4, 5, 3)),
    "max_pool2d_unbatched": (lambda x: F.max_pool2d(x, 2, return_indices=True), (3, 8, 6)),
    "adaptive1d": (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), (2, 3, 11)),
    "adaptive2d": (lambda x: F.adaptive_max_pool2d(x, (3, None), return_indices=True), (2, 3, 7, 5)),
    "adaptive3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 1), return_indices=True), (1, 2, 5, 7, 4)),
    "unpooled": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (1, 2, 6, 8)),
    "layer_norm": (lambda x: aten.native_layer_norm(x, [5, 3], None, None, 1e-5), (2, 4, 5, 3)),
    "group_norm": (lambda x: aten.native_group_norm(x, None, None, 2, 6, 20, 3, 1e-5), (2, 6, 4, 5)),
    "batch_norm": (lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5), (4, 3, 5)),
    "batch_norm_without_batch": (
        lambda x: aten._native_batch_norm_legit_no_training(x, None, None, x[0, :, 0], x[1, :, 0].exp(), 0.1, 1e-5),
        (4, 3, 5),
    ),
    "rms_norm": (lambda x: aten._fused_rms_norm(x, [5], None, 1e-3), (4, 3, 5)),
    "var_mean": (lambda x: torch.var_mean(x, 1, correction=0, keepdim=True), (4, 3, 5)),
    "std_mean": (lambda x: torch.std_mean(x), (4, 3, 5)),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), (4, 3, 5)),
    "median": (lambda x: x.median(1), (4, 3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", SECOND)
def test_all_results_come_back(name):
    function, shape = SECOND[name]
    check(function, _seeded(*shape), rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in SECOND if "pool" in n or "adaptive" in n])
def test_positions_of_ties(name):
    function, shape = SECOND[name]
    check(function, _whole(*shape))


def test_positions_among_extremes():
    x = _whole(1, 2, 8, 8)
    x[0, 0, 2:6] = float("-inf")
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1], x)
    x[0, 1, 3, 2:5] = float("nan")
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1], x)
    check(lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True)[1], x)


def test_results_without_counterpart_are_refused():
    def function(x, ids):
        return aten._embedding_bag(x, ids, torch.tensor([0, 2]))[1]

    with pytest.raises(OpNotImplemented):
        from_exported_program(export(function, _seeded(5, 3), torch.tensor([0, 1, 4])))


VALUES = {
    "celu": lambda x: F.celu(x, 0.4),
    "celu_one": lambda x: F.celu(x),
    "celu_large": lambda x: F.celu(x * 200),
    "celu_negative": lambda x: F.celu(x, -0.7),
    "elu": lambda x: F.elu(x, 0.3),
    "elu_large": lambda x: F.elu(x * 200),
    "logarithms": lambda x: (torch.log2(x.abs()), torch.log10(x.abs() + 1)),
    "lerp": lambda x: (torch.lerp(x, x.flip(0), x.sin()), torch.lerp(x, x.flip(0), 0.3)),
    "stack": lambda x: tuple(torch.stack((x, x.cos()), d) for d in (0, 2, 3, 4, -1, -3)),
    "cat_from_the_end": lambda x: (torch.cat((x, x.cos()), -1), torch.cat((x[0, 0], x[0, 1]), -2)),
    "narrow": lambda x: (x.narrow(1, 2, 3), x.narrow(-1, 0, 4)),
    "masked_fill": lambda x: (x.masked_fill(x > 0, 7), x.masked_fill(x[:, :1] > 0, -0.1), x[0].masked_fill(x > 0, 0)),
    "masked_fill_double": lambda x: x.double().masked_fill(x > 0, 0.1),
    "masked_fill_long": lambda x: (x * 9).long().masked_fill(x > 0, 2**40 + 1),
    "masked_fill_inf": lambda x: x.half().masked_fill(x > 0, float("-inf")),
    "clamp_crossed": lambda x: x.clamp(1.0, -0.5),
    "clamp_tensors_crossed": lambda x: torch.clamp(x, x + 0.1, x - 0.3),
    "avg_pool_divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4),
    "avg_pool_divisor_ceil": lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), True, False, 7),
    "avg_pool_ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, True, True),
    "avg_pool_ceil_valid": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "replicate_negative": lambda x: F.pad(x, (-2, 3, 1, -1), "replicate"),
    "reflect_negative": lambda x: F.pad(x, (-1, 3, 2, -2), "reflect"),
    "circular_negative": lambda x: F.pad(x, (-1, 2, 2, -1), "circular"),
    "constant_negative": lambda x: F.pad(x, (-1, 2, 2, -1), value=4.0),
    "safe_softmax": lambda x: aten._safe_softmax(x.masked_fill(x < 0.6, float("-inf")), -1),
    "norm_0": lambda x: torch.linalg.vector_norm(x.relu(), 0, dim=1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=(1, 2)),
    "norm_minus_inf": lambda x: torch.linalg.vector_norm(x, -float("inf"), dim=1, keepdim=True),
    "norm_3": lambda x: x.norm(3, dim=-1),
    "bucketize": lambda x: (torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), torch.bucketize(x, torch.tensor([0.0]), right=True)),
    "var_one": lambda x: x[:, :1].var(1),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "batch_statistics": lambda x: F.batch_norm(x, None, None, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 3),
    "sdpa_masked_row": lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=torch.eye(5, 5) > torch.arange(5) % 2),
    "sdpa_one_key_head": lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, 1:2] * 2),
    "sdpa_groups": lambda x: F.scaled_dot_product_attention(x, x[:, :3], x[:, 3:], enable_gqa=True),
    "sdpa_five_dims": lambda x: F.scaled_dot_product_attention(x[None], x[None, :, :1], x[None], x[..., :5, :5] > -1),
}  # fmt: skip


@pytest.mark.parametrize("beta", [0, 0.5, 1])
@pytest.mark.parametrize("alpha", [1, 2])
def test_products_that_are_added(alpha, beta):
    """Times zero, what is added to is left out, whatever it is."""
    a, b, c = _seeded(4, 5), _seeded(5, 3), _seeded(4, 3)
    c = torch.full_like(c, float("nan")) if beta == 0 else c
    check(lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=beta), c, a, b)
    check(lambda c, a, b: torch.baddbmm(c, a, b, alpha=alpha, beta=beta), c[None], a[None], b[None])
    check(lambda c, a, b: torch.addmv(c, a, b, alpha=alpha, beta=beta), c[:, 0], a, b[:, 0])


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    check(VALUES[name], _seeded(2, 6, 5, 7), rtol=1e-4)


IMAGES = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=(1.3, 0.7), mode="bicubic"),
    "bilinear_smaller": lambda x: F.interpolate(x, scale_factor=0.45, mode="bilinear"),
    "bilinear_own_ratio": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    "bilinear_aligned": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
    "bilinear_twice": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "nearest_size": lambda x: F.interpolate(x, size=(8, 3)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_interpolation_by_a_factor(name):
    check(IMAGES[name], _seeded(2, 3, 5, 7), rtol=1e-4)


def test_numbers_near_the_edge():
    check(lambda x: torch.expm1(x), torch.tensor([1e-9, -3e-7, 1e-4, 0.5, -0.3, 20.0, -40.0]), rtol=1e-6, atol=0)
    check(lambda x: -x, torch.tensor([0, 1, 200, 255], dtype=torch.uint8))
    a = torch.tensor([2**40 + 3, -(2**40) - 3, 7, -7, 7, -7, 0, 2**53 + 1])
    check(lambda a, b: torch.div(a, b, rounding_mode="trunc"), a, torch.tensor([2, 2, -2, -2, 2, 7, 5, 1]))
    check(lambda a, b: a % 1000**b, a % 100, torch.tensor([2, 2, 2, 3, 4, 2, 5, 4]))
    check(lambda a, b: (a % 90) ** b, a, torch.tensor([5, 4, 9, 3, 8, 0, 0, 2]))


def test_composite_operators():
    check(lambda x: (torch.cartesian_prod(x[0], x[1]), x.movedim(0, -1), x.ravel()), _seeded(3, 4))


UNBATCHED = {
    "adaptive_avg": (lambda x: F.adaptive_avg_pool2d(x, 2), (3, 5, 6)),
    "conv_transpose1d": (lambda x: F.conv_transpose1d(x, torch.ones(3, 2, 3) * 0.3, stride=2), (3, 5)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 2) * 0.3), (3, 5, 6)),
    "conv_transpose3d": (lambda x: F.conv_transpose3d(x, torch.ones(3, 2, 2, 2, 2) * 0.3), (3, 3, 4, 5)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (3, 5, 6)),
}


@pytest.mark.parametrize("name", UNBATCHED)
def test_images_without_a_batch(name):
    function, shape = UNBATCHED[name]
    check(function, _seeded(*shape))


INTEGERS = {
    "clamp_float": lambda x: x.clamp(max=1.5),
    "clamp_low": lambda x: x.clamp(min=-1),
    "clamp_crossed": lambda x: x.clamp(3, -2),
    "clip_min_float": lambda x: x.clamp_min(0.5),
    "mean_dtype": lambda x: x.mean(dtype=torch.float64),
    "bool_sum": lambda x: (x > 0).sum(0),
    "where_mixed": lambda x: torch.where(x > 0, x, 0.5),
    "masked_fill": lambda x: x.masked_fill(x > 0, torch.tensor(7)),
    "index_by_bytes": lambda x: torch.index_put(x, ((x[:, 0] > 0).to(torch.uint8),), torch.arange(5).to(x.dtype)),
    "bool_put": lambda x: (x > 0).index_put((torch.tensor([0, 0, 1]),), torch.tensor(True), accumulate=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name, kind):
    check(INTEGERS[name], _whole(4, 5).to(kind))


DIMENSIONLESS = {
    "sum": lambda x: x.sum(0), "mean": lambda x: x.mean(-1, keepdim=True), "amax": lambda x: x.amax(0),
    "max": lambda x: x.max(0), "argmax": lambda x: x.argmax(-1), "argmin": lambda x: x.argmin(), "any": lambda x: x.any(0),
    "all": lambda x: x.all(-1), "softmax": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(0), "cumsum": lambda x: x.cumsum(0), "cumprod": lambda x: x.cumprod(-1),
    "cummax": lambda x: x.cummax(0), "median": lambda x: x.median(0), "sort": lambda x: x.sort(-1),
    "argsort": lambda x: x.argsort(0), "topk": lambda x: x.topk(1), "norm": lambda x: x.norm(dim=0),
    "prod": lambda x: x.prod(0), "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.tensor(0)), "scatter": lambda x: x.scatter(0, torch.tensor(0), 3.0),
    "var": lambda x: x.var(0, correction=0), "flip": lambda x: x.flip(0), "squeeze": lambda x: x.squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(-1), "flatten": lambda x: x.flatten(), "maximum": lambda x: torch.max(x, x * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", DIMENSIONLESS)
def test_tensors_without_dimensions(name):
    check(DIMENSIONLESS[name], torch.tensor(1.25))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_epsilon_of_rms_norm(kind):
    x = (_seeded(3, 8).double() * 1e-3).to(kind)

    def function(x):
        return F.rms_norm(x, (8,)).double()

    check(
        function, x, rtol=2e-2 if kind in (torch.float16, torch.bfloat16) else 1e-5
    ) if kind != torch.bfloat16 else None


TARGETS = torch.tensor([2, 0, 3, 1])
LOSSES = {
    "classes": lambda x, t: F.cross_entropy(x, TARGETS),
    "smooth": lambda x, t: F.cross_entropy(x, TARGETS, label_smoothing=0.2),
    "smooth_weighted": lambda x, t: F.cross_entropy(x, TARGETS, weight=t[0], label_smoothing=0.2, ignore_index=3),
    "smooth_each": lambda x, t: F.cross_entropy(x, TARGETS, reduction="none", ignore_index=0, label_smoothing=0.3),
    "probabilities": lambda x, t: F.cross_entropy(x, t),
    "probabilities_weighted": lambda x, t: F.cross_entropy(x, t, weight=t[1], label_smoothing=0.1),
    "probabilities_each": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "probabilities_sum": lambda x, t: F.cross_entropy(x, t, reduction="sum"),
    "one": lambda x, t: F.cross_entropy(x[0], torch.tensor(2)),
    "one_probabilities": lambda x, t: F.cross_entropy(x[0], t[0]),
    "pixels": lambda x, t: F.cross_entropy(torch.stack([x, t], 2), torch.stack([TARGETS, TARGETS], 1)),
    "nll": lambda x, t: F.nll_loss(x, TARGETS, weight=t[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    check(LOSSES[name], _seeded(4, 4), _seeded(4, 5)[:, :4].softmax(1))


SCATTERED = {
    "add": lambda x, i, s: x.scatter(1, i, s, reduce="add"),
    "multiply": lambda x, i, s: x.scatter(1, i, s, reduce="multiply"),
    "add_number": lambda x, i, s: x.scatter(0, i, 2.5, reduce="add"),
    "scatter_add": lambda x, i, s: x.scatter_add(1, i, s),
    "source_larger": lambda x, i, s: x.scatter_add(1, i[:2, :1], s),
    "masked_scatter_wide": lambda x, i, s: x[0].masked_scatter(x > 0, torch.arange(40.0)),
    "masked_scatter_row": lambda x, i, s: x.masked_scatter(x[0] > 0, torch.arange(40.0)),
    "slice_scatter": lambda x, i, s: torch.slice_scatter(x, s[:, :2], 1, 1, 5, 2),
    "select_scatter": lambda x, i, s: torch.select_scatter(x, s[0], 0, -2),
    "diagonal_scatter": lambda x, i, s: torch.diagonal_scatter(x, s[0, :3], -1),
}  # fmt: skip


@pytest.mark.parametrize("name", SCATTERED)
def test_scatters(name):
    places = torch.tensor([[0, 2, 1, 3, 3], [1, 1, 0, 2, 3], [3, 0, 1, 2, 0], [0, 0, 2, 1, 3]])
    check(SCATTERED[name], _seeded(4, 5), places, _seeded(5, 4).t().contiguous())


def test_dropout_in_training_is_warned_of(caplog):
    with caplog.at_level("WARNING", logger="relaxish"):
        from_exported_program(export(torch.nn.Dropout(0.5).train(), _seeded(3)))
        assert "dropout" in caplog.text
    caplog.clear()
    with caplog.at_level("WARNING", logger="relaxish"):
        from_exported_program(export(torch.nn.Dropout(0.5).eval(), _seeded(3)))
        assert not caplog.text
