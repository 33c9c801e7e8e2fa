"""Iteration maps of block bindings: a quick exact path for what tiling makes, arithmetic for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map, iter_map_simplify
from ...ir.functor import Mutator
from ...ir.structural import structural_equal
from ...ir.prim import Add, FloorDiv, FloorMod, IntImm, Mul, Sub, Var, const
from ..stmt import For
from .subst import is_true

__all__ = ["is_affine_binding", "simplify_bindings"]


class _NotSimple(Exception):
    """The quick path does not apply."""


def _terms(expr: Any, scale: int, ranges: Mapping[Any, Any], out: list[tuple[Any, ...]]) -> int:
    """Flatten ``expr`` into (var, lower, extent, scale, piece) terms; gives the constant part."""
    kind = type(expr)
    if kind is IntImm:
        return int(expr.value) * scale
    if isinstance(expr, Var):
        out.append((expr, 1, _extent(expr, ranges), scale, expr))
        return 0
    if kind is Add:
        return _terms(expr.a, scale, ranges, out) + _terms(expr.b, scale, ranges, out)
    if kind is Sub and isinstance(expr.b, IntImm):
        return _terms(expr.a, scale, ranges, out) - int(expr.b.value) * scale
    if kind is Mul:
        if isinstance(expr.b, IntImm) and expr.b.value > 0:
            return _terms(expr.a, scale * int(expr.b.value), ranges, out)
        raise _NotSimple
    if kind in (FloorDiv, FloorMod) and isinstance(expr.b, IntImm) and expr.b.value > 0:
        out.append(_split_term(expr, ranges, scale))
        return 0
    raise _NotSimple


def _split_term(expr: Any, ranges: Mapping[Any, Any], scale: int) -> tuple[Any, ...]:
    c = int(expr.b.value)
    inner = expr.a
    if isinstance(inner, Var):
        extent = _extent(inner, ranges)
        if extent == c and type(expr) is FloorMod:
            return (inner, 1, c, scale, inner)
        if extent % c or c == 1 or c >= extent:
            raise _NotSimple
        if type(expr) is FloorDiv:
            return (inner, c, extent // c, scale, expr)
        return (inner, 1, c, scale, expr)
    if type(expr) is FloorDiv and type(inner) is FloorMod and isinstance(inner.a, Var) and isinstance(inner.b, IntImm):
        # v % (c * e) // c is the piece of e values above the lowest c.
        modulus = int(inner.b.value)
        extent = _extent(inner.a, ranges)
        if extent % modulus or modulus % c or modulus >= extent or c == 1 or c >= modulus:
            raise _NotSimple
        return (inner.a, c, modulus // c, scale, expr)
    raise _NotSimple


def _extent(var: Any, ranges: Mapping[Any, Any]) -> int:
    dom = ranges.get(var)
    if dom is None or type(dom.extent) is not IntImm or type(dom.min) is not IntImm or dom.min.value != 0:
        raise _NotSimple
    return int(dom.extent.value)


def _quick(values: Sequence[Any], ranges: Mapping[Any, Any]) -> list[tuple[list[tuple[Any, ...]], int]]:
    """The bindings as sums of terms, proved independent; raises _NotSimple when unsure."""
    sums = []
    pieces: dict[Any, list[tuple[int, int, int]]] = {}
    for value in values:
        terms: list[tuple[Any, ...]] = []
        base = _terms(value, 1, ranges, terms)
        for var, lower, extent, _, _ in terms:
            pieces.setdefault(var, []).append((lower, extent, _extent(var, ranges)))
        sums.append((terms, base))
    for parts in pieces.values():
        expected = 1
        for lower, extent, _ in sorted(parts):
            if lower != expected or (len(parts) > 1 and extent == 1):
                raise _NotSimple
            expected = lower * extent
        if expected != parts[0][2]:
            raise _NotSimple
    return sums


def _mixed_radix(terms: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Terms by falling scale if they form a mixed-radix number with last scale 1."""
    # A unit term of the same scale stands to the right of the one it follows in the nest.
    ordered = sorted(terms, key=lambda t: (-t[3], t[2] == 1))
    expected = 1
    for _, _, extent, scale, _ in reversed(ordered):
        if scale != expected:
            raise _NotSimple
        expected *= extent
    return ordered


