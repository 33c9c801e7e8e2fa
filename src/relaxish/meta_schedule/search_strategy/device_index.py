"""Indices of GPU programs as formulas in the decisions: digits of fused loops, told by their moves.

A fused loop runs over the product of its *parts*; an index takes digits of it, each the running number of one part. In
the program that threads share the copying of a tile, the copying loop is split again, so that a digit is one of a sum
of loops: its moves follow from the digit's place and length and from the loop's stride.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..feature_extractor.probes import Move, ProbeForm, base_value, gains
from ..feature_extractor.program import StoreInfo
from ..index_form import IndexForm
from .device_reading import LoopFacts
from .device_sizes import DeviceEnvironment, DeviceFitter, Size, quotient, remainder, times
from .fitting import Formula, Unfit

__all__ = ["FittedIndex", "Leaf", "Split", "fit_index"]

NAN = math.nan
_ENDLESS = np.float32(1 << 30)


@dataclass(frozen=True)
class Split:
    """What becomes of one loop of a store: loops at ``position`` and after, each with stride and extent."""

    position: int
    strides: tuple[Any, ...]
    extents: tuple[Any, ...]


@dataclass(frozen=True)
class Digit:
    """``coef * ((loop // prod(inner)) % own)``.

    Where nothing is left outside of the digit, the modulus matters only to loops that overrun; whether the program then
    still has it (``kept``) is the simplifier's affair.
    """

    coef: Size
    inner: tuple[Size, ...]
    own: Size
    outer: tuple[Size, ...]
    kept: bool = False

    @property
    def alone(self) -> bool:
        """Whether this is the whole loop."""
        return not self.inner and not self.outer


@dataclass(frozen=True)
class Leaf:
    """A block variable, or a whole index: by loop its digits, or its fitted moves where it is no sum of digits."""

    const: Size
    digits: tuple[tuple[int, tuple[Digit, ...]], ...]
    moves: tuple[tuple[int, Size, Size], ...] = ()
    signed: bool = False

    def whole_moves(self, env: DeviceEnvironment, sizes: Sequence[Any], but: int) -> dict[int, Move]:
        """Moves by the loops that stay whole."""
        found: dict[int, Move] = {}
        for at, first, last in self.moves:
            straight = first(env) * (sizes[at] - 1)
            end = last(env)
            found[at] = Move(first(env) * (sizes[at] > 1), end, end != straight, self.signed)
        for at, digits in self.digits:
            if at != but:
                found[at] = self._whole(env, digits, sizes[at])
        return found

    def _whole(self, env: DeviceEnvironment, digits: Sequence[Digit], size: Any) -> Move:
        if len(digits) == 1 and digits[0].alone:
            coef = digits[0].coef(env)
            return Move(coef * (size > 1), coef * (size - 1), False, self.signed)
        first: Any = 0.0
        last: Any = 0.0
        for digit in digits:
            coef, own = digit.coef(env), digit.own(env)
            last = last + coef * (own - 1)
            first = first + coef * ((env.product(digit.inner) == 1) & (own > 1))
        return Move(first, last, last != first * (size - 1), self.signed)

    def split_moves(self, env: DeviceEnvironment, but: int, split: Split) -> dict[int, Move]:
        """Moves by the loops that take the place of one that is split."""
        digits = next((d for at, d in self.digits if at == but), ())
        if not digits:
            return {}
        found: dict[int, Move] = {}
        for k, (stride, extent) in enumerate(zip(split.strides, split.extents, strict=True)):
            first: Any = 0.0
            last: Any = 0.0
            for digit in digits:
                inner, own = env.product(digit.inner), digit.own(env)
                coef = digit.coef(env) * (own > 1)  # a digit of one value is not written, even where the loop overruns
                one = quotient(stride * (extent > 1), inner)
                end = quotient(stride * (extent - 1), inner)
                if digit.outer:
                    modulus = own if digit.kept else np.where(env.product(digit.outer) > 1, own, _ENDLESS)
                    one, end = remainder(one, modulus), remainder(end, modulus)
                first, last = first + coef * one, last + coef * end
            found[split.position + k] = Move(first, last, last != first * (extent - 1), self.signed)
        return found


@dataclass(frozen=True)
class Outer:
    """An expression in leaves: ``const + sum(coef * ((leaf // div) % extent)) + rests``."""

    const: Size
    terms: tuple[tuple[int, Size, int, int], ...]
    rests: tuple[tuple[Size, str, tuple[Outer, ...], int], ...]

    def __call__(self, env: DeviceEnvironment, leaves: Sequence[Any]) -> Any:
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
    total = values[0]
    for value in values[1:]:
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
    exprs: Sequence[IndexForm],
    forms: Sequence[IndexForm],
    stores: Sequence[StoreInfo],
    loops: Sequence[Sequence[LoopFacts]],
    parts: Sequence[Sequence[Size]],
) -> FittedIndex:
    """One index in several examples: ``exprs`` as written in block variables, ``forms`` with these bound to loops.

    ``parts[position]`` are the sizes of the loops that were fused into the loop at that position.
    """
    if all(_affine(e) for e in exprs) or not _alike(exprs, stores):
        return FittedIndex((_fit_leaf(fitter, forms, loops, parts),))
    leaves = []
    used = sorted({s.block_vars.index(v) for e, s in zip(exprs, stores, strict=True) for v in e.variables()})
    for index in used:
        bound = [store.bindings[store.block_vars[index]] for store in stores]
        leaves.append(_fit_leaf(fitter, bound, loops, parts))
    order = [{store.block_vars[index]: i for i, index in enumerate(used)} for store in stores]
    return FittedIndex(tuple(leaves), _fit_outer(fitter, exprs, order))


def _affine(form: IndexForm) -> bool:
    return not form.rests and all(t.div == 1 and t.extent == 0 for t in form.terms)


def _shape(form: IndexForm) -> Any:
    return [(r.op, r.divisor, [_shape(f) for f in r.forms]) for r in form.rests]


def _alike(exprs: Sequence[IndexForm], stores: Sequence[StoreInfo]) -> bool:
    """Whether all are written in block variables, by the same operations."""
    written = all(v in s.block_vars for e, s in zip(exprs, stores, strict=True) for v in e.variables())
    return written and all(_shape(e) == _shape(exprs[0]) for e in exprs)


def _fit_outer(fitter: DeviceFitter, exprs: Sequence[IndexForm], order: Sequence[dict[Any, int]]) -> Outer:
    table: dict[tuple[int, int, int], list[float]] = {}
    for k, expr in enumerate(exprs):
        for term in expr.terms:
            # Variables of a single value are not written: then the coefficient does not matter.
            table.setdefault((order[k][term.var], term.div, term.extent), [NAN] * len(exprs))[k] = float(term.coef)
    terms = tuple((leaf, fitter.size(coefs), div, extent) for (leaf, div, extent), coefs in sorted(table.items()))
    rests = []
    for i, rest in enumerate(exprs[0].rests):
        inner = tuple(_fit_outer(fitter, [e.rests[i].forms[j] for e in exprs], order) for j in range(len(rest.forms)))
        rests.append((fitter.size([float(e.rests[i].coef) for e in exprs]), rest.op, inner, rest.divisor))
    return Outer(fitter.size([float(e.const) for e in exprs]), terms, tuple(rests))


def _fit_leaf(
    fitter: DeviceFitter,
    forms: Sequence[IndexForm],
    loops: Sequence[Sequence[LoopFacts]],
    parts: Sequence[Sequence[Size]],
) -> Leaf:
    const = fitter.size([float(base_value(f)) for f in forms])
    table = None if any(f.rests for f in forms) else _digit_table(forms, loops)
    if table is None:
        return _fit_moves(fitter, const, forms, loops)
    signed = any(c < 0 for coefs in table.values() for c in coefs)
    digits: dict[int, list[Digit]] = {}
    # In a variable cut into tiles, each digit counts what the finer ones make together.
    finer: Size | None = Formula(1.0)
    for (at, part), coefs in sorted(table.items(), reverse=True):
        every = parts[at]
        coef = fitter.size(coefs, every[part], finer)
        finer = times(coef, every[part])
        kept = _keeps_modulus(forms, loops, at, part)
        digits.setdefault(at, []).insert(
            0, Digit(coef, tuple(every[part + 1 :]), every[part], tuple(every[:part]), kept)
        )
    return Leaf(const, tuple((at, tuple(d)) for at, d in sorted(digits.items())), (), signed)


def _keeps_modulus(forms: Sequence[IndexForm], loops: Sequence[Sequence[LoopFacts]], at: int, part: int) -> bool:
    """Whether a digit with nothing outside of it is written with its modulus."""
    for form, own in zip(forms, loops, strict=True):
        loop = own[at]
        if part and loop.extent > 1 and math.prod(loop.parts[:part]) == 1:
            for term in form.terms:
                if term.var is loop.var and loop.part_of(term.div, term.extent) == part:
                    return term.extent != 0
    return False


def _digit_table(
    forms: Sequence[IndexForm], loops: Sequence[Sequence[LoopFacts]]
) -> dict[tuple[int, int], list[float]] | None:
    """Coefficients by loop and part, NaN where an example does not show them; None where digits are no parts."""
    table: dict[tuple[int, int], list[float]] = {}
    for k, form in enumerate(forms):
        places = {loop.var: i for i, loop in enumerate(loops[k])}
        for term in form.terms:
            at = places.get(term.var)
            if at is None:
                raise Unfit("an index depends on a loop outside its block")
            loop = loops[k][at]
            if loop.extent == 1:
                continue
            part = loop.part_of(term.div, term.extent)
            if part is None:
                return None
            table.setdefault((at, part), [NAN] * len(forms))[k] = float(term.coef)
    # Where a part runs but the index does not show it, it does not move the index.
    for (at, part), coefs in table.items():
        for k in range(len(forms)):
            if math.isnan(coefs[k]) and loops[k][at].parts[part] > 1:
                coefs[k] = 0.0
    return table


def _fit_moves(
    fitter: DeviceFitter, const: Size, forms: Sequence[IndexForm], loops: Sequence[Sequence[LoopFacts]]
) -> Leaf:
    moves = []
    signed = False
    for at in range(len(loops[0])):
        firsts, lasts = [], []
        for form, own in zip(forms, loops, strict=True):
            first, last = gains(form, own[at].var, own[at].extent)
            firsts.append(float(first) if own[at].extent > 1 else NAN)
            lasts.append(float(last))
        if any(lasts) or any(x == x and x for x in firsts):
            signed = signed or any(x < 0 for x in (*firsts, *lasts))
            moves.append((at, fitter.size(firsts), fitter.size(lasts)))
    return Leaf(const, (), tuple(moves), signed)
