"""Algebra of matrix products: association, distribution and commutation with transposes, sums and gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.transform import Pass
from ..op.binary import add
from ..op.index import take
from ..op.linear_algebra import matmul
from ..op.manipulate import concat, permute_dims
from ..relax.analysis.compile_time import computable_at_compile_time
from ..relax.block_builder import BlockBuilder
from ..relax.dpl import DFPattern, is_op, is_tuple, rewrite_call, wildcard
from ..relax.expr import Expr, Function, as_shape_dim
from ..relax.scalars import const_int, fresh_analyzer, prim_vars, product, prove_equal_shapes, simplify
from ..relax.struct_info import TensorStructInfo
from .base import as_module_pass, map_relax_functions

__all__ = ["AdjustMatmulOrder", "ExpandMatmulOfSum", "ReorderPermuteDimsAfterConcat", "ReorderTakeAfterMatmul"]

Matches = Mapping[DFPattern, Any]
Rewriter = Callable[[Expr, Matches], Expr | None]


def _pass(make: Callable[[Function], tuple[DFPattern, Rewriter]], name: str) -> Pass:
    def run(mod: IRModule) -> IRModule:
        def rewrite(_: Any, func: Function) -> Function:
            pattern, rewriter = make(func)
            return rewrite_call(pattern, rewriter, func)

        return map_relax_functions(mod, rewrite)

    return as_module_pass(run, name, 1)


def _dims(expr: Any) -> Sequence[Any] | None:
    info = expr.struct_info_
    return info.dims() if isinstance(info, TensorStructInfo) else None


def _swaps_last_two(call: Any, ndim: int) -> bool:
    """Whether a permute_dims exchanges the last two of ``ndim`` axes and keeps the others."""
    axes = call.attrs.axes
    found = list(range(ndim))[::-1] if axes is None else [int(a) % ndim for a in axes]
    return ndim >= 2 and found == [*range(ndim - 2), ndim - 1, ndim - 2]


def _transposed(expr: Any) -> Expr:
    ndim = expr.struct_info.ndim
    made = permute_dims(expr, None if ndim == 2 else [*range(ndim - 2), ndim - 1, ndim - 2])
    return BlockBuilder().normalize(made)  # type: ignore[no-any-return]


class _Weights:
    """Which values of a function are known once its weights are."""

    def __init__(self, func: Function) -> None:
        known = set(computable_at_compile_time(func))
        self.values = known | {b.value for block in func.body.blocks for b in block.bindings if b.var in known}

    def holds(self, expr: Any) -> bool:
        """Whether the expression is computable at compile time."""
        return expr in self.values


def _adjust_order(func: Function) -> tuple[DFPattern, Rewriter]:
    weights = _Weights(func)
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
        first_left = _cheaper_left(*[list(s or ()) for s in shapes])
        if first_left is None:
            return expr
        return matmul(matmul(x, y), z) if first_left else matmul(x, matmul(y, z))

    return left | right | flipped_left | flipped_right, rewrite


def _rank(expr: Any) -> int:
    info = expr.struct_info_
    return info.ndim if isinstance(info, TensorStructInfo) else -1


def _cheaper_left(a: list[Any], b: list[Any], c: list[Any]) -> bool | None:
    """Whether ``(a b) c`` takes fewer multiplications than ``a (b c)``; None if that is not known."""
    if len(a) == 1:
        a = [1, *a]
    if len(b) == 1:
        b = [*b, 1] if len(a) >= 2 else [1, *b]
    if len(c) == 1:
        c = [*c, 1]
    m, k, n, p = a[-2], a[-1], b[-1], c[-1]
    factors = [as_shape_dim(v) for v in (m, k, n, p)]
    m, k, n, p = factors
    left = simplify(product([m, k, n]) + product([m, n, p]))
    right = simplify(product([k, n, p]) + product([m, k, p]))
    one, other = const_int(left), const_int(right)
    if one is not None and other is not None:
        return one < other if one != other else None
    analyzer = fresh_analyzer()
    for symbol in {v for f in factors for v in prim_vars(f)}:
        analyzer.mark_global_non_neg_value(symbol)
    if analyzer.can_prove(left < right):
        return True
    return False if analyzer.can_prove(right < left) else None


def AdjustMatmulOrder() -> Pass:  # noqa: N802  (public name of the pass)
    """Associate chains of matrix products the cheaper way.

    ``R.matmul(R.matmul(A, B), x)`` becomes ``R.matmul(A, R.matmul(B, x))`` where that takes fewer multiplications (low
    rank adapters); products of weights alone are put together, for LiftTransformParams to compute them once.
    """
    return _pass(_adjust_order, "AdjustMatmulOrder")


def _expand_sum(func: Function) -> tuple[DFPattern, Rewriter]:
    weights = _Weights(func)
    x, one, two = wildcard(), wildcard(), wildcard()
    total = is_op("relax.add")(one, two)

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        shapes = [_dims(matched[part]) for part in (one, two)]
        if weights.holds(matched[one]) and weights.holds(matched[two]):
            return expr
        if shapes[0] is None or shapes[1] is None or not prove_equal_shapes(shapes[0], shapes[1]):
            return expr
        return add(matmul(matched[x], matched[one]), matmul(matched[x], matched[two]))

    return is_op("relax.matmul")(x, total), rewrite


def ExpandMatmulOfSum() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.matmul(x, R.add(A, B))`` becomes ``R.add(R.matmul(x, A), R.matmul(x, B))``, unless ``A + B`` is computable at
    compile time.
    """
    return _pass(_expand_sum, "ExpandMatmulOfSum")