def is_affine_binding(values: Sequence[Any], predicate: Any, ranges: Mapping[Any, Any]) -> bool:
    """Whether block bindings are independent quasi-affine maps of the loops (each with unit lowest scale)."""
    if not ranges or not values:
        return True
    if is_true(predicate):
        try:
            for terms, _ in _quick(values, ranges):
                _mixed_radix([t for t in terms if t[2] != 1])
            return True
        except _NotSimple:
            pass
    result = detect_iter_map(list(values), dict(ranges), predicate, check_level=IterMapLevel.Surjective)
    indices = getattr(result, "indices", result)
    if not indices:
        return False
    for total in indices:
        if total.args and not (isinstance(total.args[0].scale, IntImm) and total.args[0].scale.value == 1):
            return False
    return True


def _quick_simplify(values: Sequence[Any], ranges: Mapping[Any, Any], keep_units: bool) -> list[Any]:
    out = []
    for value, (terms, base) in zip(values, _quick(values, ranges), strict=True):
        if not keep_units:
            terms = [t for t in terms if t[2] != 1]
        out.append(_rebuild(value, _mixed_radix(terms), base))
    return out


def _rebuild(value: Any, terms: list[tuple[Any, ...]], base: int) -> Any:
    dtype = value.dtype
    made: Any = None
    for _, _, _, scale, piece in terms:
        term = piece if scale == 1 else Mul(piece, const(scale, dtype))
        made = term if made is None else Add(made, term)
    if made is None:
        return const(base, dtype)
    if base != 0:
        made = Add(made, const(base, dtype))
    return value if structural_equal(made, value) else made


def simplified_values(values: Sequence[Any], ranges: Mapping[Any, Any], predicate: Any, keep_units: bool) -> list[Any]:
    """Bindings in the normal form of iteration maps."""
    if is_true(predicate):
        try:
            return _quick_simplify(values, ranges, keep_units)
        except _NotSimple:
            pass
    return list(
        iter_map_simplify(
            list(values),
            dict(ranges),
            predicate,
            check_level=IterMapLevel.Surjective,
            simplify_trivial_iterators=not keep_units,
        )
    )


class _Simplifier(Mutator):
    def __init__(self, ranges: dict[Any, Any], keep_units: bool, reuse: dict[Any, Any]) -> None:
        self.ranges = ranges
        self.keep_units = keep_units
        self.reuse = reuse

    def visit_PrimExpr(self, node: Any) -> Any:
        return node

    def visit_For(self, node: For) -> Any:
        from ...ir.expr import Range

        self.ranges[node.loop_var] = Range.from_min_extent(node.min, node.extent)
        body = self.visit(node.body)
        del self.ranges[node.loop_var]
        return node if body is node.body else node.with_fields(body=body)

    def visit_BlockRealize(self, node: Any) -> Any:
        if not node.iter_values:
            block = node.block
            body = self.visit(block.body)
            if body is block.body:
                return node
            made = block.with_fields(body=body)
            for old, new in list(self.reuse.items()):
                if new is block:
                    self.reuse[old] = made
                    break
            else:
                self.reuse[block] = made
            return node.with_fields(block=made)
        values = simplified_values(node.iter_values, self.ranges, node.predicate, self.keep_units)
        if all(a is b for a, b in zip(values, node.iter_values, strict=True)):
            return node
        return node.with_fields(iter_values=tuple(values))


def simplify_bindings(stmt: Any, outer: Mapping[Any, Any], keep_units: bool, reuse: dict[Any, Any]) -> Any:
    """Normalise the bindings of all blocks in ``stmt``; ``outer`` gives the ranges of the loops around it."""
    return _Simplifier(dict(outer), keep_units, reuse).visit(stmt)


def analyzer_for(ranges: Mapping[Any, Any]) -> Analyzer:
    """An analyzer that knows the loop ranges."""
    made = Analyzer()
    for var, dom in ranges.items():
        made.bind(var, dom)
    return made
