"""``nn``: write a network as modules, export it to an IRModule."""

from . import op, spec
from .core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Object,
    Parameter,
    Sequential,
    Tensor,
    get_default_dtype,
    set_default_dtype,
    wrap_nested,
)
from .exporter import Exporter
from .extern import ExternModule, ObjectModule, SourceModule, add_extern
from .modules import (
    GELU,
    Attention,
    AvgPool2D,
    BatchNorm2D,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose1D,
    Dropout,
    Embedding,
    GroupNorm,
    Identity,
    IOEffect,
    KVCache,
    LayerNorm,
    Linear,
    MaxPool2D,
    MultiheadAttention,
    ReLU,
    RMSNorm,
    SiLU,
    Softmax,
    Tanh,
    TimestepEmbedding,
    Timesteps,
)
from .op import *  # noqa: F403
from .subroutine import SubroutineMixin
from .visitor import Mutator

__all__ = [
    "Attention", "AvgPool2D", "BatchNorm2D", "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Dropout", "Effect",
    "Embedding", "Exporter", "ExternModule", "GELU", "GroupNorm", "IOEffect", "Identity", "KVCache", "LayerNorm",
    "Linear", "MaxPool2D", "Module", "ModuleDict", "ModuleList", "MultiheadAttention", "Mutator", "Object",
    "ObjectModule", "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU", "Softmax", "SourceModule",
    "SubroutineMixin", "Tanh", "Tensor", "TimestepEmbedding", "Timesteps", "add_extern", "get_default_dtype", "op",
    "set_default_dtype", "spec", "wrap_nested",
]  # fmt: skip
