"""Converters of ONNX operators, one family a file; importing them fills the table."""

from __future__ import annotations

from . import activation, attention, classic, contrib, control, convolution, creation, elementwise, grams
from . import (
    indexing,
    linear,
    normalization,
    pooling,
    quantized,
    random,
    recurrent,
    reduction,
    regions,
    resampling,
    sequence,
    shaping,
)
from . import signal, updates, vision

__all__ = [
    "activation", "attention", "classic", "contrib", "control", "convolution", "creation", "elementwise", "grams", "indexing",
    "linear", "normalization", "pooling", "quantized", "random", "recurrent", "reduction", "regions", "resampling", "sequence",
    "shaping", "signal", "updates", "vision",
]  # fmt: skip
