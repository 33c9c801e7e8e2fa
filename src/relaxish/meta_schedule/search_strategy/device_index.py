"""Indices of GPU programs as formulas in the decisions: functions of leaves, which are sums of digits of loops."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.affine import Affine, Rest, Term
from ...ir.expr import PrimExpr
from ..feature_extractor.probes import Move, ProbeForm
from ..feature_extractor.program import StoreInfo
from .affine_digits import Leaf, Nest, Split, fit_leaf
from .device_sizes import DeviceEnvironment, DeviceFitter, Size
from .fitting import Formula, Unfit

__all__ = ["FittedIndex", "fit_index", "over_coordinates"]

NAN = math.nan


def _gain(outer: Affine[Any], bases: Mapping[int, Any], moved: Mapping[int, Any]) -> np.ndarray[Any, Any]:
    """What a function of leaves gains when some of them gain ``moved``."""
    total: Any = 0.0
    for term in outer.terms:
        if term.var in moved:
            base, gained = bases[term.var], moved[term.var]
            gained = gained if term.whole else term.digit(base + gained) - term.digit(base)
            total = total + term.coef * gained
    for rest in outer.rests:
        gains = [_gain(form, bases, moved) if form.variables() & moved.keys() else None for form in rest.forms]
        if any(gain is not None for gain in gains):
            before = [form.value(bases) for form in rest.forms]
            after = [x if gain is None else x + gain for x, gain in zip(before, gains, strict=True)]
            total = total + rest.coef * (rest.apply(after) - rest.apply(before))
    return total


@dataclass(frozen=True)
class FittedIndex:
    """One index of a store, a function of its leaves by number; ``outer`` is None where the index is its only leaf."""

    leaves: tuple[Leaf, ...]
    outer: Affine[Size] | None = None

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
        outer = self.outer.map(lambda size: size(env))
        bases = {number: leaf.const(env) for number, leaf in enumerate(self.leaves)}
        found: dict[int, Move] = {}
        for at in sorted({at for moves in each for at in moves}):
            own = {i: moves[at] for i, moves in enumerate(each) if at in moves}
            first = _gain(outer, bases, {i: move.first for i, move in own.items()})
            last = _gain(outer, bases, {i: move.last for i, move in own.items()})
            size = split.extents[at - but] if split is not None and at >= but else sizes[at]
            found[at] = Move(first, last, last != first * (size - 1), True)
        return ProbeForm(outer.value(bases), found)


def fit_index(
    fitter: DeviceFitter,
    exprs: Sequence[Affine[int]],
    forms: Sequence[Affine[int]],
    stores: Sequence[StoreInfo],
    nest: Nest,
    name: Hashable = (),
) -> FittedIndex:
    """One index in several examples: ``exprs`` as written in block variables, ``forms`` with these bound to loops;
    ``name`` is its own."""
    try:
        if not all(_linear(e) for e in exprs):
            if _alike(exprs, stores):
                return _over_block_vars(fitter, exprs, stores, nest, name)
            found = over_coordinates(fitter, forms, stores, nest)
            if found is not None:
                return found
        return FittedIndex((fit_leaf(fitter, forms, nest, name),))
    except Unfit:
        found = over_coordinates(fitter, forms, stores, nest)
        if found is None:
            raise
        return found


def _over_block_vars(
    fitter: DeviceFitter, exprs: Sequence[Affine[int]], stores: Sequence[StoreInfo], nest: Nest, name: Hashable
) -> FittedIndex:
    leaves = []
    used = sorted({s.block_vars.index(v) for e, s in zip(exprs, stores, strict=True) for v in e.variables()})
    for index in used:
        bound = [store.bindings[store.block_vars[index]] for store in stores]
        leaves.append(fit_leaf(fitter, bound, nest, (name, index)))
    order = [{store.block_vars[index]: i for i, index in enumerate(used)} for store in stores]
    return FittedIndex(tuple(leaves), _fit_outer(fitter, exprs, order))


def _linear(form: Affine[int]) -> bool:
    return not form.rests and all(t.whole for t in form.terms)


def _shape(form: Affine[int]) -> list[tuple[Any, ...]]:
    return [(r.op, r.divisor, [_shape(f) for f in r.forms]) for r in form.rests]


def _alike(exprs: Sequence[Affine[int]], stores: Sequence[StoreInfo]) -> bool:
    """Whether all are written in block variables, by the same operations."""
    written = all(v in s.block_vars for e, s in zip(exprs, stores, strict=True) for v in e.variables())
    return written and all(_shape(e) == _shape(exprs[0]) for e in exprs)


def _fit_outer(fitter: DeviceFitter, exprs: Sequence[Affine[int]], order: Sequence[dict[Any, int]]) -> Affine[Size]:
    table: dict[tuple[int, int, int], list[float]] = {}
    for k, expr in enumerate(exprs):
        for term in expr.terms:
            # Variables of a single value are not written: then the coefficient does not matter.
            table.setdefault((order[k][term.var], term.lower, term.extent), [NAN] * len(exprs))[k] = float(term.coef)
    terms = [Term(fitter.size(coefs), *digit) for digit, coefs in sorted(table.items())]
    rests = []
    for i, rest in enumerate(exprs[0].rests):
        inner = [_fit_outer(fitter, [e.rests[i].forms[j] for e in exprs], order) for j in range(len(rest.forms))]
        rests.append(Rest(fitter.size([float(e.rests[i].coef) for e in exprs]), rest.op, inner, rest.divisor))
    return Affine(fitter.size([float(e.const) for e in exprs]), terms, rests)


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
    tried: list[Affine[int]] = []
    for k, form in enumerate(forms):
        outer = _express(form, [c[k] for c in coordinates], {x.var for x in nest.loops[k] if x.extent == 1})
        if outer is None or outer in tried:
            continue
        tried.append(outer)
        if all(_agrees(outer, form, [c[i] for c in coordinates], nest, i) for i, form in enumerate(forms)):
            used = sorted(outer.variables())
            try:
                leaves = tuple(fit_leaf(fitter, coordinates[i], nest) for i in used)
            except Unfit:
                continue
            return FittedIndex(leaves, outer.map(lambda c: Formula(float(c)), used.index))
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


def _express(form: Affine[int], coordinates: Sequence[Affine[int]], still: set[Any]) -> Affine[int] | None:
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
            terms.append(Term(factor, number))
    for (var, lower, extent), coef in left.items():
        # A digit of a coordinate that is one loop.
        number = next((i for i, own in enumerate(coordinates) if _is_loop(own, var, still)), -1)
        if number < 0:
            return None
        terms.append(Term(coef, number, lower, extent))
    rests = []
    for rest in form.rests:
        inner = [_express(f, coordinates, still) for f in rest.forms]
        if any(f is None for f in inner):
            return None
        rests.append(Rest(rest.coef, rest.op, [f for f in inner if f is not None], rest.divisor))
    return Affine(const, terms, rests)


def _is_loop(form: Affine[int], var: PrimExpr, still: set[Any]) -> bool:
    terms = [t for t in form.terms if t.var not in still]
    return form.const == 0 and len(terms) == 1 and terms[0].var is var and (terms[0].coef, terms[0].lower) == (1, 1)


def _agrees(outer: Affine[int], form: Affine[int], coordinates: Sequence[Affine[int]], nest: Nest, k: int) -> bool:
    """Whether a function gives the index of one example wherever its loops may stand."""
    points = list(nest.points(k))
    values = {i: np.array([c.value(point) for point in points], dtype="float64") for i, c in enumerate(coordinates)}
    wanted = np.array([form.value(point) for point in points], dtype="float64")
    return bool((np.asarray(outer.value(values)) == wanted).all())
