"""Algebra of matrix products: association, distribution and commutation with transposes, sums and gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from ..arith import Extension
from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..op.binary import add
from ..op.index import take
from ..op.linear_algebra import einsum, matmul
from ..op.manipulate import concat, permute_dims, reshape
from ..relax.analysis.compile_time import computable_at_compile_time
from ..relax.analysis.struct_info import tir_vars_in_struct_info
from ..relax.block_builder import BlockBuilder
from ..relax.dpl import DFPattern, is_op, is_tuple, rewrite_call, wildcard
from ..relax.expr import Expr, Function, ShapeExpr, Tuple, as_shape_dim
from ..relax.scalars import fresh_analyzer, prove_equal_shapes
from ..relax.struct_info import TensorStructInfo, tensor_dims, tensor_rank
from ..tir import GE, GT, LT, And, IntImm
from .base import map_relax_functions
from ..ir.plain import plain_int, plain_str
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AdjustMatmulOrder", "ExpandMatmulOfSum", "ReorderPermuteDimsAfterConcat", "ReorderTakeAfterMatmul"]

Matches = Mapping[DFPattern, Any]
Rewriter = Callable[[Expr, Matches], Expr | None]


class _CallRewrite(ModuleRewrite):
    """A pass that rewrites the calls of a pattern, both of which are made for the function."""

    @staticmethod
    def make(func: Function, /) -> tuple[DFPattern, Rewriter]:
        """The pattern and what becomes of a call that it matches."""
        raise NotImplementedError

    def rewrite(self, mod: IRModule) -> IRModule:
        return map_relax_functions(mod, lambda _, func: rewrite_call(*self.make(func), func))


def _dims(expr: Expr) -> Sequence[Any] | None:
    info = expr.struct_info_
    return tensor_dims(info)


def _swaps_last_two(call: Any, ndim: int) -> bool:
    """Whether a permute_dims exchanges the last two of ``ndim`` axes and keeps the others."""
    axes = call.attrs.axes
    found = list(range(ndim))[::-1] if axes is None else [int(a) % ndim for a in axes]
    return ndim >= 2 and found == [*range(ndim - 2), ndim - 1, ndim - 2]


def _transposed(expr: Expr) -> Expr:
    ndim = expr.struct_info.ndim
    made = permute_dims(expr, None if ndim == 2 else [*range(ndim - 2), ndim - 1, ndim - 2])
    return BlockBuilder().normalize(made)


class _Weights:
    """Which values of a function are known once its weights are."""

    def __init__(self, func: Function) -> None:
        known = set(computable_at_compile_time(func))
        self.values = known | {b.value for block in func.body.blocks for b in block.bindings if b.var in known}

    def holds(self, expr: Expr) -> bool:
        """Whether the expression is computable at compile time."""
        return expr in self.values


def _adjust_order(func: Function) -> tuple[DFPattern, Rewriter]:
    weights = _Weights(func)
    bounds = _known_bounds(func)
    a, b, c = wildcard(), wildcard(), wildcard()
    product, flip = is_op("relax.matmul"), is_op("relax.permute_dims")
    left, right = product(product(a, b), c), product(a, product(b, c))
    turned_left, turned_right = flip(product(b, a)), flip(product(c, b))
    flipped_left, flipped_right = product(turned_left, c), product(a, turned_right)

    def operands(matched: Matches) -> list[Any] | None:
        """The three factors in order, transposed ones as transposes of theirs."""
        x, y, z = matched[a], matched[b], matched[c]
        turned = turned_left if flipped_left in matched else turned_right if flipped_right in matched else None
        if turned is None:
            return [x, y, z]
        inner = matched[turned].struct_info
        if not isinstance(inner, TensorStructInfo) or not _swaps_last_two(matched[turned], inner.ndim):
            return None
        if turned is turned_left:
            return None if _rank(x) < 2 or _rank(y) < 2 else [_transposed(x), _transposed(y), z]
        return None if _rank(y) < 2 or _rank(z) < 2 else [x, _transposed(y), _transposed(z)]

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        known = [weights.holds(matched[hole]) for hole in (a, b, c)]
        factors = operands(matched)
        if factors is None or all(known):
            return expr
        x, y, z = factors
        if known[0] and known[1]:
            return matmul(matmul(x, y), z)
        if known[1] and known[2]:
            return matmul(x, matmul(y, z))
        shapes = [_dims(v) for v in factors]
        if any(s is None for s in shapes):
            return expr
        first_left = _cheaper_left(list(shapes[0] or ()), list(shapes[2] or ()), bounds)
        if first_left is None:
            return expr
        return matmul(matmul(x, y), z) if first_left else matmul(x, matmul(y, z))

    return left | right | flipped_left | flipped_right, rewrite


def _rank(expr: Expr) -> int:
    info = expr.struct_info_
    return tensor_rank(info)


def _known_bounds(func: Function) -> list[PrimExpr]:
    """What the attributes ``tir_var_lower_bound`` and ``tir_var_upper_bound`` say of the signature's symbols."""
    lower, upper = (func.attrs.get(f"tir_var_{side}_bound") for side in ("lower", "upper"))
    if lower is None and upper is None:
        return []
    symbols = {v.name: v for v in tir_vars_in_struct_info(func.struct_info)}
    out: list[PrimExpr] = [GE(v, IntImm(v.dtype, 0)) for v in symbols.values()]
    for bounds, relation in ((lower, GE), (upper, LT)):
        for name, bound in (bounds or {}).items():
            var = symbols.get(plain_str(name))
            if var is not None:
                out.append(relation(var, IntImm(var.dtype, plain_int(bound))))
    return out


