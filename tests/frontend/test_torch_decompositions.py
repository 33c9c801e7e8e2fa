"""Operators of exported programs that have no converter: PyTorch takes them apart, the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxish  # noqa: E402
from relaxish.frontend.torch import from_exported_program  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Recurrent(nn.Module):
    """Two layers, both ways."""

    def __init__(self, kind):
        super().__init__()
        self.cells = kind(8, 16, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.cells(x)[0]


class Sampled(nn.Module):
    def forward(self, x, places):
        return F.grid_sample(x, places, align_corners=False)


CASES = {
    "lstm": (lambda: Recurrent(nn.LSTM), [(3, 6, 8)]),
    "gru": (lambda: Recurrent(nn.GRU), [(3, 6, 8)]),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), [(2, 3, 5, 6)]),
    "instance_norm_plain": (lambda: nn.InstanceNorm1d(3), [(2, 3, 7)]),
    "fold": (lambda: nn.Fold((6, 6), 2, stride=2), [(2, 8, 9)]),
    "grid_sample": (Sampled, [(1, 2, 5, 5), (1, 4, 4, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_decomposed(name):
    make, shapes = CASES[name]
    torch.manual_seed(3)
    model = make().eval()
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with torch.no_grad():
        want = model(*inputs).numpy()
        mod = from_exported_program(torch.export.export(model, inputs), unwrap_unit_return_tuple=True)
    machine = relaxish.VirtualMachine(relaxish.compile(mod, "llvm"), relaxish.cpu())
    got = machine["main"](*(relaxish.nd.array(x.numpy()) for x in inputs)).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_operators_with_a_converter_stay_whole():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.instance = nn.LayerNorm(6), nn.InstanceNorm1d(3)

        def forward(self, x):
            return self.norm(self.instance(x))

    mod = from_exported_program(torch.export.export(Both().eval(), (torch.randn(2, 3, 6),)))
    text = mod.script()
    assert "R.nn.layer_norm" in text and "R.mean" in text
