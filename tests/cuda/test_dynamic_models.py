"""PyTorch modules with a dynamic batch and sequence by the default CUDA pipeline, in the emulator with all its checks."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.ir.transform import PassContext
from relaxish.relax.transform import ToMixedPrecision
from relaxish.runtime.nvidia import providers

torch = pytest.importorskip("torch")
pytest.importorskip("llvmlite")
F = torch.nn.functional
SIZES = [(1, 2), (3, 17), (2, 64), (1, 130)]


class Classifier(torch.nn.Module):
    """Embedded tokens to the logarithms of their classes' shares."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50)

    def forward(self, x):
        return F.log_softmax(self.out(F.gelu(self.embed(x))), -1)


class Attention(torch.nn.Module):
    """Causal attention between projections."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

    def forward(self, x):
        batch, length, width = x.shape
        heads = [part.reshape(batch, length, 2, 32).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Gated(torch.nn.Module):
    """A normalised, gated block of a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            torch.nn.Linear(m, n, bias=False) for m, n in ((64, 128), (64, 128), (128, 64))
        )

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def encoder() -> torch.nn.Module:
    return torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


def run(model, make, tag, mixed, tolerance):
    """Compare the model, compiled once, with torch at several sizes."""
    from relaxish.frontend.torch import from_exported_program

    torch.manual_seed(7)
    dims = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=256)}
    with torch.no_grad(), providers.use("emulator"):
        exported = torch.export.export(model.eval(), (make(4, 12),), dynamic_shapes=(dims,))
        mod = from_exported_program(exported, unwrap_unit_return_tuple=True)
        if mixed:
            mod = ToMixedPrecision(out_dtype="float32")(mod)
        with PassContext(opt_level=3):
            machine = relaxish.VirtualMachine(relaxish.compile(mod, relaxish.Target(tag, host="llvm")), relaxish.cuda())
        for size in SIZES:
            x = make(*size)
            got = machine["main"](relaxish.nd.array(x.numpy(), relaxish.cuda())).numpy()
            np.testing.assert_allclose(got, model(x).numpy(), rtol=tolerance, atol=tolerance, err_msg=str(size))


def test_projection_of_a_dynamic_batch():
    """Rows of the product are batch and length fused, a map whose stride is a dynamic size."""
    run(Classifier(), lambda b, s: torch.randint(0, 50, (b, s)), "nvidia/nvidia-a100", False, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["nvidia/nvidia-a100", "nvidia/nvidia-h100"])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("make_model", [Attention, Gated, encoder])
def test_transformer_parts(make_model, mixed, tag):
    run(make_model(), lambda b, s: torch.randn(b, s, 64), tag, mixed, 3e-2 if mixed else 1e-4)