def _cheaper_left(a: list[Any], c: list[Any], bounds: Sequence[PrimExpr]) -> bool | None:
    """Whether ``(a b) c`` takes fewer multiplications than ``a (b c)``; None if that is not known."""
    rows, inner = (1, a[0]) if len(a) == 1 else (a[-2], a[-1])
    outer, columns = (c[0], 1) if len(c) == 1 else (c[-2], c[-1])
    rows, inner, outer, columns = factors = [as_shape_dim(v) for v in (rows, inner, outer, columns)]
    left = (inner + columns) * rows * outer
    right = (columns + rows) * inner * outer
    analyzer = fresh_analyzer()
    analyzer.enabled_extensions = Extension(analyzer.enabled_extensions | Extension.ComparisonOfProductAndSum)
    conditions = [*bounds, *(GT(f, IntImm(f.dtype, 0)) for f in factors)]
    with analyzer.constraint_scope(reduce(And, conditions)):
        if analyzer.can_prove(LT(left, right)):
            return True
        return False if analyzer.can_prove(LT(right, left)) else None


class AdjustMatmulOrder(_CallRewrite, opt_level=1):
    """Associate chains of matrix products the cheaper way.

    ``R.matmul(R.matmul(A, B), x)`` becomes ``R.matmul(A, R.matmul(B, x))`` where that takes fewer multiplications (low
    rank adapters); products of weights alone are put together, for LiftTransformParams to compute them once.
    """

    make = staticmethod(_adjust_order)


def _expand_sum(func: Function) -> tuple[DFPattern, Rewriter]:
    weights = _Weights(func)
    x, one, two = wildcard(), wildcard(), wildcard()
    total = is_op("relax.add")(one, two)
    turned = is_op("relax.permute_dims")(total)

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        parts = [matched[one], matched[two]]
        if all(weights.holds(part) for part in parts):
            return expr
        shapes = [_dims(part) for part in parts]
        if shapes[0] is not None and shapes[1] is not None and not prove_equal_shapes(shapes[0], shapes[1]):
            return expr  # a broadcast addend multiplied alone has another shape
        if turned in matched:
            axes = matched[turned].attrs.axes
            parts = [permute_dims(part, axes) for part in parts]
        return add(matmul(matched[x], parts[0]), matmul(matched[x], parts[1]))

    return is_op("relax.matmul")(x, total | turned), rewrite


