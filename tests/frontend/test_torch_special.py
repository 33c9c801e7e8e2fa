"""Special functions, orderings, searches and bags of PyTorch, against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxish  # noqa: E402
from relaxish.frontend.torch import from_exported_program  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def compare(model, inputs, dynamic=None, others=()):
    if not isinstance(model, nn.Module):
        model, dynamic = Of(model), None if dynamic is None else (dynamic,)
    model.eval()
    with torch.no_grad():
        program = torch.export.export(model, inputs, dynamic_shapes=dynamic)
        mod = from_exported_program(program)
        machine = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
        for given in (inputs, *others):
            wanted = model(*given)
            wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
            got = machine["main"](*(relaxish.nd.array(x.numpy()) for x in given))
            assert len(got) == len(wanted)
            for g, w in zip(got, wanted, strict=True):
                assert g.numpy().dtype == w.numpy().dtype
                np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=2e-4, atol=2e-5)


def some(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_functions_of_two_arguments():
    a = torch.tensor([[0.0, -0.0, 3.0, -1e30, 1e-30], [math.inf, -2.0, 5.0, 1e30, 0.5]])
    b = torch.tensor([0.0, -1.0, -4.0, 1e30, 1e-30])
    compare(lambda x, y: (torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y)), (a, b))
    compare(lambda x: torch.copysign(x, -2.0), (a,))


def test_inverse_of_erf_and_logarithm_of_gamma():
    compare(torch.erfinv, (torch.tensor([-1.0, -0.999999, -0.7, -1e-6, 0.0, 0.3, 0.99, 1.0]),))
    compare(torch.lgamma, (torch.tensor([-2.5, -0.25, 0.1, 0.5, 1.0, 2.0, 3.7, 30.0, 1e4]),))


def test_medians():
    x = some(3, 4, 5)
    compare(lambda x: (*torch.median(x, 1), *torch.median(x, -1, keepdim=True), torch.median(x)), (x,))
    compare(lambda x: (*torch.kthvalue(x, 2), *torch.kthvalue(x, 3, 1, True)), (x,))


def test_running_extremes():
    x = torch.tensor([[1, 3, 3, 2, 7, 7, -1], [5, 4, 4, 6, 0, 6, 6]])
    compare(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 0)), (x,))
    compare(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, -1)), (some(2, 5, 3),))
    # A large element does not hide the sum of those before it.
    compare(lambda x: torch.logcumsumexp(x, 1), (torch.tensor([[-300.0, -300.0, 0.0, 200.0, 1.0]]),))


def test_searches():
    edges, values = some(3, 6).sort(-1)[0], some(3, 4, seed=1)
    compare(
        lambda e, v: (torch.searchsorted(e, v), torch.searchsorted(e, v, right=True, out_int32=True)), (edges, values)
    )
    row = torch.tensor([1.0, 2.0, 2.0, 4.0])
    compare(
        lambda v: (torch.searchsorted(row, v), torch.searchsorted(row, v, side="right")),
        (torch.tensor([[2.0, 0.0, 9.0]]),),
    )


@pytest.mark.parametrize(("shape", "args"), [((4, 6), (0,)), ((4, 6), (2,)), ((6, 4), (-3,)), ((2, 3, 4), (-1, 2, 0))])
def test_diagonals(shape, args):
    compare(lambda x: torch.diagonal(x, *args) * 2, (some(*shape),))


def test_trace_and_distances():
    compare(torch.trace, (some(4, 4),))
    a, b = some(2, 3, 5), some(2, 4, 5, seed=1)
    compare(lambda a, b: (torch.cdist(a, b), torch.cdist(a, b, 1.0), torch.cdist(a, b, 3.0)), (a, b))
    compare(nn.Bilinear(4, 5, 6), (some(3, 4), some(3, 5, seed=1)))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    torch.manual_seed(0)
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 0]), torch.tensor([0, 2, 2, 5])
    compare(nn.EmbeddingBag(9, 4, mode=mode), (indices, offsets))
    compare(nn.EmbeddingBag(9, 4, mode=mode, padding_idx=4), (indices.reshape(1, 7),))


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce):
    x, source = some(3, 4), some(5, 4, seed=1)
    index = torch.tensor([[0, 1, 2, 0], [0, 0, 1, 2], [2, 2, 0, 0]])
    compare(lambda x, s: x.scatter_reduce(0, index, s, reduce), (x, source))
    compare(lambda x, s: x.scatter_reduce(0, index[:2], s, reduce, include_self=False), (x, source))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (1, 2, 3), "groups": 2, "bias": False},
        {"dilation": 2, "padding": (1, 0, 2)},
    ],
)
def test_transposed_convolution_in_three_dimensions(options):
    torch.manual_seed(0)
    compare(nn.ConvTranspose3d(4, 6, (3, 2, 3), **options), (some(2, 4, 3, 4, 3),))


def test_adaptive_max_pooling():
    compare(nn.AdaptiveMaxPool2d((3, 2)), (some(2, 3, 7, 5),))
    compare(nn.AdaptiveMaxPool2d((None, 1)), (some(2, 3, 7, 5),))
    compare(nn.AdaptiveMaxPool1d(4), (some(2, 3, 6),))


def test_randomised_slopes_are_fixed_outside_of_training():
    compare(nn.RReLU(0.1, 0.4), (some(3, 4),))


def test_batches_of_unknown_size():
    batch = torch.export.Dim("batch", min=1, max=16)

    def everything(x):
        return (
            *torch.median(x, 1), *torch.cummax(x, 1), torch.logcumsumexp(x, 0), torch.atan2(x, x.abs() + 1),
            torch.diagonal(x.reshape(-1, 2, 3), 0, 1, 2), torch.cdist(x, x[:, :6]), x.repeat(2, 1),
        )  # fmt: skip

    compare(everything, (some(3, 6),), ({0: batch},), ((some(1, 6, seed=1),), (some(5, 6, seed=2),)))


def test_copies_of_a_number_known_at_run_time():
    sizes = ({0: torch.export.Dim("a", min=2, max=9)}, {0: torch.export.Dim("c", min=2, max=9)})

    def copied(x, w):
        return x.repeat(2, w.shape[0]), w.repeat(x.shape[0]), w.repeat(x.shape[0], 1)

    compare(copied, (some(3, 2), some(4, seed=1)), sizes, ((some(2, 2), some(5, seed=1)),))


def test_instance_norm_of_unknown_batches():
    batch = torch.export.Dim("batch", min=1, max=16)
    compare(nn.InstanceNorm2d(3, affine=True), (some(2, 3, 4, 5),), ({0: batch},), ((some(5, 3, 4, 5),),))


def test_int8_products_are_summed_in_int32() -> None:
    a = torch.randint(-128, 128, (19, 1000), dtype=torch.int8)
    b = torch.randint(-128, 128, (1000, 24), dtype=torch.int8)
    compare(torch._int_mm, (a, b))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resizing_to_the_same_size_keeps_what_is_not_finite_where_it_is(mode):
    x = some(2, 3, 4, 5)
    x[0, 1, 2, 3], x[1, 0, 0, 0], x[1, 2, 3, 4] = math.inf, math.nan, -math.inf
    # PyTorch makes NaN of infinities when it resizes linearly, and leaves the elements beside them alone.
    compare(lambda a: F.interpolate(a, scale_factor=1.0, mode=mode).nan_to_num(7.0, 7.0, 7.0), (x,))
    compare(lambda a: F.interpolate(a, size=(4, 5), mode=mode).nan_to_num(7.0, 7.0, 7.0), (x,))
