"""Patterns of the operators for CUTLASS-style kernels: products, convolutions, decoded products, attentions and norms.

Residual variants (``cutlass.conv2d_bias_residual_add_relu`` and so on) exist of every pattern with a bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr
from ...ir.module import IRModule, functions_of
from ...ir.transform import Sequential
from ...relax.dpl import GlobalVarPattern, TuplePattern, is_op, rewrite_call, wildcard
from ...relax.expr import Call, ExternFunc, Function, Var
from ...tir import IntImm
from ...tir import Var as TIRVar
from ...transform import AllocateWorkspace, FuseOpsByPattern, FusionPattern
from ...transform.fuse_ops_by_pattern import PatternCheckContext
from ..common.library_matmul import volume
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import (
    make_attention_pattern, make_attention_rewrite_pattern, make_fused_bias_activation_pattern,
    make_layer_norm_pattern, make_matmul_pattern, make_residual_block_pattern, make_rms_norm_pattern,
    make_stacked_attention_pattern,
)  # fmt: skip
from ..utils import has_leaking_intermediate_variables, workspace_annotator
from .libraries.cutlass_codegen import cutlass_codegen as cutlass_codegen  # registers relax.ext.cutlass

__all__ = [
    "attention_patterns",
    "attention_rewrite_patterns",
    "conv2d_patterns",
    "decode_matmul_patterns",
    "is_shape_valid_for_cutlass_matmul",
    "layer_norm_pattern",
    "matmul_patterns",
    "partition_for_cutlass",
    "residual_block_patterns",
    "rms_norm_pattern",
]

_FLOATS, _BYTES = ("float16", "float32"), ("int8", "uint8")
_ACTIVATIONS = {
    "_relu": "relax.nn.relu",
    "_gelu_tanh": "relax.nn.gelu_tanh",
    "_gelu": "relax.nn.gelu",
    "_silu": "relax.nn.silu",
}


# ---- checks


def _is_supported_dtype(lhs: str, rhs: str) -> bool:
    return (lhs == rhs and lhs in _FLOATS) or (lhs in _BYTES and rhs in _BYTES)


def is_shape_valid_for_cutlass_matmul(lhs_shape: Sequence[Any], rhs_shape: Sequence[Any]) -> bool:
    """Whether batches advance by one stride: the batch axes are the same on both sides, or one side has one matrix.

    ``(2, 1, 4, 8) x (2, 3, 8, 16)`` does not: the left side would stay for three steps, then move.
    """
    if not isinstance(lhs_shape[-1], IntImm | int):
        return False
    left, right = volume(lhs_shape[:-2]), volume(rhs_shape[:-2])
    if bool(left == 1) or bool(right == 1):
        return True
    pairs: Any = zip_longest(list(lhs_shape)[-3::-1], list(rhs_shape)[-3::-1], fillvalue=1)
    analyzer = Analyzer()
    return all(analyzer.can_prove_equal(a, b) for a, b in pairs)


def _depends(var: Var, on: Var, usages: Mapping[Var, Sequence[Var]]) -> bool:
    """Whether ``var`` is computed from ``on``."""
    todo, seen = [on], {on}
    while todo:
        current = todo.pop()
        if current is var:
            return True
        for user in usages.get(current, ()):
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return False


def _same_shape(left: Sequence[Any], right: Sequence[Any]) -> bool:
    analyzer = Analyzer()
    return all(analyzer.can_prove_equal(a, b) for a, b in zip(left, right))


def _is_bias_like(shape: Sequence[Any], channels: PrimExpr) -> bool:
    return bool(shape[-1] == channels) and bool(volume(shape) == channels)


def _check_residual(root: Call, context: PatternCheckContext) -> bool:
    """A residual must be there before the product is, and be shaped like it or like a bias."""
    residual: Any = context.annotated_expr.get("residual")
    if residual is None:
        return True
    if not isinstance(residual, Var):
        if residual not in context.value_to_bound_var:
            return False
        residual = context.value_to_bound_var[residual]
    result = context.value_to_bound_var[root]
    if _depends(residual, result, context.var_usages):
        return False
    shape, added = list(result.struct_info.shape), list(residual.struct_info.shape)
    return _same_shape(shape, added) or _is_bias_like(added, shape[-1])


def _check_conv2d(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context):
        return False
    call = context.annotated_expr["root"]
    x, w = (a.struct_info for a in call.args[:2])
    if (str(call.attrs.data_layout), str(call.attrs.kernel_layout)) != ("NHWC", "OHWI"):
        return False
    if not _is_supported_dtype(x.dtype, w.dtype) or not _check_residual(call, context):
        return False
    if any(isinstance(dim, TIRVar) for dim in x.shape.values):
        return False
    channels_in, channels_out, groups = x.shape.values[3], w.shape.values[0], int(call.attrs.groups)
    return not (bool(channels_in == channels_out) and bool(channels_out == groups))  # no depthwise ones


def _check_matmul(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context):
        return False
    lhs, rhs = (context.annotated_expr[name].struct_info for name in ("lhs", "rhs"))
    if not _is_supported_dtype(lhs.dtype, rhs.dtype) or not _check_residual(context.annotated_expr["root"], context):
        return False
    return is_shape_valid_for_cutlass_matmul(lhs.shape.values, rhs.shape.values)


def _check_decode_matmul(context: PatternCheckContext) -> bool:
    """A float16 product with a weight that a ``decode`` function unpacks from int8 by float16 scales per column."""
    if has_leaking_intermediate_variables(context):
        return False
    found = context.annotated_expr
    root = found["root"]
    # A float32 result is only possible when it is cast: then the root is the cast.
    if not _check_residual(root, context) or root.struct_info.dtype == "float32":
        return False
    if "decode" not in found["w_decoded"].args[0].name_hint or found["lhs"].struct_info.dtype != "float16":
        return False
    packed, scales = found["w_encoded"], found["scales"]
    if packed.struct_info.dtype != "int8" or scales.struct_info.dtype != "float16":
        return False
    if isinstance(packed, Call) and isinstance(packed.args[0], ExternFunc):
        if packed.args[0].global_symbol != "cutlass.ft_preprocess_weight":
            return False
    shape = list(root.struct_info.shape)
    columns = shape[-1]
    scale_shape = list(scales.struct_info.shape)
    if len(scale_shape) > 2 or not bool(scale_shape[-1] == columns):
        return False
    if "bias" not in found:
        return True
    bias = list(found["bias"].struct_info.shape)
    return _is_bias_like(bias, columns) or _same_shape(shape, bias)


def _check_stacked_attention(context: PatternCheckContext) -> bool:
    """Query, key and value lie one behind the other along the last of three axes."""
    found = context.annotated_expr
    if has_leaking_intermediate_variables(context) or found["stacked_qkv"].struct_info.ndim != 3:
        return False
    if "split" in found:
        return int(found["split"].attrs.axis) == 2
    end = 0
    for name in ("query", "key", "value"):
        slices = found[f"strided_slice_{name}"].args[1:5]
        axes, begins, ends, strides = ([int(e.value) for e in part] for part in slices)
        if axes != [2] or begins != [end] or len(ends) != 1 or strides != [1]:
            return False
        end = ends[0]
    return True


def _check_layer_norm(context: PatternCheckContext) -> bool:
    attrs = context.matched_expr.attrs
    if not attrs.center or not attrs.scale or len(attrs.axes) != 1:
        return False
    rank = len(context.matched_expr.struct_info.shape)
    return int(attrs.axes[0]) % rank == rank - 1


def _check_rms_norm(context: PatternCheckContext) -> bool:
    return "rms_norm" in context.annotated_expr["rms_norm"].args[0].name_hint


# ---- patterns


def _activation(name: str) -> str | None:
    return next((op for suffix, op in _ACTIVATIONS.items() if suffix in name), None)


def matmul_patterns() -> list[FusionPattern]:
    """Products, the right side as it is or transposed, with bias and activation."""
    names = [f"cutlass.matmul{t}{s}" for t in ("", "_transposed") for s in ("", "_bias", "_bias_relu", "_bias_gelu")]
    return [
        FusionPattern(
            name, *make_matmul_pattern("_bias" in name, _activation(name), "_transposed" in name), _check_matmul
        )
        for name in names
    ]


def _decode_matmul(name: str) -> FusionPattern:
    x, packed, scales = wildcard(), wildcard(), wildcard()
    weight = is_op("relax.call_tir")(GlobalVarPattern(), TuplePattern([packed, scales]))
    root = is_op("relax.matmul")(x, weight)
    if "cast" in name:
        root = is_op("relax.astype")(root)
    annotations = {"root": root, "lhs": x, "w_encoded": packed, "w_decoded": weight, "scales": scales}
    out = root
    if "bias" in name:
        annotations["bias"] = bias = wildcard()
        out = is_op("relax.add")(root, bias)
    if "gelu" in name:
        out = is_op("relax.nn.gelu")(out)
    return FusionPattern(name, out, annotations, _check_decode_matmul)


def decode_matmul_patterns() -> list[FusionPattern]:
    """Products with a weight decoded from int8."""
    suffixes = ("", "_bias", "_cast", "_cast_bias", "_bias_gelu", "_cast_bias_gelu")
    return [_decode_matmul(f"cutlass.decode_matmul{suffix}") for suffix in suffixes]


def conv2d_patterns() -> list[FusionPattern]:
    """Convolutions with bias and activation."""
    made = []
    for suffix in ("", "_bias", "_bias_relu", "_bias_silu"):
        pattern = make_fused_bias_activation_pattern("relax.nn.conv2d", "_bias" in suffix, _activation(suffix))
        made.append(FusionPattern(f"cutlass.conv2d{suffix}", *pattern, _check_conv2d))
    return made


def residual_block_patterns() -> list[FusionPattern]:
    """Patterns with a bias, combined with a residual, with and without a relu behind.

    Without a bias there is none: there the residual takes the bias's place.
    """
    made = []
    for activation, suffix in ((None, ""), ("relax.nn.relu", "_relu")):
        for base in (*conv2d_patterns(), *matmul_patterns(), *decode_matmul_patterns()):
            if "bias" not in base.name:
                continue
            for combine in ("relax.add", "relax.multiply"):
                whole = (base.pattern, base.annotation_patterns)
                pattern = make_residual_block_pattern(whole, binary_op=combine, activation=activation)
                name = f"{base.name}_residual_{combine.split('.')[-1]}{suffix}"
                made.append(FusionPattern(name, *pattern, base.check))
    return made


def attention_patterns() -> list[FusionPattern]:
    """Attentions over three tensors, over one stacked tensor, and over sequences of different lengths."""
    return [
        FusionPattern("cutlass.attention", *make_attention_pattern()),
        FusionPattern("cutlass.attention_bias", *make_attention_pattern(with_bias=True)),
        *(
            FusionPattern(
                "cutlass.stacked_attention",
                *make_stacked_attention_pattern(start_op=start, with_bias=with_bias),
                _check_stacked_attention,
            )
            for start in ("split", "strided_slice")
            for with_bias in (False, True)
        ),
        FusionPattern("cutlass.attention_var_len", *make_attention_pattern(var_len=True)),
    ]


def layer_norm_pattern() -> list[FusionPattern]:
    """Layer normalisations over the last axis."""
    return [FusionPattern("cutlass.layer_norm", *make_layer_norm_pattern(), _check_layer_norm)]


def rms_norm_pattern() -> list[FusionPattern]:
    """Calls of tensor programs named ``rms_norm``."""
    return [FusionPattern("cutlass.rms_norm", *make_rms_norm_pattern(), _check_rms_norm)]


def attention_rewrite_patterns() -> list[Any]:
    """Attentions written out, in both layouts of their inputs and result, with and without bias and casts."""
    return [
        make_attention_rewrite_pattern(qkv, out, with_bias, with_cast)
        for qkv in ("BSNH", "BSH")
        for out in ("BSNH", "BSH")
        for with_bias in (True, False)
        for with_cast in (True, False)
    ]


register_patterns(
    [
        *conv2d_patterns(),
        *matmul_patterns(),
        *decode_matmul_patterns(),
        *residual_block_patterns(),
        *attention_patterns(),
        *layer_norm_pattern(),
        *rms_norm_pattern(),
    ]
)

_REWRITES = attention_rewrite_patterns()


def partition_for_cutlass(mod: IRModule, annotate_codegen: bool = True, use_flash_mqa: bool = True) -> IRModule:
    """Give the operators that CUTLASS can do to functions with ``Codegen="cutlass"``.

    Attentions that are written out as products and a softmax become ``R.nn.attention`` first; with ``use_flash_mqa``
    also those that repeat keys and values for groups of heads.  Without ``annotate_codegen`` the functions are only
    marked ``Composite``.
    """
    rewrites = list(_REWRITES)
    if use_flash_mqa:
        grouped = make_attention_rewrite_pattern("BSNH", "BSNH", with_bias=False, with_cast=True, with_kv_repeat=True)
        rewrites.insert(0, grouped)
    out = mod.clone()
    for var, func in functions_of(mod, Function):
        for pattern, rewriter in rewrites:
            func = rewrite_call(pattern, rewriter, func)
        out.update_func(var, func)
    passes = [
        FuseOpsByPattern(get_patterns_with_prefix("cutlass"), bind_constants=False, annotate_codegen=annotate_codegen),
        workspace_annotator("cutlass"),
        AllocateWorkspace(),
    ]
    parted: IRModule = Sequential(passes)(out)
    return parted