class ExpandMatmulOfSum(_CallRewrite, opt_level=1):
    """``R.matmul(x, R.add(A, B))`` becomes ``R.add(R.matmul(x, A), R.matmul(x, B))``, unless ``A + B`` is computable at
    compile time.  ``R.permute_dims(R.add(A, B))`` is taken apart alike.
    """

    make = staticmethod(_expand_sum)


_MAX_CONCAT = 12


def _permute_after_concat(_: Function) -> tuple[DFPattern, Rewriter]:
    holes = [wildcard() for _ in range(_MAX_CONCAT)]
    permutes = [is_op("relax.permute_dims")(hole) for hole in holes]
    tuples = [is_tuple(permutes[:count]) for count in range(2, _MAX_CONCAT)]
    pattern: DFPattern = is_op("relax.concat")(tuples[0])
    concats = [pattern]
    for fields in tuples[1:]:
        concats.append(is_op("relax.concat")(fields))
        pattern = pattern | concats[-1]

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        found = [(matched[h], matched[p]) for h, p in zip(holes, permutes) if h in matched]
        call = matched[next(c for c in concats if c in matched)]
        ndim = found[0][0].struct_info.ndim
        if ndim < 0:
            return expr

        def axes_of(permute: Any) -> list[int]:
            given = permute.attrs.axes
            return list(range(ndim))[::-1] if given is None else [int(a) % ndim for a in given]

        axes = axes_of(found[0][1])
        if any(axes_of(p) != axes for _, p in found):
            return expr
        axis = axes[int(call.attrs.axis or 0) % ndim]
        given = found[0][1].attrs.axes
        return permute_dims(concat([value for value, _ in found], axis), None if given is None else axes)

    return pattern, rewrite


class ReorderPermuteDimsAfterConcat(_CallRewrite, opt_level=1):
    """``R.concat((R.permute_dims(A), R.permute_dims(B)), axis=1)`` becomes
    ``R.permute_dims(R.concat((A, B), axis=0))``.
    """

    make = staticmethod(_permute_after_concat)


def _take_of_batched(lhs: Expr, lhs_dims: Sequence[Any], table: Expr, dims: Sequence[Any], places: Expr) -> Expr:
    """``matmul(x, take(W, i, axis=0))`` for a table of matrices, one of which each batch entry picks.

    All matrices are applied at once; then entry ``i`` of the batch keeps the part of the matrix it picked.
    """
    count, inner, outer = dims
    wide = reshape(permute_dims(table, [1, 0, 2]), ShapeExpr([inner, count * outer]))
    every = reshape(matmul(lhs, wide), ShapeExpr([lhs_dims[0], lhs_dims[1], count, outer]))
    return einsum(Tuple([take(every, places, 2)]), "ijik->ijk")


def _take_after_matmul(_: Function) -> tuple[DFPattern, Rewriter]:
    x, weights, indices = wildcard(), wildcard(), wildcard()
    taken = is_op("relax.take")(weights, indices)
    whole = is_op("relax.matmul")(x, taken)

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        lhs, table, places = matched[x], matched[weights], matched[indices]
        axis, out = matched[taken].attrs.axis, expr.struct_info_
        ranks = [_rank(v) for v in (lhs, table, places)]
        if axis is None or min(ranks) < 0 or not isinstance(out, TensorStructInfo) or out.ndim < 0:
            return expr
        if ranks[2] == 1 and int(axis) + 1 == ranks[1]:
            return take(matmul(lhs, table), places, out.ndim - 1)
        shape, lhs_shape = _dims(table), _dims(lhs)
        if ranks == [3, 3, 1] and int(axis) == 0 and shape is not None and lhs_shape is not None:
            return _take_of_batched(lhs, lhs_shape, table, shape, places)
        return expr

    return whole, rewrite


class ReorderTakeAfterMatmul(_CallRewrite, opt_level=1):
    """``R.matmul(x, R.take(W, i, axis=1))`` becomes ``R.take(R.matmul(x, W), i, axis=1)``, so that no gathered copy of
    the weights is made; likewise for a table of matrices of which each entry of the batch picks one.
    """

    make = staticmethod(_take_after_matmul)
