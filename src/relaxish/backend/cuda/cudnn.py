"""Patterns of the convolutions and attentions for cuDNN.

The registered patterns are ``cudnn.conv2d.nhwc_ohwi`` alone, with ``_bias`` and ``_bias_relu``, and
``cudnn.attention.BS3NH`` and ``cudnn.attention.SBN3H`` for attentions over one stacked tensor.
"""

from __future__ import annotations

from functools import partial

from ...ir.expr import RelaxExpr
from ...ir.module import IRModule
from ...ir.transform import Sequential
from ...relax.expr import Call
from ...transform import AllocateWorkspace, FuseOpsByPattern, FusionPattern
from ...transform.fuse_ops_by_pattern import PatternCheckContext
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import make_conv2d_pattern, make_stacked_attention_pattern
from ..utils import has_leaking_intermediate_variables, workspace_annotator
from .libraries.cudnn_codegen import cudnn_codegen as cudnn_codegen  # registers relax.ext.cudnn

__all__ = ["partition_for_cudnn"]

_DTYPES = ("float16", "float32")
_LAYOUTS = (("NHWC", "OHWI"), ("NCHW", "OIHW"))
_STACKED = {"BS3NH": (3, 2), "SBN3H": (4, 3)}  # layout: (axes of the stacked tensor, the axis it is split along)


def _check_conv2d(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context):
        return False
    x, w = (context.annotated_expr[name].struct_info.dtype for name in ("input", "weight"))
    root = context.annotated_expr["root"]
    if x != w or x not in _DTYPES or root.struct_info.dtype != x:
        return False
    if (str(root.attrs.data_layout), str(root.attrs.kernel_layout)) not in _LAYOUTS:
        return False
    top, left, bottom, right = (int(p) for p in root.attrs.padding)
    bias = context.annotated_expr.get("bias")
    return (top, left) == (bottom, right) and (bias is None or _is_channel_bias(root, bias))


def _is_channel_bias(root: Call, bias: RelaxExpr) -> bool:
    """Whether there is one number for each channel of the result."""
    out, given = root.struct_info.shape, bias.struct_info.shape
    if out is None or given is None or len(given) > 4:
        return False
    axis = str(root.attrs.data_layout).index("C")
    dims = [1] * (4 - len(given)) + list(given)
    return all(bool(d == (out[i] if i == axis else 1)) for i, d in enumerate(dims))


def _check_stacked_attention(context: PatternCheckContext, layout: str) -> bool:
    if has_leaking_intermediate_variables(context):
        return False
    ndim, axis = _STACKED[layout]
    if context.annotated_expr["stacked_qkv"].struct_info.ndim != ndim:
        return False
    split = context.annotated_expr.get("split")
    return split is None or int(split.attrs.axis) == axis


register_patterns(
    [
        FusionPattern("cudnn.conv2d.nhwc_ohwi", *make_conv2d_pattern(), _check_conv2d),
        FusionPattern("cudnn.conv2d.nhwc_ohwi_bias", *make_conv2d_pattern(with_bias=True), _check_conv2d),
        FusionPattern("cudnn.conv2d.nhwc_ohwi_bias_relu", *make_conv2d_pattern(True, "relax.nn.relu"), _check_conv2d),
        *(
            FusionPattern(
                f"cudnn.attention.{layout}",
                *make_stacked_attention_pattern(start_op="split", layout=layout),
                partial(_check_stacked_attention, layout=layout),
            )
            for layout in _STACKED
        ),
    ]
)


def partition_for_cudnn(mod: IRModule) -> IRModule:
    """Give the convolutions and attentions that cuDNN can do to functions with ``Codegen="cudnn"``."""
    passes = [
        FuseOpsByPattern(get_patterns_with_prefix("cudnn"), bind_constants=False, annotate_codegen=True),
        workspace_annotator("cudnn"),
        AllocateWorkspace(),
    ]
    out: IRModule = Sequential(passes)(mod)
    return out
