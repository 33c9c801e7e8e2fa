"""The type names of operators' attributes: under them they are printed, saved and compared."""

from __future__ import annotations

from ..ir.op import Op

__all__ = ["ATTR_TYPES"]

_BY_TYPE = {
    "AllGather": "ccl.allgather",
    "AllReduce": "ccl.allreduce",
    "ArgmaxArgmin": "argmax argmin",
    "Argsort": "argsort",
    "Astype": "astype wrap_param",
    "Attention": "nn.attention nn.attention_bias nn.attention_var_len",
    "BatchNorm": "nn.batch_norm",
    "Concat": "concat",
    "Conv1D": "nn.conv1d",
    "Conv1DTranspose": "nn.conv1d_transpose",
    "Conv2D": "nn.conv2d",
    "Conv2DTranspose": "nn.conv2d_transpose",
    "Conv3D": "nn.conv3d",
    "Dropout": "nn.dropout",
    "Einsum": "einsum",
    "ExpandDims": "expand_dims",
    "Flip": "flip",
    "GatherElements": "gather_elements",
    "GatherND": "gather_nd",
    "GroupNorm": "nn.group_norm",
    "Init": "full full_like ones ones_like zeros zeros_like eye eye_like arange",
    "InstanceNorm": "nn.instance_norm",
    "LayerNorm": "nn.layer_norm",
    "LayoutTransform": "layout_transform",
    "LeakyRelu": "nn.leakyrelu",
    "Matmul": "matmul",
    "MultinomialFromUniform": "multinomial_from_uniform",
    "NLLLoss": "nn.nll_loss grad.nll_loss_backward",
    "OneHot": "one_hot",
    "PRelu": "nn.prelu",
    "Pad": "nn.pad",
    "PermuteDims": "permute_dims",
    "Pool1D": "nn.max_pool1d nn.avg_pool1d",
    "Pool2D": "nn.max_pool2d nn.avg_pool2d grad.max_pool2d_backward grad.avg_pool2d_backward",
    "Pool3D": "nn.max_pool3d nn.avg_pool3d",
    "AdaptivePool1D": "nn.adaptive_avg_pool1d",
    "AdaptivePool2D": "nn.adaptive_avg_pool2d",
    "AdaptivePool3D": "nn.adaptive_avg_pool3d",
    "Quantize": "quantize dequantize",
    "RMSNorm": "nn.rms_norm",
    "Repeat": "repeat",
    "Resize2D": "image.resize2d",
    "ScatterCollective": "ccl.scatter_from_worker0",
    "ScatterElements": "scatter_elements",
    "ScatterND": "scatter_nd",
    "Scanop": "cumprod cumsum",
    "Softmax": "nn.softmax nn.log_softmax",
    "Softplus": "nn.softplus",
    "Sort": "sort",
    "Split": "split",
    "Squeeze": "squeeze",
    "Statistical": "max mean min prod std sum variance",
    "StridedSlice": "strided_slice",
    "Take": "take grad.take_backward",
    "Tile": "tile",
    "TopK": "topk",
}

#: Type name of the attributes of each operator that has any.
ATTR_TYPES = {f"relax.{name}": f"relax.attrs.{kind}Attrs" for kind, names in _BY_TYPE.items() for name in names.split()}

for _name, _kind in ATTR_TYPES.items():
    Op.get(_name).set_attr("TAttrsTypeKey", _kind)
