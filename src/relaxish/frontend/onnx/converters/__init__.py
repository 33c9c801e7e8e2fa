"""Converters of ONNX operators, one family a file; importing them fills the table."""

from __future__ import annotations

from . import activation, contrib, control, convolution, creation, elementwise, indexing, linear, normalization
from . import pooling, quantized, recurrent, reduction, resampling, sequence, shaping, vision

__all__ = [
    "activation", "contrib", "control", "convolution", "creation", "elementwise", "indexing", "linear", "normalization",
    "pooling", "quantized", "recurrent", "reduction", "resampling", "sequence", "shaping", "vision",
]  # fmt: skip
