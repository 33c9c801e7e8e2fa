"""Patterns of the matrix products for cuBLAS.

The registered patterns are ``cublas.matmul`` and ``cublas.matmul_transposed`` (the right side is a ``permute_dims``),
alone, with ``_bias``, ``_bias_relu`` and ``_bias_gelu``, and for 8-bit floats ``cublas.matmul_transposed_dequantize``
and ``cublas.matmul_transposed_multiply``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.dtype import nbytes
from ...ir.module import IRModule
from ...relax.expr import Call
from ...tir import IntImm
from ...transform import FuseOpsByPattern, FusionPattern
from ...transform.fuse_ops_by_pattern import PatternCheckContext
from ..common.library_matmul import batches_fit, bias_is_vector, matmul_patterns, shapes_of, transposes_matrices
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import make_matmul_dequantize_pattern, make_matmul_multiply_pattern
from ..utils import has_leaking_intermediate_variables
from .libraries.cublas_codegen import cublas_codegen as cublas_codegen  # registers relax.ext.cublas

__all__ = ["partition_for_cublas"]

_FP8 = "float8_e4m3fn"
_SAME_DTYPES = ("float16", "float32", "int8", "bfloat16")
_FP8_ALIGNMENT = 16  # bytes that every matrix's rows must be a multiple of


def _is_supported_dtype(lhs: str, rhs: str, out: str) -> bool:
    if lhs == rhs == _FP8:
        return out != "float8_e5m2"
    return lhs == rhs and lhs in _SAME_DTYPES


def _scales_fit(context: PatternCheckContext) -> bool:
    """The library scales by one number, and knows no zero point."""
    scale, zero = (context.annotated_expr.get(name) for name in ("scale", "zp"))
    if scale is None or zero is None:
        return True
    if scale.struct_info.ndim != 0 or zero.struct_info.ndim != 0:
        return False
    return float(zero.data.numpy()) == 0.0


def _multiple(dim: Any, of: int) -> bool:
    return isinstance(dim, IntImm | int) and int(dim) % of == 0


def _fp8_fits(context: PatternCheckContext, product: Call, rhs: Sequence[IntImm], out: str) -> bool:
    """8-bit floats: the right side must be given transposed, and rows of both it and the result be aligned."""
    transposed = context.matched_bindings.get(product.args[1])
    if transposed is None:
        return False
    aligned_k = _multiple(rhs[-1], _FP8_ALIGNMENT // nbytes(_FP8))
    return aligned_k and _multiple(rhs[-2], _FP8_ALIGNMENT // nbytes(out))


def _check_matmul(context: PatternCheckContext) -> bool:
    if has_leaking_intermediate_variables(context) or not _scales_fit(context):
        return False
    product = context.annotated_expr["root"]
    lhs_dtype, rhs_dtype = (context.annotated_expr[name].struct_info.dtype for name in ("lhs", "rhs"))
    out_dtype = product.struct_info.dtype
    shapes = shapes_of(context)
    if shapes is None or not _is_supported_dtype(lhs_dtype, rhs_dtype, out_dtype) or not transposes_matrices(context):
        return False
    lhs, rhs = shapes
    if not isinstance(lhs[-1], IntImm | int):
        return False
    bias = context.annotated_expr.get("bias")
    if lhs_dtype == "int8":
        if bias is not None or out_dtype != "int32" or not _multiple(lhs[-1], 4) or not _multiple(rhs[-1], 4):
            return False
    elif lhs_dtype == _FP8 and not _fp8_fits(context, product, rhs, out_dtype):
        return False
    if bias is not None and not bias_is_vector(bias, product.struct_info.shape.values[-1]):
        return False
    return batches_fit(lhs, rhs)


register_patterns(
    [
        *matmul_patterns("cublas", _check_matmul),
        FusionPattern(
            "cublas.matmul_transposed_dequantize", *make_matmul_dequantize_pattern(transposed_rhs=True), _check_matmul
        ),
        FusionPattern(
            "cublas.matmul_transposed_multiply", *make_matmul_multiply_pattern(transposed_rhs=True), _check_matmul
        ),
    ]
)


def partition_for_cublas(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """Give the matrix products that cuBLAS can do, with what follows them, to functions with ``Codegen="cublas"``.

    ::

        lv = R.matmul(x, w)         ->     gv = cls.fused_relax_matmul_relax_add_cublas(x, w, b)
        gv = R.add(lv, b)

    ``bind_constants``: constants go into those functions instead of becoming arguments.  ``RunCodegen`` then makes
    runtime modules of them.
    """
    patterns = get_patterns_with_prefix("cublas")
    out: IRModule = FuseOpsByPattern(patterns, bind_constants=bind_constants, annotate_codegen=True)(mod)
    return out
