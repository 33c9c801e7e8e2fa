"""Patterns of the matrix products for hipBLAS: float16, ``hipblas.matmul`` and ``hipblas.matmul_transposed`` alone,
with ``_bias``, ``_bias_relu`` and ``_bias_gelu``.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...tir import IntImm
from ...transform import FuseOpsByPattern
from ...transform.fuse_ops_by_pattern import PatternCheckContext
from ..common.library_matmul import batches_fit, bias_is_vector, matmul_patterns, shapes_of, transposes_matrices
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..utils import has_leaking_intermediate_variables

__all__ = ["partition_for_hipblas"]


def _check_matmul(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context) or not transposes_matrices(context):
        return False
    shapes = shapes_of(context)
    dtypes = [context.annotated_expr[name].struct_info.dtype for name in ("lhs", "rhs")]
    if shapes is None or dtypes != ["float16", "float16"] or not isinstance(shapes[0][-1], IntImm | int):
        return False
    bias = context.annotated_expr.get("bias")
    columns = context.annotated_expr["root"].struct_info.shape.values[-1]
    return (bias is None or bias_is_vector(bias, columns)) and batches_fit(*shapes)


register_patterns(matmul_patterns("hipblas", _check_matmul))


def partition_for_hipblas(mod: IRModule) -> IRModule:
    """Give the matrix products that hipBLAS can do to functions with ``Codegen="hipblas"``."""
    patterns = get_patterns_with_prefix("hipblas")
    out: IRModule = FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(mod)
    return out
