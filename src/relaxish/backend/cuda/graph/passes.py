"""Graph passes of the CUDA pipeline before legalisation: fewer kernels, and layouts that tensor cores take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....ir.declared_pass import ModuleRewrite
from ....ir.node import Node
from .... import transform
from ....ir.functor import pre_order_visit
from ....ir.module import IRModule
from ....ir.transform import Pass
from ....relax.expr import Function, Var, is_call_of
from ....relax.struct_info import TensorStructInfo
from ....support.sequences import of_kind
from ....transform.decompose_ops import DecomposeOpsAsWritten
from ..attention import DecomposeAttention, DispatchAttention
from ..codegen.hoist_split import HoistOverSplit, known_at_compile_time
from ..codegen.norm_cast import NormWithCast
from ..codegen.norm_epilogue import NormsTakeEpilogues
from .pad_channels import PadFewChannels

__all__ = ["ChannelsLast", "graph_passes"]

_SMALL = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")


def graph_passes() -> list[Pass]:
    """The graph passes of the CUDA pipeline, in the order in which they run."""
    return [
        DecomposeOpsAsWritten(),
        transform.CanonicalizeBindings(),
        ChannelsLast(),
        PadFewChannels(),
        transform.EliminateCommonSubexpr(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
        transform.CombineParallelMatmul(_weights_are_known),
        HoistOverSplit(),
        NormWithCast(),
        NormsTakeEpilogues(),
        DispatchAttention(),
        DecomposeAttention(),
    ]


class ChannelsLast(ModuleRewrite):
    """Convolutions of types that tensor cores multiply run with channels innermost, and so do their neighbours.

    Before::

        y = nn.conv2d(x, w)                                    # NCHW, OIHW, float16
        z = nn.relu(add(y, bias))

    After (permutations of weights are computed at compile time)::

        y = nn.conv2d(permute_dims(x, [0, 2, 3, 1]), permute_dims(w, [0, 2, 3, 1]), NHWC, OHWI)
        z = permute_dims(nn.relu(add(y, permute_dims(bias, ...))), [0, 3, 1, 2])

    A row of the convolution's product then consists of pieces of the image that lie together, channels of one pixel
    side by side: they are fetched 16 bytes at a time.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        if not _has_small_convolution(mod):
            return mod
        made: IRModule = transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(mod)
        return made


def _has_small_convolution(mod: IRModule) -> bool:
    found = False

    def look(node: Node) -> bool:
        nonlocal found
        if is_call_of(node, "relax.nn.conv2d"):
            info = node.args[0].struct_info_
            found = found or (isinstance(info, TensorStructInfo) and info.dtype in _SMALL)
        return not found

    for func in of_kind(mod.functions.values(), Function):
        if not found:
            pre_order_visit(func.body, look)
    return found


def _weights_are_known(_: Var, weights: Sequence[Var], biases: Sequence[Var], bindings: Mapping[Var, Any]) -> bool:
    """Whether weights can be put together at compile time: doing that in every run would cost more than it saves."""
    return all(known_at_compile_time(w, bindings) for w in (*weights, *biases))
