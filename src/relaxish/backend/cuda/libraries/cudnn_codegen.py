"""``relax.ext.cudnn``: composite convolutions become calls of cuDNN.

Option (``RunCodegen({"cudnn": {"allow_tf32": True}})``): float32 convolutions may be computed by tensor cores.
Attentions are partitioned but have no library call here: RunCodegen says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....relax.expr import Call, Constant, Function
from ....runtime.kernels.external import LibraryModule
from ....runtime.registry import register_func
from ....support.errors import RelaxishError
from ...common.library_codegen import Composite, library_module

__all__ = ["cudnn_codegen"]


def _translate(composite: Composite) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    if "conv2d" not in composite.name:
        raise RelaxishError(
            f"{composite.name}: attention by cuDNN needs its graph interface, which relaxish does not use; partition for "
            "CUTLASS instead, or leave R.nn.attention to the generated kernels"
        )
    root = composite.found["root"]
    assert isinstance(root, Call)
    a = root.attrs
    top, left, *_ = (int(p) for p in a.padding)
    attrs = {
        "layout": str(a.data_layout),
        "strides": [int(s) for s in a.strides],
        "padding": [top, left],
        "dilation": [int(d) for d in a.dilation],
        "groups": int(a.groups),
        "activation": "relu" if composite.name.endswith("_relu") else "",
        "tf32": bool(composite.options.get("allow_tf32", False)),
    }
    return "cudnn.conv2d", ["input", "weight", *(["bias"] if composite.has("bias") else [])], attrs


@register_func("relax.ext.cudnn", override=True)
def cudnn_codegen(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Constant, str]
) -> list[LibraryModule]:
    """One runtime module with all functions. The library itself is only needed to run them."""
    return [library_module("cudnn", functions, _translate, options)]