_MAX_CONCAT = 12


def _permute_after_concat(_: Function) -> tuple[DFPattern, Rewriter]:
    holes = [wildcard() for _ in range(_MAX_CONCAT)]
    permutes = [is_op("relax.permute_dims")(hole) for hole in holes]
    tuples = [is_tuple(permutes[:count]) for count in range(2, _MAX_CONCAT + 1)]
    pattern: DFPattern = is_op("relax.concat")(tuples[0])
    concats = [pattern]
    for fields in tuples[1:]:
        concats.append(is_op("relax.concat")(fields))
        pattern = pattern | concats[-1]

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        found = [(matched[h], matched[p]) for h, p in zip(holes, permutes) if h in matched]
        call = matched[next(c for c in concats if c in matched)]
        ndim = found[0][0].struct_info.ndim
        if ndim < 0 or call.attrs.axis is None:
            return expr

        def axes_of(permute: Any) -> list[int]:
            given = permute.attrs.axes
            return list(range(ndim))[::-1] if given is None else [int(a) % ndim for a in given]

        axes = axes_of(found[0][1])
        if any(axes_of(p) != axes for _, p in found):
            return expr
        axis = axes[int(call.attrs.axis) % ndim]
        given = found[0][1].attrs.axes
        return permute_dims(concat([value for value, _ in found], axis), None if given is None else axes)

    return pattern, rewrite


def ReorderPermuteDimsAfterConcat() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.concat((R.permute_dims(A), R.permute_dims(B)), axis=1)`` becomes
    ``R.permute_dims(R.concat((A, B), axis=0))``.
    """
    return _pass(_permute_after_concat, "ReorderPermuteDimsAfterConcat")


def _take_after_matmul(_: Function) -> tuple[DFPattern, Rewriter]:
    x, weights, indices = wildcard(), wildcard(), wildcard()
    taken = is_op("relax.take")(weights, indices)
    whole = is_op("relax.matmul")(x, taken)

    def rewrite(expr: Expr, matched: Matches) -> Expr | None:
        lhs, table, places = matched[x], matched[weights], matched[indices]
        axis = matched[taken].attrs.axis
        if axis is None or places.struct_info_ is None:
            return expr
        shape, lhs_shape, index_shape = _dims(table), _dims(lhs), _dims(places)
        if shape is None or lhs_shape is None or index_shape is None or len(index_shape) != 1:
            return expr
        ndim, at = len(shape), int(axis) % len(shape)
        if ndim >= 2 and at == ndim - 1:
            # matmul(x, take(W, i, axis=1)) = take(matmul(x, W), i, axis=-1)
            return take(matmul(lhs, table), places, max(len(lhs_shape), ndim) - 1)
        return expr

    return whole, rewrite


def ReorderTakeAfterMatmul() -> Pass:  # noqa: N802  (public name of the pass)
    """``R.matmul(x, R.take(W, i, axis=1))`` becomes ``R.take(R.matmul(x, W), i, axis=-1)``, so that no gathered copy of
    the weights is made.
    """
    return _pass(_take_after_matmul, "ReorderTakeAfterMatmul")

