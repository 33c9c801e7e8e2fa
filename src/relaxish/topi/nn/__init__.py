"""Neural-network computations."""

from __future__ import annotations

from . import utils, winograd_util
from .blocked import conv2d_NCHWc, depthwise_conv2d_NCHWc, depthwise_conv2d_nhwc
from .blocks import batch_to_space_nd, depth_to_space, flatten, lrn, space_to_batch_nd, space_to_depth
from .conv import (
    conv,
    conv1d,
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_nhwc,
    conv2d_transpose_nchw,
    conv3d,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    conv_transpose,
    depthwise_conv2d_nchw,
    dilate,
    group_conv1d_transpose_ncw,
    group_conv2d_nchw,
    group_conv2d_nhwc,
    group_conv2d_transpose_nchw,
)
from .deformable import correlation_nchw, deformable_conv2d_nchw, deformable_conv2d_nhwc
from .dense import batch_matmul, dense, matmul
from .elemwise import leaky_relu, prelu, relu, scale_shift_nchw, softplus
from .loss import nll_loss
from .norm import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from .pad import circular_pad, mirror_pad, pad, replicate_pad
from .pool_grad import pool_grad
from .pooling import adaptive_pool, adaptive_pool1d, adaptive_pool3d, global_pool, pool1d, pool2d, pool3d
from .softmax import fast_softmax, log_softmax, softmax
from .upsampling import upsampling, upsampling3d
from .utils import (
    get_pad_tuple,
    get_pad_tuple1d,
    get_pad_tuple3d,
    get_pad_tuple_generic,
    infer_pad,
    infer_pad3d,
    infer_stride,
)
from .winograd import (
    conv2d_winograd_nchw,
    conv2d_winograd_nchw_without_weight_transform,
    conv2d_winograd_nhwc,
    conv2d_winograd_nhwc_without_weight_transform,
    conv2d_winograd_weight_transform,
)

__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "batch_matmul", "batch_norm", "batch_to_space_nd", "circular_pad", "conv",
    "conv2d_NCHWc", "correlation_nchw", "deformable_conv2d_nchw", "deformable_conv2d_nhwc", "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_nhwc", "upsampling3d",
    "conv1d", "conv1d_ncw", "conv1d_nwc", "conv1d_transpose_ncw", "conv2d", "conv2d_hwcn", "conv2d_nchw",
    "conv2d_nhwc", "conv2d_transpose_nchw",
    "conv2d_winograd_nchw", "conv2d_winograd_nchw_without_weight_transform", "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_weight_transform", "conv3d",
    "conv3d_ncdhw", "conv3d_ndhwc", "conv3d_transpose_ncdhw", "conv_transpose", "dense", "depth_to_space",
    "depthwise_conv2d_nchw", "dilate", "flatten", "group_conv2d_nchw", "group_conv2d_nhwc", "lrn", "space_to_batch_nd",
    "space_to_depth", "get_pad_tuple",
    "get_pad_tuple1d", "get_pad_tuple3d", "get_pad_tuple_generic", "global_pool", "group_conv1d_transpose_ncw",
    "group_conv2d_transpose_nchw", "group_norm", "infer_pad", "infer_pad3d", "infer_stride", "instance_norm",
    "fast_softmax", "layer_norm", "leaky_relu", "log_softmax", "matmul", "mirror_pad", "nll_loss", "pad", "pool1d", "pool2d", "pool3d",
    "pool_grad", "prelu", "relu", "replicate_pad", "rms_norm", "scale_shift_nchw", "softmax", "softplus", "upsampling", "utils",
    "winograd_util",
]  # fmt: skip
