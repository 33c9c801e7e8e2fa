"""Iteration maps of block bindings: a quick exact path for what tiling makes, arithmetic for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer, IterMapLevel, iter_map_simplify
from ...arith.affine import affine
from ...arith.build import as_int
from ...arith.iter_map import IterMapError, detect
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator
from ...ir.structural import same_expression
from ...ir.prim import Add, FloorDiv, FloorMod, IntImm, Mul, Var, const
from ..stmt import BlockRealize, For, Stmt
from .subst import is_true

__all__ = ["is_affine_binding", "simplify_bindings"]


class _NotSimple(Exception):
    """The quick path does not apply."""


class _NotIndependent(_NotSimple):
    """The bindings share iterators or leave gaps: no analysis would find them to be independent maps."""


def _terms(expr: PrimExpr, ranges: Mapping[Any, Any]) -> tuple[list[tuple[Any, ...]], int]:
    """``expr`` as (var, lower, extent, scale, piece) terms and a constant part."""
    form = affine(expr, digits=False, casts=False)
    out = []
    for term in form.terms:
        if term.coef < 0:
            raise _NotSimple
        match term.var:
            case Var():
                out.append((term.var, 1, _extent(term.var, ranges), term.coef, term.var))
            case FloorDiv() | FloorMod() if isinstance(term.var.b, IntImm) and term.var.b.value > 0:
                out.append(_split_term(term.var, term.var.b.value, ranges, term.coef))
            case _:
                raise _NotSimple
    return out, form.const


def _split_term(expr: FloorDiv | FloorMod, c: int, ranges: Mapping[Any, Any], scale: int) -> tuple[Any, ...]:
    """``v // c``, ``v % c``, ``v % (c * e) // c`` or ``v // c % e`` as the piece of ``v`` it is."""
    inner, is_div = expr.a, type(expr) is FloorDiv
    if isinstance(inner, Var):
        total = _extent(inner, ranges)
        lower, extent = (c, total // c) if is_div else (1, c)
        return _piece(inner, total, lower, extent, scale)
    if not isinstance(inner, (FloorDiv, FloorMod)) or not isinstance(inner.a, Var) or not isinstance(inner.b, IntImm):
        raise _NotSimple
    var, d = inner.a, int(inner.b.value)
    total = _extent(var, ranges)
    if is_div and type(inner) is FloorMod and d > 0 and d % c == 0:
        return _piece(var, total, c, d // c, scale)
    if not is_div and type(inner) is FloorDiv and d > 0:
        return _piece(var, total, d, c, scale)
    raise _NotSimple


def _piece(var: PrimExpr, total: int, lower: int, extent: int, scale: int) -> tuple[Any, ...]:
    """The term of the ``extent`` values of ``var`` above its lowest ``lower``, in its normal form."""
    if extent < 2 or total % (lower * extent):
        raise _NotSimple
    dtype = var.dtype
    if lower == 1:
        expr = var if extent == total else FloorMod(var, const(extent, dtype))
    elif lower * extent == total:
        expr = FloorDiv(var, const(lower, dtype))
    else:
        expr = FloorDiv(FloorMod(var, const(lower * extent, dtype)), const(lower, dtype))
    return (var, lower, extent, scale, expr)


def _extent(var: Var, ranges: Mapping[Any, Any]) -> int:
    dom = ranges.get(var)
    if dom is None or type(dom.extent) is not IntImm or type(dom.min) is not IntImm or dom.min.value != 0:
        raise _NotSimple
    return int(dom.extent.value)


def _quick(values: Sequence[Any], ranges: Mapping[Any, Any]) -> list[tuple[list[tuple[Any, ...]], int]]:
    """The bindings as sums of terms, proved to use separate pieces of the loops; raises _NotSimple when unsure."""
    sums = []
    pieces: dict[Any, list[tuple[int, int]]] = {}
    for value in values:
        terms, base = _terms(value, ranges)
        if len({(t[0], t[1]) for t in terms}) != len(terms):
            raise _NotSimple
        for var, lower, extent, _, _ in terms:
            pieces.setdefault(var, []).append((lower, extent))
        sums.append((terms, base))
    for var, parts in pieces.items():
        expected = 1
        for lower, extent in sorted(parts):
            if len(parts) > 1 and extent == 1:
                raise _NotSimple
            if lower < expected:
                raise _NotIndependent
            if lower % expected:
                raise _NotSimple
            expected = lower * extent
        if _extent(var, ranges) % expected:
            raise _NotSimple
    return sums


def _mixed_radix(terms: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Terms by falling scale if they form a mixed-radix number."""
    ordered = sorted(terms, key=lambda t: -t[3])
    expected = 1
    for _, _, extent, scale, _ in reversed(ordered):
        if scale != expected:
            raise _NotSimple if extent == 1 or expected == 1 or scale < expected else _NotIndependent
        expected *= extent
    return ordered


def is_affine_binding(
    values: Sequence[Any],
    predicate: PrimExpr,
    ranges: Mapping[Any, Any],
    analyzer: Analyzer | None = None,
    overlaps: bool = True,
) -> bool:
    """Whether block bindings are independent quasi-affine maps of the loops (each with unit lowest scale).

    With ``overlaps`` two turns of the loops may give a binding one value, as those of ``x * 2 + y`` over windows of 3 do.
    ``analyzer`` knows what is to be known of symbolic extents, e.g. that shapes are not negative.
    """
    if not ranges or not values:
        return True
    if is_true(predicate):
        try:
            for terms, _ in _quick(values, ranges):
                _mixed_radix([t for t in terms if t[2] != 1])
            return True
        except _NotIndependent:
            return False
        except _NotSimple:
            pass
    try:
        sums = detect(list(values), dict(ranges), predicate, IterMapLevel.Surjective, True, analyzer, overlaps)[0]
    except IterMapError:
        return False
    return all(not total.args or as_int(total.args[0].scale) == 1 for total in sums)


def _quick_simplify(values: Sequence[Any], ranges: Mapping[Any, Any], keep_units: bool) -> list[Any]:
    out = []
    for value, (terms, base) in zip(values, _quick(values, ranges), strict=True):
        if not keep_units:
            terms = [t for t in terms if t[2] != 1]
        out.append(_rebuild(value, _joined(_mixed_radix(terms), ranges), base))
    return out


def _joined(terms: list[tuple[Any, ...]], ranges: Mapping[Any, Any]) -> list[tuple[Any, ...]]:
    """Terms of one loop that lie side by side in it and in the number are one: ``f // 4 * 32 + f % 4 * 8`` is ``f * 8``."""
    out: list[tuple[Any, ...]] = []
    for var, lower, extent, scale, piece in terms:
        if out and out[-1][0] is var and out[-1][1] == lower * extent:
            extent *= out.pop()[2]
            out.append(_piece(var, _extent(var, ranges), lower, extent, scale))
        else:
            out.append((var, lower, extent, scale, piece))
    return out


def _rebuild(value: PrimExpr, terms: list[tuple[Any, ...]], base: int) -> PrimExpr:
    dtype = value.dtype
    made: Any = None
    for _, _, _, scale, piece in terms:
        term = piece if scale == 1 else Mul(piece, const(scale, dtype))
        made = term if made is None else Add(made, term)
    if made is None:
        return const(base, dtype)
    if base != 0:
        made = Add(made, const(base, dtype))
    return value if same_expression(made, value) else made


def simplified_values(
    values: Sequence[Any], ranges: Mapping[Any, Any], predicate: PrimExpr, keep_units: bool
) -> list[Any]:
    """Bindings in the normal form of iteration maps."""
    if is_true(predicate):
        try:
            return _quick_simplify(values, ranges, keep_units)
        except _NotIndependent:
            return list(values)
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

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_For(self, node: For) -> Stmt:
        from ...ir.expr import Range

        self.ranges[node.loop_var] = Range.from_min_extent(node.min, node.extent)
        body = self.visit(node.body)
        del self.ranges[node.loop_var]
        return node if body is node.body else node.with_fields(body=body)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
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


def simplify_bindings(stmt: Stmt, outer: Mapping[Any, Any], keep_units: bool, reuse: dict[Any, Any]) -> Stmt:
    """Normalise the bindings of all blocks in ``stmt``; ``outer`` gives the ranges of the loops around it."""
    return _Simplifier(dict(outer), keep_units, reuse).visit(stmt)
