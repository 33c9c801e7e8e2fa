"""Converters of ONNX operators, one family a file; importing them fills the table."""

from __future__ import annotations

from . import activation, contrib, control, convolution, creation, elementwise, indexing, linear, misc, normalization
from . import pooling, recurrent, reduction, sequence, shaping

__all__ = [
    "activation", "contrib", "control", "convolution", "creation", "elementwise", "indexing", "linear", "misc", "normalization",
    "pooling", "recurrent", "reduction", "sequence", "shaping",
]  # fmt: skip
