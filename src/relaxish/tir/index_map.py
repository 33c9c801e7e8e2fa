"""Index maps: from the indices of one layout to those of another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..ir.errors import CheckValueError
from ..ir.expr import PrimExpr, Range, ShapeLike, as_expr, as_exprs
from ..ir import dtype as dt
from ..ir.functor import Mutator, post_order_visit
from ..ir.node import Node, field
from ..ir.prim import BinaryOp, IntImm, IterVar, Var, const
from ..support.errors import RelaxishError
from ..ir.primops import match_types
from .functor import Substitute, substitute

if TYPE_CHECKING:
    import numpy as np

    from ..arith import Analyzer
    from ..runtime.arrays.ndarray import NDArray

_Array = TypeVar("_Array", "np.ndarray[Any, Any]", "NDArray")

__all__ = ["IndexMap", "with_index_dtype"]


class _AxisSeparator:
    def __repr__(self) -> str:
        return "IndexMap.AXIS_SEPARATOR"


class _Legalizing(Substitute):
    """Substitution by values of another integer width: operations widen where their operands differ."""

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        if a.dtype != b.dtype:
            a, b = match_types(a, b)
        return type(e)(a, b)


class IndexMap(Node):
    """``lambda *initial_indices: final_indices``, with an optional known inverse.

    >>> from relaxish import tir
    >>> m = tir.IndexMap.from_func(lambda i: [i // 4, i % 4])
    >>> [int(d) for d in m.map_shape([16])]
    [4, 4]
    """

    initial_indices: tuple[Var, ...] = field(role="bind")
    final_indices: tuple[PrimExpr, ...]
    inverse_index_map: IndexMap | None = field(role="ignore", default=None)

    AXIS_SEPARATOR = _AxisSeparator()

    def __init__(
        self,
        initial_indices: Iterable[Var | IterVar],
        final_indices: ShapeLike,
        inverse_index_map: IndexMap | Callable[..., Any] | None = None,
    ) -> None:
        self.initial_indices = tuple(i.var if isinstance(i, IterVar) else i for i in initial_indices)
        self.final_indices = as_exprs(final_indices)
        if callable(inverse_index_map) and not isinstance(inverse_index_map, IndexMap):
            inverse_index_map = IndexMap.from_func(inverse_index_map)
        self.inverse_index_map = inverse_index_map

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: IndexMap | Callable[..., Any] | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """From a Python function of the indices. ``ndim`` is needed if it takes ``*args``.

        Raises AssertionError if the function returns axis separators.
        """
        made, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise AssertionError(
                "The mapping_function provided to IndexMap.from_func may not return IndexMap.AXIS_SEPARATOR: use "
                "IndexMap.from_func_with_separators for it"
            )
        return made

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: IndexMap | Callable[..., Any] | None = None,
        *,
        index_dtype: str = "int64",
    ) -> tuple[IndexMap, list[int]]:
        """As :meth:`from_func`, plus the positions at which the result holds ``IndexMap.AXIS_SEPARATOR``."""
        args, keywords = _make_indices(mapping_function, ndim, index_dtype)
        mapped = mapping_function(*args, **keywords)
        if isinstance(mapped, (PrimExpr, int)) or not isinstance(mapped, (list, tuple)):
            mapped = [mapped]
        final: list[PrimExpr] = []
        separators: list[int] = []
        for item in mapped:
            if item is IndexMap.AXIS_SEPARATOR:
                separators.append(len(final))
            elif isinstance(item, str):
                raise TypeError(
                    "Expected mapping function to return list of either tir.PrimExpr or IndexMap.AXIS_SEPARATOR. "
                    f"Instead received {item} of type {type(item)}."
                )
            elif isinstance(item, (PrimExpr, int)):
                final.append(const(item, index_dtype) if isinstance(item, int) else item)
            else:
                try:
                    final.append(as_expr(item))
                except TypeError:
                    raise TypeError(
                        "Expected mapping function to return list of either tir.PrimExpr or IndexMap.AXIS_SEPARATOR. "
                        f"Instead received {item} of type {type(item)}."
                    ) from None
        return IndexMap([*args, *keywords.values()], final, inverse_index_map), separators

    def is_equivalent_to(self, other_map: IndexMap) -> bool:
        """Whether both map equal indices to provably equal indices."""
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        if len(self.final_indices) != len(other_map.final_indices):
            return False
        mapped = other_map.map_indices(self.initial_indices)
        from .. import arith

        analyzer = arith.Analyzer()
        return all(analyzer.can_prove_equal(a, b) for a, b in zip(self.final_indices, mapped))

    def map_indices(self, indices: Sequence[Any]) -> list[PrimExpr]:
        """The mapped indices, simplified."""
        exprs = as_exprs(indices)
        self._check_count(exprs)
        values = dict(zip(self.initial_indices, exprs))
        from .. import arith

        analyzer = arith.Analyzer()
        return [analyzer.simplify(_Legalizing(values).visit(e)) for e in self.final_indices]

    def map_ranges(self, ranges: Sequence[Range], analyzer: Analyzer | None = None) -> list[Range]:
        """Ranges that cover the image of a box; exact where the map is affine and surjective."""
        from .index_map_ranges import map_ranges

        self._check_count(ranges)
        return map_ranges(self, ranges, analyzer)

    def _check_count(self, given: Sequence[Any]) -> None:
        if len(given) != len(self.initial_indices):
            raise CheckValueError(f"the map takes {len(self.initial_indices)} indices, got {len(given)}")

    def map_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape that an array of ``shape`` has after the map."""
        dims = as_exprs(shape)
        ranges = [Range.from_min_extent(const(0, d.dtype), d) for d in dims]
        dtype = max((d.dtype for d in dims), key=dt.bits, default="int32")
        known = all(isinstance(d, IntImm) for d in dims)
        mapped = (self if known else with_index_dtype(self, dtype)).map_ranges(ranges)
        return [item.extent.astype(dtype) for item in mapped]

    def map_ndarray(self, arr_src: _Array) -> _Array:
        """The array rearranged by the map."""
        import numpy as np

        source = arr_src if isinstance(arr_src, np.ndarray) else arr_src.numpy()
        shape = [int(d) for d in self.map_shape(list(source.shape))]  # type: ignore[call-overload]
        out = np.zeros(shape, dtype=source.dtype)
        grids = np.indices(source.shape)
        from ..ir.evaluate import evaluate

        env = dict(zip(self.initial_indices, grids))
        out[tuple(np.broadcast_to(evaluate(e, env), source.shape) for e in self.final_indices)] = source
        if isinstance(arr_src, np.ndarray):
            return out
        from ..runtime.arrays.ndarray import array

        return array(out)

    def free_vars(self) -> list[Var]:
        """Variables of the final indices that are not initial indices, in order of use."""
        found: dict[Var, None] = {}

        def look(node: Node) -> None:
            if isinstance(node, Var):
                found[node] = None

        for index in self.final_indices:
            post_order_visit(index, look)
        return [v for v in found if v not in set(self.initial_indices)]

    def substitute_free(self, values: Mapping[Var, PrimExpr]) -> IndexMap:
        """The map with free variables replaced; the same map if it has none of them."""
        if not any(v in values for v in self.free_vars()):
            return self
        return IndexMap(
            self.initial_indices, [substitute(e, values) for e in self.final_indices], self.inverse_index_map
        )

    def inverse(self, shape: Sequence[Any]) -> IndexMap:
        """The inverse map on an array of ``shape``. Raises RuntimeError if it is not a bijection."""
        if self.inverse_index_map is not None:
            return self.inverse_index_map
        from .index_map_ranges import invert

        from .. import arith

        made, padding = invert(self, _ranges(shape), arith.IterMapLevel.Bijective)

        if not arith.Analyzer().can_prove(padding.equal(const(0, "bool"))):
            raise RelaxishError(
                f"Bijective inverse should not contain padding, but inverse of {self} over range {shape} does"
            )
        return made

    def non_surjective_inverse(self, shape: Sequence[Any]) -> tuple[IndexMap, PrimExpr]:
        """An inverse, and the condition (on the new indices) under which an element is padding."""
        from .index_map_ranges import invert

        return invert(self, _ranges(shape))


def _ranges(shape: Sequence[Any]) -> list[Range]:
    return [s if isinstance(s, Range) else Range.from_min_extent(const(0, as_expr(s).dtype), as_expr(s)) for s in shape]


def _make_indices(function: Callable[..., Any], ndim: int | None, index_dtype: str) -> tuple[list[Var], dict[str, Var]]:
    args: list[Var] = []
    keywords: dict[str, Var] = {}
    variadic = None
    for name, param in inspect.signature(function).parameters.items():
        if param.kind in (param.POSITIONAL_ONLY, param.POSITIONAL_OR_KEYWORD):
            args.append(Var(name, index_dtype))
        elif param.kind == param.VAR_POSITIONAL:
            variadic = name
        elif param.kind == param.KEYWORD_ONLY:
            keywords[name] = Var(name, index_dtype)
        else:
            raise ValueError("transform_layout mapping may not have *args / **kwargs of unknown names")
    if variadic is not None:
        if ndim is None:
            raise AssertionError("ndim must be specified when *args is used")
        for i in range(ndim - len(args) - len(keywords)):
            args.append(Var(f"{variadic}_{i}", index_dtype))
    if ndim is not None and len(args) + len(keywords) != ndim:
        raise ValueError(f"the mapping takes {len(args) + len(keywords)} indices, the buffer has {ndim} dimensions")
    return args, keywords


# The class stands for itself where the printer asks for attributes that are no fields.
_ = Any


def with_index_dtype(index_map: IndexMap, dtype: str) -> IndexMap:
    """The map over indices of another integer type."""
    if all(v.dtype == dtype for v in index_map.initial_indices):
        return index_map
    fresh = {v: Var(v.name, dtype) for v in index_map.initial_indices}
    final = [_retype(e, fresh, dtype) for e in index_map.final_indices]
    inverse = index_map.inverse_index_map
    return IndexMap(list(fresh.values()), final, None if inverse is None else with_index_dtype(inverse, dtype))


def _retype(expr: PrimExpr, fresh: dict[Any, Any], dtype: str) -> PrimExpr:
    class Retype(Mutator):
        def visit_Var(self, node: Var) -> PrimExpr:
            return fresh.get(node, node)

        def visit_IntImm(self, node: IntImm) -> PrimExpr:
            return IntImm(dtype, node.value)

    return Retype().visit(expr)
