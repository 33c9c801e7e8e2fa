"""Indices of GPU programs as formulas in the decisions: functions of leaves, which are sums of digits of loops."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.affine import Affine
from ..feature_extractor.probes import Move, ProbeForm
from ..feature_extractor.program import StoreInfo
from .device_digits import Leaf, Nest, Split, fit_leaf
from .device_sizes import DeviceEnvironment, DeviceFitter, Size, quotient, remainder
from .fitting import Formula, Unfit

__all__ = ["FittedIndex", "Outer", "fit_index", "over_coordinates"]

NAN = math.nan


@dataclass(frozen=True)
class Outer:
    """An expression in leaves: ``const + sum(coef * ((leaf // div) % extent)) + rests``."""

    const: Size
    terms: tuple[tuple[int, Size, int, int], ...]
    rests: tuple[tuple[Size, str, tuple[Outer, ...], int], ...]

    def __call__(self, env: Any, leaves: Sequence[Any]) -> Any:
        """The value for every row; without an environment where all numbers are known."""
        total = self.const(env)
        for leaf, coef, div, extent in self.terms:
            total = total + coef(env) * _digit(leaves[leaf], div, extent)
        for coef, op, forms, divisor in self.rests:
            total = total + coef(env) * _rest(op, [form(env, leaves) for form in forms], divisor)
        return total

    def gain(self, env: DeviceEnvironment, bases: Sequence[Any], moved: dict[int, Any]) -> Any:
        """What the expression gains when some leaves gain ``moved``."""
        total: Any = 0.0
        for leaf, coef, div, extent in self.terms:
            if leaf in moved and div == 1 and not extent:
                total = total + coef(env) * moved[leaf]
            elif leaf in moved:
                base = bases[leaf]
                total = total + coef(env) * (_digit(base + moved[leaf], div, extent) - _digit(base, div, extent))
        for coef, op, forms, divisor in self.rests:
            if any(form.uses & moved.keys() for form in forms):
                before = [form(env, bases) for form in forms]
                after = [x + form.gain(env, bases, moved) for x, form in zip(before, forms, strict=True)]
                total = total + coef(env) * (_rest(op, after, divisor) - _rest(op, before, divisor))
        return total

    @functools.cached_property
    def uses(self) -> frozenset[int]:
        """The leaves it is written in."""
        inner = (form.uses for _, _, forms, _ in self.rests for form in forms)
        return frozenset(t[0] for t in self.terms).union(*inner)

    def renumbered(self, number: dict[int, int]) -> Outer:
        """The same expression with other numbers of leaves."""
        terms = tuple((number[leaf], coef, div, extent) for leaf, coef, div, extent in self.terms)
        rests = tuple(
            (coef, op, tuple(form.renumbered(number) for form in forms), divisor)
            for coef, op, forms, divisor in self.rests
        )
        return Outer(self.const, terms, rests)


def _digit(value: Any, div: int, extent: int) -> Any:
    value = quotient(value, div) if div != 1 else value
    return remainder(value, extent) if extent else value


def _rest(op: str, values: list[Any], divisor: int) -> Any:
    if op == "div":
        return quotient(values[0], divisor)
    if op == "mod":
        return remainder(values[0], divisor)
    if op in ("min", "max"):
        return (np.minimum if op == "min" else np.maximum)(*values)
    # A function of something else than leaves (a float, what is read) may have no parts.
    total: Any = 0.0
    for value in values:
        total = total + value
    return total


@dataclass(frozen=True)
class FittedIndex:
    """One index of a store; ``outer`` is None where the index is its only leaf."""

    leaves: tuple[Leaf, ...]
    outer: Outer | None = None

    def form(
        self,
        env: DeviceEnvironment,
        sizes: Sequence[Any],
        but: int,
        split: Split | None,
        known: dict[int, dict[int, Move]],
    ) -> ProbeForm:
        """The moves for every row; the loop at ``but`` is split, those behind it shift. ``known`` keeps what leaves do:
        indices of one store share them."""
        each = []
        for leaf in self.leaves:
            moves = known.get(id(leaf))
            if moves is None:
                moves = leaf.whole_moves(env, sizes, but if split is not None else -1)
                if split is not None:
                    moves.update(leaf.split_moves(env, but, split))
                known[id(leaf)] = moves
            each.append(moves)
        if self.outer is None:
            return ProbeForm(self.leaves[0].const(env), each[0])
        bases = [leaf.const(env) for leaf in self.leaves]
        base = self.outer(env, bases)
        found: dict[int, Move] = {}
        for at in sorted({at for moves in each for at in moves}):
            first, last = (
                self.outer.gain(env, bases, {i: getattr(m[at], which) for i, m in enumerate(each) if at in m})
                for which in ("first", "last")
            )
            size = split.extents[at - but] if split is not None and at >= but else sizes[at]
            found[at] = Move(first, last, last != first * (size - 1), True)
        return ProbeForm(base, found)


def fit_index(
    fitter: DeviceFitter,
    exprs: Sequence[Affine[int]],
    forms: Sequence[Affine[int]],
    stores: Sequence[StoreInfo],
    nest: Nest,
) -> FittedIndex:
    """One index in several examples: ``exprs`` as written in block variables, ``forms`` with these bound to loops."""
    try:
        if not all(_affine(e) for e in exprs):
            if _alike(exprs, stores):
                return _over_block_vars(fitter, exprs, stores, nest)
            found = over_coordinates(fitter, forms, stores, nest)
            if found is not None:
                return found
        return FittedIndex((fit_leaf(fitter, forms, nest),))
    except Unfit:
        found = over_coordinates(fitter, forms, stores, nest)
        if found is None:
            raise
        return found


def _over_block_vars(
    fitter: DeviceFitter, exprs: Sequence[Affine[int]], stores: Sequence[StoreInfo], nest: Nest
) -> FittedIndex:
    leaves = []
    used = sorted({s.block_vars.index(v) for e, s in zip(exprs, stores, strict=True) for v in e.variables()})
    for index in used:
        bound = [store.bindings[store.block_vars[index]] for store in stores]
        leaves.append(fit_leaf(fitter, bound, nest))
    order = [{store.block_vars[index]: i for i, index in enumerate(used)} for store in stores]
    return FittedIndex(tuple(leaves), _fit_outer(fitter, exprs, order))


def _affine(form: Affine[int]) -> bool:
    return not form.rests and all(t.lower == 1 and t.extent == 0 for t in form.terms)


def _shape(form: Affine[int]) -> Any:
    return [(r.op, r.divisor, [_shape(f) for f in r.forms]) for r in form.rests]


def _alike(exprs: Sequence[Affine[int]], stores: Sequence[StoreInfo]) -> bool:
    """Whether all are written in block variables, by the same operations."""
    written = all(v in s.block_vars for e, s in zip(exprs, stores, strict=True) for v in e.variables())
    return written and all(_shape(e) == _shape(exprs[0]) for e in exprs)


def _fit_outer(fitter: DeviceFitter, exprs: Sequence[Affine[int]], order: Sequence[dict[Any, int]]) -> Outer:
    table: dict[tuple[int, int, int], list[float]] = {}
    for k, expr in enumerate(exprs):
        for term in expr.terms:
            # Variables of a single value are not written: then the coefficient does not matter.
            table.setdefault((order[k][term.var], term.lower, term.extent), [NAN] * len(exprs))[k] = float(term.coef)
    terms = tuple((leaf, fitter.size(coefs), div, extent) for (leaf, div, extent), coefs in sorted(table.items()))
    rests = []
    for i, rest in enumerate(exprs[0].rests):
        inner = tuple(_fit_outer(fitter, [e.rests[i].forms[j] for e in exprs], order) for j in range(len(rest.forms)))
        rests.append((fitter.size([float(e.rests[i].coef) for e in exprs]), rest.op, inner, rest.divisor))
    return Outer(fitter.size([float(e.const) for e in exprs]), terms, tuple(rests))


# ---- indices as functions of a block's place


def over_coordinates(
    fitter: DeviceFitter, forms: Sequence[Affine[int]], stores: Sequence[StoreInfo], nest: Nest
) -> FittedIndex | None:
    """An index as a function of other, linear indices of its store, the same function for all examples; None where no
    such function is found.

    The copy of a tile, ``S[u, v] = X[u // 96, u % 96 // 32, v]``, has moved with its loops: ``u`` is a sum of digits
    that depends on the decisions, the function of it does not. One example says what the function is, all must agree.
    """
    coordinates = _coordinates(stores)
    tried: list[Outer] = []
    for k, form in enumerate(forms):
        outer = _express(form, [c[k] for c in coordinates], {x.var for x in nest.loops[k] if x.extent == 1})
        if outer is None or outer in tried:
            continue
        tried.append(outer)
        if all(_agrees(outer, form, [c[i] for c in coordinates], nest, i) for i, form in enumerate(forms)):
            used = sorted(outer.uses)
            try:
                leaves = tuple(fit_leaf(fitter, coordinates[i], nest) for i in used)
            except Unfit:
                continue
            return FittedIndex(leaves, outer.renumbered({i: n for n, i in enumerate(used)}))
    return None


def _coordinates(stores: Sequence[StoreInfo]) -> list[list[Affine[int]]]:
    """The indices of a store that are linear in every example, each as a list over the examples."""
    found: list[list[Affine[int]]] = []
    for a, access in enumerate(stores[0].accesses):
        for m, dims in enumerate(access.indices):
            for d in range(len(dims)):
                every = [store.accesses[a].indices[m][d] for store in stores]
                if not any(form.rests for form in every) and every not in found:
                    found.append(every)
    return found


def _express(form: Affine[int], coordinates: Sequence[Affine[int]], still: set[Any]) -> Outer | None:
    """One concrete index in terms of concrete coordinates; ``still`` are loops of one iteration."""
    left = {(t.var, t.lower, t.extent): t.coef for t in form.terms if t.var not in still}
    const, terms = form.const, []
    for number, own in sorted(enumerate(coordinates), key=lambda x: -len(x[1].terms)):
        mine = {(t.var, t.lower, t.extent): t.coef for t in own.terms if t.var not in still}
        if not mine or not mine.keys() <= left.keys():
            continue
        factor = left[next(iter(mine))] // next(iter(mine.values()))
        if factor and all(left[key] == factor * coef for key, coef in mine.items()):
            left = {key: coef for key, coef in left.items() if key not in mine}
            const -= factor * own.const
            terms.append((number, Formula(float(factor)), 1, 0))
    for (var, div, extent), coef in left.items():
        # A digit of a coordinate that is one loop.
        number = next((i for i, own in enumerate(coordinates) if _is_loop(own, var, still)), -1)
        if number < 0:
            return None
        terms.append((number, Formula(float(coef)), div, extent))
    rests = []
    for rest in form.rests:
        inner = [_express(f, coordinates, still) for f in rest.forms]
        if any(f is None for f in inner):
            return None
        rests.append((Formula(float(rest.coef)), rest.op, tuple(f for f in inner if f is not None), rest.divisor))
    return Outer(Formula(float(const)), tuple(terms), tuple(rests))


def _is_loop(form: Affine[int], var: Any, still: set[Any]) -> bool:
    terms = [t for t in form.terms if t.var not in still]
    return form.const == 0 and len(terms) == 1 and terms[0].var is var and (terms[0].coef, terms[0].lower) == (1, 1)


def _agrees(outer: Outer, form: Affine[int], coordinates: Sequence[Affine[int]], nest: Nest, k: int) -> bool:
    """Whether a function gives the index of one example wherever its loops may stand."""
    points = list(nest.points(k))
    values = [np.array([own.value(point) for point in points], dtype="float64") for own in coordinates]
    wanted = np.array([form.value(point) for point in points], dtype="float64")
    return bool((np.asarray(outer(None, values)) == wanted).all())
