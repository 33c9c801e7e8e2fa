"""Matrix products for the BLAS libraries of GPUs: checks of shapes, biases and transpositions, shared by the libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr, RelaxExpr
from ...tir import IntImm, Var
from ...transform.fuse_ops_by_pattern import FusionPattern, PatternCheckContext
from ..patterns import make_matmul_pattern

__all__ = ["batches_fit", "bias_is_vector", "matmul_patterns", "shapes_of", "transposes_matrices", "volume"]

_ACTIVATIONS = {"": None, "_relu": "relax.nn.relu", "_gelu": "relax.nn.gelu"}


def volume(dims: Sequence[Any]) -> PrimExpr | int:
    """The product of dimensions."""
    return reduce(mul, dims, 1)


def shapes_of(context: PatternCheckContext) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """The dimensions of both factors, or None where they are not known or not matrices."""
    shapes = [context.annotated_expr[name].struct_info.shape for name in ("lhs", "rhs")]
    if any(shape is None or not hasattr(shape, "values") or len(shape.values) < 2 for shape in shapes):
        return None
    return shapes[0].values, shapes[1].values


def bias_is_vector(bias: RelaxExpr, columns: PrimExpr) -> bool:
    """Whether the bias is one number for each column of the product."""
    shape = bias.struct_info.shape
    if shape is None or not hasattr(shape, "values") or not shape.values:
        return False
    leading = volume(shape.values[:-1])
    whole = bool(Analyzer().can_prove_equal(shape.values[-1], columns))
    return isinstance(leading, IntImm | int) and int(leading) <= 1 and whole


def transposes_matrices(context: PatternCheckContext) -> bool:
    """Whether a ``permute_dims`` in the match exchanges the last two axes and no others."""
    call: Any = context.matched_bindings.get(context.annotated_expr["root"].args[1])
    if call is None:
        return True
    ndim, axes = call.struct_info.ndim, call.attrs.axes
    if axes is None:
        return bool(ndim == 2)
    given = [int(a) % ndim for a in axes]
    return given == [*range(ndim - 2), ndim - 1, ndim - 2]


def batches_fit(lhs: Sequence[Any], rhs: Sequence[Any]) -> bool:
    """Whether both sides have as many matrices, or the right one has one: then the left one's are its rows.

    A library steps through both batches alike; one matrix for all is only possible by joining batch and rows.
    """
    left, right = volume(lhs[:-2]), volume(rhs[:-2])
    if isinstance(left, Var) or isinstance(right, Var):
        return True
    analyzer = Analyzer()
    if analyzer.can_prove_equal(left, right):
        axes = [_without_ones(shape[:-2]) for shape in (lhs, rhs)]
        return len(axes[0]) == len(axes[1]) and all(analyzer.can_prove_equal(a, b) for a, b in zip(*axes, strict=True))
    return bool(analyzer.can_prove(left >= 1) and analyzer.can_prove(right == 1))


def _without_ones(axes: Sequence[Any]) -> list[Any]:
    first = next((i for i, dim in enumerate(axes) if not bool(dim == 1)), len(axes))
    return list(axes[first:])


def matmul_patterns(library: str, check: Callable[[PatternCheckContext], bool]) -> list[FusionPattern]:
    """``matmul`` and ``matmul_transposed``, each alone, with a bias, and with a bias and an activation."""
    made = []
    for transposed in (False, True):
        stem = f"{library}.matmul" + ("_transposed" if transposed else "")
        made.append(FusionPattern(stem, *make_matmul_pattern(transposed_rhs=transposed), check))
        for suffix, activation in _ACTIVATIONS.items():
            pattern = make_matmul_pattern(True, activation, transposed)
            made.append(FusionPattern(f"{stem}_bias{suffix}", *pattern, check))
    return made
