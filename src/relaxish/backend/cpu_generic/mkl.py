"""Intel MKL for matrix products (targets with ``-libs=mkl``): the patterns of products it takes, and its code
generator.

The registered patterns are ``mkl_blas.matmul`` and ``mkl_blas.matmul_transposed``, alone, with ``_bias`` and with
``_bias_relu``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.module import IRModule
from ...relax.expr import Constant, Function
from ...runtime.kernels.external import LibraryModule
from ...runtime.registry import register_func
from ...transform import FuseOpsByPattern
from ...transform.fuse_ops_by_pattern import PatternCheckContext
from ..common.library_codegen import Composite, library_module
from ..common.library_matmul import batches_fit, bias_is_vector, matmul_patterns, shapes_of, transposes_matrices
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..utils import has_leaking_intermediate_variables

__all__ = ["mkl_codegen", "partition_for_mkl"]

_NAME = "mkl_blas"


def _check(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context):
        return False
    product = context.annotated_expr["root"]
    infos = [context.annotated_expr[name].struct_info for name in ("lhs", "rhs")]
    shapes = shapes_of(context)
    same = {infos[0].dtype, infos[1].dtype, product.struct_info.dtype}
    if shapes is None or same not in ({"float32"}, {"float64"}) or not transposes_matrices(context):
        return False
    bias = context.annotated_expr.get("bias")
    if bias is not None and not bias_is_vector(bias, product.struct_info.shape.values[-1]):
        return False
    return batches_fit(*shapes)


register_patterns([p for p in matmul_patterns(_NAME, _check) if not p.name.endswith("_gelu")])


def partition_for_mkl(mod: IRModule) -> IRModule:
    """Give the matrix products that MKL can do, with what follows them, to functions with ``Codegen="mkl_blas"``."""
    out: IRModule = FuseOpsByPattern(get_patterns_with_prefix(_NAME), bind_constants=False, annotate_codegen=True)(mod)
    return out


def _translate(composite: Composite) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    operands = ["lhs", "rhs", *(["bias"] if composite.has("bias") else [])]
    attrs = {
        "transposed_rhs": "_transposed" in composite.name,
        "bias": composite.has("bias"),
        "activation": "relu" if composite.name.endswith("relu") else "",
    }
    return "mkl.gemm", operands, attrs


@register_func("relax.ext.mkl_blas", override=True)
def mkl_codegen(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Constant, str]
) -> list[LibraryModule]:
    """One runtime module with all functions."""
    return [library_module(_NAME, functions, _translate, options)]
