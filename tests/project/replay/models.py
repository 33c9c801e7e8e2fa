"""Six models, small, of the kinds that users bring; their weights are parameters, so no number of theirs is in a hash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxish import Target
from relaxish.ir.module import IRModule

__all__ = ["MODELS"]


def _from_torch(model: Any, inputs: tuple[Any, ...], dynamic: Any = None) -> IRModule:
    import torch

    from relaxish.frontend import detach_params
    from relaxish.frontend.torch import from_exported_program

    with torch.no_grad():
        program = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic)
    return detach_params(from_exported_program(program, keep_params_as_input=True))[0]


def residual_network(_: str) -> IRModule:
    """Convolutions, batch norms, a strided shortcut, pooling, a classifier."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
            self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(self.norms[1](self.second(y)) + self.shortcut(x))

    stem = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return _from_torch(nn.Sequential(*stem, Block(16, 16, 1), Block(16, 32, 2), *head), (torch.zeros(1, 3, 64, 64),))


def mobile_network(_: str) -> IRModule:
    """Depthwise and 1x1 convolutions, clipped activations, squeeze and excitation."""
    import torch
    from torch import nn

    class Squeeze(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

        def forward(self, x: Any) -> Any:
            return x * torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))

    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardswish()]
    layers += [
        Squeeze(16),
        nn.Conv2d(16, 24, 1),
        nn.Conv2d(24, 24, 5, 2, 2, groups=24),
        nn.ReLU6(),
        nn.Conv2d(24, 16, 1),
    ]
    return _from_torch(nn.Sequential(*layers), (torch.zeros(1, 3, 56, 56),))


def encoder(_: str) -> IRModule:
    """Two layers of a transformer encoder; the length of the sequence is symbolic."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layers = nn.Embedding(100, 64), nn.ModuleList([layer, layer])

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens)
            for each in self.layers:
                x = each(x)
            return x

    length = torch.export.Dim("length", min=2, max=512)
    return _from_torch(Encoder(), (torch.zeros(2, 16, dtype=torch.int64),), ({1: length},))


def recurrent_network(_: str) -> IRModule:
    """An LSTM of two layers and both directions."""
    import torch
    from torch import nn

    return _from_torch(nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True), (torch.zeros(2, 5, 16),))


def decoder(_: str) -> IRModule:
    """An image decoder of half precision: group norms, upsampling, a transposed convolution."""
    import torch
    from torch import nn

    layers = [nn.Conv2d(4, 32, 3, 1, 1), nn.GroupNorm(8, 32), nn.SiLU(), nn.Upsample(scale_factor=2, mode="nearest")]
    layers += [nn.Conv2d(32, 16, 3, 1, 1), nn.SiLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()]
    return _from_torch(nn.Sequential(*layers).half(), (torch.zeros(1, 4, 16, 16, dtype=torch.float16),))


def language_model(target: str) -> IRModule:
    """A decoder over a paged key-value cache, written in ``relaxish.frontend.nn``; the cache's kernels know their target."""
    from relaxish.testing import gpt2

    return gpt2.export(gpt2.Config(vocab=97, positions=64, hidden=64, layers=2, heads=4), target=Target(target))[0]


#: By name, for the text of a target.
MODELS: dict[str, Callable[[str], IRModule]] = {
    f.__name__: f for f in (residual_network, mobile_network, encoder, recurrent_network, decoder, language_model)
}
