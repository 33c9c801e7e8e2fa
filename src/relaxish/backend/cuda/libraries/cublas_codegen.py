"""``relax.ext.cublas``: composite products become calls of cuBLASLt.

Option (``RunCodegen({"cublas": {"allow_tf32": True}})``): float32 products may be computed by tensor cores, with factors
rounded to 10 bits of mantissa.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....relax.expr import Constant, Function
from ....runtime.kernels.external import LibraryModule
from ....runtime.registry import register_func
from ...common.library_codegen import Composite, library_module

__all__ = ["cublas_codegen"]


def _translate(composite: Composite) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    operands = ["lhs", "rhs", *(name for name in ("bias", "scale", "scaleA", "scaleB") if composite.has(name))]
    attrs = {
        "transposed_rhs": "_transposed" in composite.name,
        "bias": composite.has("bias"),
        "activation": next((a for a in ("relu", "gelu") if composite.name.endswith(a)), ""),
        "tf32": bool(composite.options.get("allow_tf32", False)),
    }
    return "cublas.gemm", operands, attrs


@register_func("relax.ext.cublas", override=True)
def cublas_codegen(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Constant, str]
) -> list[LibraryModule]:
    """One runtime module with all functions. The library itself is only needed to run them."""
    return [library_module("cublas", functions, _translate, options)]
