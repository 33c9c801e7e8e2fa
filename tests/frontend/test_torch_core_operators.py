"""Operators of PyTorch's core set that need more than one tensor in, one tensor out: transforms, memory, chance, sizes of data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torch_checks import check, export, imported

import relaxish
from relaxish.frontend.torch import from_exported_program
from relaxish.frontend.torch.coverage import core_operators, table
from relaxish.support.errors import OpNotImplemented

_DOC = Path(__file__).parents[2] / "docs" / "torch-operators.md"


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _parts(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x)


_TRANSFORMS: dict[str, Any] = {
    "rfft": (lambda x: _parts(torch.fft.rfft(x)), (3, 10)),
    "rfft of two axes": (lambda x: _parts(torch.fft.rfft2(x, norm="ortho")), (3, 6, 5)),
    "irfft, odd": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=9), (3, 9)),
    "irfft along the first axis": (lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), n=7, dim=0), (7, 3)),
    "sizes": (lambda x: torch.fft.fft(x).abs(), (3, 9)),
    "fftn": (lambda x: _parts(torch.fft.fftn(x)), (3, 4, 5)),
    "there and back": (lambda x: _parts(torch.fft.ifft(torch.fft.fft(x) * (1 + 2j))), (3, 9)),
    "mixing tokens": (lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, (2, 8, 6)),
    "quotient": (lambda x: _parts(torch.fft.fft(x) / (torch.fft.fft(x.flip(0)) + 3j)), (2, 5)),
    "sums": (lambda x: _parts(torch.fft.fft(x) - torch.fft.fft(x * 2).conj() + x), (2, 5)),
    "windows": (
        lambda x: torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs(),
        (2, 64),
    ),
}


@pytest.mark.parametrize("name", _TRANSFORMS)
def test_transforms(name: str) -> None:
    function, shape = _TRANSFORMS[name]
    check(function, _normal(*shape), rtol=1e-4, atol=1e-4)


def test_products_of_spectra_with_weights() -> None:
    check(
        lambda x, w: torch.fft.irfft2(torch.fft.rfft2(x) * torch.view_as_complex(w)),
        _normal(2, 8, 8),
        _normal(2, 8, 5, 2),
    )


def test_rotary_embeddings_by_complex_numbers() -> None:
    def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.reshape(2, 5, 4, 2)) * turns).flatten(2)

    check(rotate, _normal(2, 5, 8), _normal(5, 4))


def test_transforms_of_sizes_known_at_run_time() -> None:
    dims = {0: torch.export.Dim("b", min=2, max=64), 1: torch.export.Dim("n", min=3, max=100)}

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * 2, n=x.shape[1], norm="ortho")

    module = from_exported_program(export(run, _normal(3, 10), dynamic_shapes=((dims,),)))
    machine = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    for shape in ((3, 10), (5, 7), (2, 33)):
        x = _normal(*shape)
        np.testing.assert_allclose(
            machine["main"](relaxish.nd.array(x.numpy()))[0].numpy(), run(x), rtol=1e-4, atol=1e-4
        )


def test_complex_numbers_say_what_they_cannot_do() -> None:
    with pytest.raises(OpNotImplemented, match="complex results"):
        from_exported_program(export(torch.fft.rfft, _normal(3, 4)))
    with pytest.raises(OpNotImplemented, match=r"exp\.default of complex numbers"):
        from_exported_program(export(lambda x: torch.fft.rfft(x).exp().abs(), _normal(3, 4)))


def test_elements_by_their_place_in_memory() -> None:
    check(lambda x: torch.as_strided(x, (3, 4), (2, 1), 1), _normal(20))
    check(lambda x: torch.as_strided(x.t(), (3, 4), (2, 1), 1), _normal(4, 5))
    check(lambda x: torch.as_strided(x, (2, 2, 2), (0, 5, 3)) + 1, _normal(3, 4))
    with pytest.raises(OpNotImplemented, match="skips elements"):
        from_exported_program(export(lambda x: torch.as_strided(x[:, ::2], (2, 2), (1, 1)), _normal(4, 6)))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_rows(p: float) -> None:
    check(lambda x: torch.pdist(x, p), _normal(6, 3))


@pytest.mark.parametrize(("shape", "means"), [((2, 3, 10, 7), (4, 5)), ((3, 3, 9), (4, 5)), ((1, 2, 6, 6), (3, 2))])
def test_gradients_of_adaptive_means(shape: tuple[int, ...], means: tuple[int, int]) -> None:
    backward = torch.ops.aten._adaptive_avg_pool2d_backward
    check(backward, _normal(*shape[:-2], *means), _normal(*shape))


def test_results_whose_size_the_data_decide() -> None:
    x = _normal(4, 5, 2)
    check(lambda x: torch.nonzero(x > 0) + 1, x)
    check(lambda x: x[x > 0] * 2, x)
    check(lambda x, y: x[y > 0].relu(), x, _normal(4, 5))
    check(lambda x, y: x[:, y > 0], x, _normal(5))
    check(lambda x: x[x > 100] * 2, x)  # none


_aten = torch.ops.aten
_TAKEN_APART: dict[str, Any] = {
    "col2im": (lambda x: _aten.col2im(x, [6, 7], [2, 3], [1, 1], [0, 1], [2, 1]), (2, 12, 21)),
    "grid_sampler_2d": (lambda x: _aten.grid_sampler_2d(x, 1.3 * x[..., :2], 0, 0, False), (2, 3, 4, 5)),
    "native_layer_norm_backward": (
        lambda x: _aten.native_layer_norm_backward(
            x * x, x, [5], x.mean(1, True), (x.var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt(), x[0], x[1], [True] * 3
        ),
        (4, 5),
    ),
    "native_group_norm_backward": (
        lambda x: _aten.native_group_norm_backward(
            x * x, x, *_aten.native_group_norm(x, None, None, 3, 4, 5, 2, 1e-5)[1:], x[0, :, 0].clone(), 3, 4, 5, 2,
            [True] * 3,
        ),
        (3, 4, 5),
    ),
    "max_pool2d_with_indices_backward": (
        lambda x: _aten.max_pool2d_with_indices_backward(
            x[:, :, :3, :3], x, [2, 2], [2, 2], [0, 0], [1, 1], False,
            _aten.max_pool2d_with_indices(x, [2, 2], [2, 2])[1],
        ),
        (2, 3, 6, 6),
    ),
    "reflection_pad1d": (lambda x: _aten.reflection_pad1d(x, [2, 3]), (2, 3, 5)),
    "reflection_pad2d": (lambda x: _aten.reflection_pad2d(x, [2, 1, 0, 3]), (2, 3, 5, 6)),
    "reflection_pad3d": (lambda x: _aten.reflection_pad3d(x, [1, 2, 0, 1, 2, 1]), (2, 2, 3, 4, 5)),
    "replication_pad2d": (lambda x: _aten.replication_pad2d(x, [2, 1, 0, 3]), (2, 3, 5, 6)),
    "replication_pad3d": (lambda x: _aten.replication_pad3d(x, [1, 2, 0, 1, 4, 1]), (2, 2, 3, 4, 5)),
    "embedding_dense_backward": (
        lambda x: _aten.embedding_dense_backward(x, torch.tensor([[1, 4, 1], [0, 2, 1]]), 6, 2, True), (2, 3, 5)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _TAKEN_APART)
def test_operators_that_pytorch_takes_apart(name: str) -> None:
    function, shape = _TAKEN_APART[name]
    check(function, _normal(*shape), rtol=1e-4, atol=1e-4)


def test_other_shapes_of_the_same_elements() -> None:
    check(lambda x: _aten.resize(x, [2, 3]) * 2, _normal(3, 4))


def _drawn(function: Any) -> np.ndarray:
    x = torch.ones(3)
    return imported(from_exported_program(export(lambda x: function(x) + 0 * x.sum(), x)), x)[0]


def test_draws_by_chance() -> None:
    for draw, mean, spread in (
        (lambda x: torch.rand(100, 80), 0.5, 12**-0.5),
        (lambda x: torch.randn(100, 80), 0.0, 1.0),
        (lambda x: torch.rand_like(x.expand(100, 80, 3)), 0.5, 12**-0.5),
    ):
        # Six standard errors: it fails by chance once in 500 million times.
        values = _drawn(draw)
        assert abs(values.mean() - mean) < 6 * spread / values.size**0.5
        assert abs(values.std() - spread) < 0.1 * spread
        assert len(np.unique(values)) > 0.9 * values.size
    assert sorted(_drawn(lambda x: torch.randperm(50)).tolist()) == list(range(50))


def test_the_page_lists_every_core_operator() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| ([\w ,]+) \|", _DOC.read_text(), re.M))
    made = dict(re.findall(r"^\| `([\w.]+)` \| ([\w ,]+) \|", table(), re.M))
    assert len(made) == len(core_operators()) > 150
    known = {name: how for name, how in made.items() if name in rows}
    assert known == {name: rows[name] for name in known}, (
        "python -m relaxish.frontend.torch.coverage > docs/torch-operators.md"
    )
    assert "refused" not in known.values()
