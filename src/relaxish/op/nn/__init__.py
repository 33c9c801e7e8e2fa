"""Neural-network operators."""

from __future__ import annotations

from .activation import (
    dropout,
    gelu,
    gelu_tanh,
    leakyrelu,
    log_softmax,
    prelu,
    relu,
    selu,
    silu,
    softmax,
    softplus,
)
from .attention import attention, attention_var_len
from .conv import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d
from .loss import cross_entropy_with_logits, nll_loss
from .norm import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from .pad import pad
from .pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "attention", "attention_var_len",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "conv1d", "conv1d_transpose", "conv2d",
    "conv2d_transpose", "conv3d", "cross_entropy_with_logits", "dropout", "gelu", "gelu_tanh", "group_norm",
    "instance_norm", "layer_norm", "leakyrelu", "log_softmax", "max_pool1d", "max_pool2d", "max_pool3d", "nll_loss",
    "pad", "prelu", "relu", "rms_norm", "selu", "silu", "softmax", "softplus",
]  # fmt: skip
