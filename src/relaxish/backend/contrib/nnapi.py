"""Patterns of the operators for Android's NNAPI. Partitioning only: relaxish has no code generator for it.

``RunCodegen`` then says that ``relax.ext.nnapi`` is missing, unless somebody registers it.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import Sequential
from ...relax.dpl import DFPattern, is_op, wildcard
from ...transform import FuseOpsByPattern, FusionPattern, MergeCompositeFunctions
from ..pattern_registry import get_patterns_with_prefix, register_patterns

__all__ = ["min_feature_level", "partition_for_nnapi"]

# NNAPI's name: the operator's, where it is not the same.
_BINARY = {
    "add": "", "mul": "multiply", "div": "divide", "sub": "subtract", "pow": "power", "equal": "", "greater": "",
    "greater_equal": "", "less": "", "less_equal": "", "not_equal": "", "maximum": "", "minimum": "",
}  # fmt: skip
_UNARY = {
    "floor": "", "relu": "nn.relu", "logistic": "sigmoid", "softmax": "nn.softmax", "tanh": "", "abs": "", "exp": "",
    "log": "", "neg": "negative", "cast": "astype", "sqrt": "", "rsqrt": "",
}  # fmt: skip
# The feature level that brought an operation.
_LEVELS = {
    1: "add average_pool_2d concatenation conv2d depthwise_conv_2d depth_to_space dequantize embedding_lookup floor "
    "fully_connected hashtable_lookup l2_normalization l2_pool_2d local_response_normalization logistic lsh_projection "
    "lstm max_pool_2d mul relu relu1 relu6 reshape resize_bilinear rnn softmax space_to_depth svdf tanh",
    2: "batch_to_space_nd div mean pad space_to_batch_nd squeeze strided_slice sub transpose",
    3: "abs argmax argmin axis_aligned_bbox_transform bidirectional_sequence_lstm bidirectional_sequence_rnn "
    "box_with_nms_limit cast channel_shuffle detection_postprocessing equal exp expand_dims gather generate_proposals "
    "greater greater_equal grouped_conv_2d heatmap_max_keypoint instance_normalization less less_equal log logical_and "
    "logical_not logical_or log_softmax maximum minimum neg not_equal pad_v2 pow prelu quantize quantized_16bit_lstm "
    "random_multinomial reduce_all reduce_any reduce_max reduce_min reduce_prod reduce_sum roi_align roi_pooling rsqrt "
    "select sin slice split sqrt tile topk_v2 transpose_conv_2d unidirectional_sequence_lstm "
    "unidirectional_sequence_rnn resize_nearest_neighbor",
    4: "quantized_lstm if while elu hard_swish fill rank",
    6: "batch_matmul pack",
    7: "mirror_pad reverse",
}
_LEVEL_OF = {f"nnapi.{name}": level for level, names in _LEVELS.items() for name in names.split()}


def _call(name: str, operator: str, arity: int) -> FusionPattern:
    return FusionPattern(f"nnapi.{name}", is_op(f"relax.{operator or name}")(*(wildcard() for _ in range(arity))))


def _float_cast() -> FusionPattern:
    """Casts between the floats that NNAPI has."""
    given = wildcard().has_dtype("float16") | wildcard().has_dtype("float32")
    made: DFPattern = is_op("relax.astype")(given).has_dtype("float16") | is_op("relax.astype")(given).has_dtype(
        "float32"
    )
    return FusionPattern("nnapi.cast", made)


def _conv2d() -> FusionPattern:
    """NNAPI's convolution has a bias."""
    return FusionPattern(
        "nnapi.conv2d", is_op("relax.add")(is_op("relax.nn.conv2d")(wildcard(), wildcard()), wildcard())
    )


register_patterns(
    [
        *(_call(name, operator, 2) for name, operator in _BINARY.items()),
        *(_call(name, operator, 1) for name, operator in _UNARY.items()),
        _call("batch_matmul", "matmul", 2),
        _call("transpose", "permute_dims", 1),
        _float_cast(),
        _call("mean", "", 1),
        _conv2d(),
        _call("max_pool_2d", "nn.max_pool2d", 1),
    ]
)


def min_feature_level(pattern_name: str) -> int:
    """The feature level from which NNAPI has what a pattern stands for. Raises KeyError for an unknown name."""
    return _LEVEL_OF[pattern_name]


def partition_for_nnapi(mod: IRModule, feature_level: int | None = None) -> IRModule:
    """Give the operators that NNAPI (of that feature level, if given) has to functions with ``Codegen="nnapi"``."""
    patterns = get_patterns_with_prefix("nnapi")
    if feature_level is not None:
        patterns = [p for p in patterns if feature_level >= min_feature_level(p.name)]
    passes = [FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=False), MergeCompositeFunctions()]
    out: IRModule = Sequential(passes)(mod)
    return out
