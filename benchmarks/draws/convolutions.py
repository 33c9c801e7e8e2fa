"""Convolutions of one to three dimensions, transposed and depthwise ones, and pooling."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from .base import Draw, Rng, dtype, floats, of, size

__all__ = ["CONVOLUTIONS"]

_MOST = 1e9  # multiply-adds of one call
_KINDS = ((torch.float32, 0.75), (torch.bfloat16, 0.1), (torch.float16, 0.1), (torch.float64, 0.05))


def _spatial(rng: Rng, dims: int) -> list[int]:
    return [size(rng, 5, {1: 4000, 2: 112, 3: 24}[dims]) for _ in range(dims)]


def _batch(rng: Rng, most: int) -> int:
    """How many images: mostly one, else up to ``most``."""
    return 1 if rng.integers(2) else size(rng, 1, most)


def _fit(spatial: list[int], work: float) -> list[int]:
    """Smaller sizes for a product that is too much work."""
    share = min(1.0, (_MOST / work) ** (1 / len(spatial)))
    return [max(5, int(s * share)) for s in spatial]


def convolution(rng: Rng) -> Draw:
    """Any stride, padding, dilation, groups, bias."""
    dims = int(rng.choice([1, 2, 2, 2, 3]))
    kernel = int(rng.choice([1, 1, 3, 3, 3, 5, 7]))
    groups = int(rng.choice([1, 1, 1, 2, 4]))
    stride, dilation = int(rng.choice([1, 1, 1, 2, 3])), int(rng.choice([1, 1, 1, 2]))
    inside, outside = (size(rng, 1, 384) * groups for _ in range(2))
    spatial = [max(s, dilation * (kernel - 1) + 1) for s in _spatial(rng, dims)]
    batch = _batch(rng, 64)
    each = batch * math.prod(spatial) / stride**dims * kernel**dims * inside * outside / groups
    if each > _MOST:
        spatial = [max(s, dilation * (kernel - 1) + 1) for s in _fit(spatial, each)]
    kind, padding = dtype(rng, *_KINDS), kernel // 2 * int(rng.integers(2))
    terms = inside // groups * kernel**dims
    weight = floats(rng, (outside, inside // groups, *[kernel] * dims), kind) / terms**0.5
    bias = floats(rng, (outside,), kind)
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    module = of(lambda x, w, b: function(x, w, b, **options), weight, bias)
    text = f"conv{dims}d {batch}x{inside}->{outside} of {spatial} kernel {kernel} {options} {kind}"
    return Draw(text, module, (floats(rng, (batch, inside, *spatial), kind),), terms=terms, rounded=2)


def depthwise(rng: Rng) -> Draw:
    """A kernel of its own for each channel, with an activation."""
    kernel, stride = int(rng.choice([3, 3, 5, 7])), int(rng.choice([1, 1, 2]))
    channels, (height, width) = size(rng, 8, 768), _spatial(rng, 2)
    height, width = max(height, kernel), max(width, kernel)
    batch, kind = _batch(rng, 16), dtype(rng, *_KINDS)
    weight, bias = floats(rng, (channels, 1, kernel, kernel), kind), floats(rng, (channels,), kind)

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu6(F.conv2d(x, w, b, stride, kernel // 2, groups=channels))

    text = f"depthwise {batch}x{channels}x{height}x{width} kernel {kernel} stride {stride} {kind}"
    inputs = (floats(rng, (batch, channels, height, width), kind),)
    return Draw(text, of(run, weight, bias), inputs, terms=kernel**2, rounded=2)


def transposed_convolution(rng: Rng) -> Draw:
    """Upsampling by a learnt kernel."""
    kernel = int(rng.choice([2, 3, 4, 5]))
    stride = int(rng.integers(1, min(kernel, 3) + 1))
    dims, groups, batch = int(rng.choice([1, 2, 2, 2, 3])), int(rng.choice([1, 1, 1, 2])), _batch(rng, 8)
    inside, outside = size(rng, 4, 256 // groups) * groups, size(rng, 3, 256 // groups)
    spatial = [size(rng, 4, {1: 2000, 2: 48, 3: 12}[dims]) for _ in range(dims)]
    work = batch * math.prod(spatial) * kernel**dims * inside * outside
    if work > _MOST:
        spatial = _fit(spatial, work)
    kind, padding = dtype(rng, *_KINDS), int(rng.integers(0, kernel // 2 + 1))
    weight = floats(rng, (inside, outside, *[kernel] * dims), kind) / (inside * kernel) ** 0.5
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    module = of(lambda x, w: function(x, w, None, stride, padding, 0, groups), weight)
    text = f"conv_transpose{dims}d {batch}x{inside}->{outside * groups} of {spatial} kernel {kernel} stride {stride}"
    text += f" padding {padding} groups {groups} {kind}"
    return Draw(text, module, (floats(rng, (batch, inside, *spatial), kind),), terms=inside * kernel**dims, rounded=2)


def pooling(rng: Rng) -> Draw:
    """Maxima or means of windows, or of everything to a given size."""
    dims, batch, channels = int(rng.choice([1, 2, 2, 2, 3])), _batch(rng, 16), size(rng, 3, 384)
    kind, which = dtype(rng, *_KINDS), str(rng.choice(["max", "avg", "adaptive"]))
    kernel, stride = int(rng.choice([2, 3, 3, 5])), int(rng.choice([1, 2, 2, 3]))
    out = int(rng.choice([1, 1, 2, 7]))
    spatial = [max(s, kernel, out) for s in _spatial(rng, dims)]
    while batch * channels * math.prod(spatial) > 8e6 and channels > 3:
        channels = max(3, channels // 2)
    name = f"adaptive_avg_pool{dims}d" if which == "adaptive" else f"{which}_pool{dims}d"
    function = getattr(F, name)
    module = of(
        (lambda x: function(x, out)) if which == "adaptive" else (lambda x: function(x, kernel, stride, kernel // 2))
    )
    text = f"{name} {batch}x{channels} of {spatial} kernel {kernel} stride {stride} out {out} {kind}"
    terms = kernel**dims if which != "adaptive" else math.prod(spatial)
    return Draw(text, module, (floats(rng, (batch, channels, *spatial), kind),), terms=terms, rounded=2)


CONVOLUTIONS = (convolution, depthwise, transposed_convolution, pooling)
