"""Parts of indices that are sums of digits of loops, and how they move.

A fused loop runs over the product of its *parts*; an index takes digits of it, each the running number of one part.
Where the fused loop is split again (between blocks and threads, or because threads share the copying of a tile), a
digit is one of a sum of loops: its moves follow from the digit's place and length and from the loops' strides.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arith.affine import Affine, quotient, remainder
from ..feature_extractor.probes import Move, base_value, gains
from .device_reading import LoopFacts
from .device_sizes import DeviceEnvironment, DeviceFitter, Size, times
from .fitting import Formula, Unfit, Unlike

__all__ = ["Digit", "JointPlace", "Leaf", "Nest", "Split", "fit_leaf"]

NAN = math.nan
_ENDLESS = np.float32(1 << 30)
# Where an index is compared with the sum of its digits.
_POINTS = 24


@dataclass(frozen=True)
class Split:
    """Split of one loop of a store: the new loops at ``position`` and after, each with stride and extent."""

    position: int
    strides: tuple[Any, ...]
    extents: tuple[Any, ...]


@dataclass
class JointPlace:
    """A fused loop that was split again, in the loops of one store: where the loops it became are, what it was fused of
    in each example, and the formulas of that."""

    positions: tuple[int, ...]
    parts: list[tuple[int, ...]]
    sizes: tuple[Size, ...]


@dataclass
class Nest:
    """The loops of one store: ``loops[k]`` in example ``k``, ``parts`` by position the formulas of what a loop was fused
    of, and ``joints`` what several loops are pieces of."""

    loops: list[list[LoopFacts]]
    parts: list[tuple[Size, ...]]
    joints: list[JointPlace] = field(default_factory=list)

    def points(self, k: int) -> Iterator[dict[Any, int]]:
        """Sampled positions of the loops of example ``k``: at the start, at the probes of each, and anywhere."""
        yield {}
        running = [loop for loop in self.loops[k] if loop.extent > 1]
        for loop in running:
            yield {loop.var: 1}
            yield {loop.var: loop.extent - 1}
        rng = np.random.default_rng(k)
        # Where a fused loop is split, its pieces may overrun together.
        rest = {at for joint in self.joints for at in joint.positions[:-1]}
        running = [loop for at, loop in enumerate(self.loops[k]) if loop.extent > 1 and at not in rest]
        for _ in range(_POINTS):
            yield {loop.var: int(rng.integers(0, loop.extent)) for loop in running}


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
    """A block variable, or a whole index: by loop its digits, or its fitted moves where it is no sum of digits; and by
    the positions of the pieces of a fused loop the digits of that."""

    const: Size
    digits: tuple[tuple[int, tuple[Digit, ...]], ...]
    moves: tuple[tuple[int, Size, Size], ...] = ()
    signed: bool = False
    joint: tuple[tuple[tuple[int, ...], tuple[Digit, ...]], ...] = ()

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
        for positions, digits in self.joint:
            stride: Any = np.float32(1)
            for at in reversed(positions):
                found[at] = self._piece(env, digits, stride, sizes[at])
                stride = stride * sizes[at]
        return found

    def _whole(self, env: DeviceEnvironment, digits: Sequence[Digit], size: np.ndarray[Any, Any]) -> Move:
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

    def _piece(
        self,
        env: DeviceEnvironment,
        digits: Sequence[Digit],
        stride: float | np.ndarray[Any, Any],
        extent: np.ndarray[Any, Any],
    ) -> Move:
        """The move by one loop of those that a fused loop was split into."""
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
        return Move(first, last, last != first * (extent - 1), self.signed)

    def split_moves(self, env: DeviceEnvironment, but: int, split: Split) -> dict[int, Move]:
        """Moves by the loops that take the place of one that is split."""
        digits = next((d for at, d in self.digits if at == but), ())
        if not digits:
            return {}
        return {
            split.position + k: self._piece(env, digits, stride, extent)
            for k, (stride, extent) in enumerate(zip(split.strides, split.extents, strict=True))
        }


# ---- fitting

Table = dict[tuple[int, int], list[float]]


def fit_leaf(fitter: DeviceFitter, forms: Sequence[Affine[int]], nest: Nest, name: Hashable = ()) -> Leaf:
    """One index in several examples as a sum of digits; with fitted moves where it is none."""
    const = fitter.size([float(base_value(f)) for f in forms])
    table = None
    if not any(f.rests for f in forms):
        table = _digit_table(forms, nest.loops)
        cuts = None if table is not None else _cuts(forms, nest.loops)
        if cuts:
            nest = _cut(fitter, nest, cuts)
            table = _digit_table(forms, nest.loops)
    if table is not None:
        kept = {key: _keeps_modulus(forms, nest.loops, *key) for key in table}
        return Leaf(const, tuple(_digits(fitter, table, nest.parts, kept)), (), _signed(table))
    found = _fit_probed(fitter, const, forms, nest)
    sums = [not form.rests for form in forms]
    if found is None and fitter.parting and any(sums) and not all(sums):
        raise Unlike({name: sums})
    return found or _fit_moves(fitter, const, forms, nest.loops)


def _signed(*tables: Table) -> bool:
    return any(c < 0 for table in tables for coefs in table.values() for c in coefs)


def _digits(
    fitter: DeviceFitter, table: Table, parts: Sequence[tuple[Size, ...]], kept: dict[tuple[int, int], bool]
) -> list[tuple[int, tuple[Digit, ...]]]:
    """Formulas for a table of coefficients by loop and part."""
    digits: dict[int, list[Digit]] = {}
    # In a variable cut into tiles, each digit counts what the finer ones make together.
    finer: Size | None = Formula(1.0)
    for (at, part), coefs in sorted(table.items(), reverse=True):
        every = parts[at]
        coef = fitter.size(coefs, every[part], finer)
        finer = times(coef, every[part])
        made = Digit(coef, tuple(every[part + 1 :]), every[part], tuple(every[:part]), kept.get((at, part), False))
        digits.setdefault(at, []).insert(0, made)
    return [(at, tuple(d)) for at, d in sorted(digits.items())]


def _keeps_modulus(forms: Sequence[Affine[int]], loops: Sequence[Sequence[LoopFacts]], at: int, part: int) -> bool:
    """Whether a digit with nothing outside of it is written with its modulus."""
    for form, own in zip(forms, loops, strict=True):
        loop = own[at]
        if part and loop.extent > 1 and math.prod(loop.parts[:part]) == 1:
            for term in form.terms:
                if term.var is loop.var and loop.part_of(term.lower, term.extent) == part:
                    return term.extent != 0
    return False


def _digit_table(forms: Sequence[Affine[int]], loops: Sequence[Sequence[LoopFacts]]) -> Table | None:
    """Coefficients by loop and part, NaN where an example does not show them; None where digits are no parts."""
    table: Table = {}
    for k, form in enumerate(forms):
        places = {loop.var: i for i, loop in enumerate(loops[k])}
        for term in form.terms:
            at = places.get(term.var)
            if at is None:
                raise Unfit("an index depends on a loop outside its block")
            loop = loops[k][at]
            if loop.extent == 1:
                continue
            part = loop.part_of(term.lower, term.extent)
            if part is None:
                return None
            table.setdefault((at, part), [NAN] * len(forms))[k] = float(term.coef)
    # Where a part runs but the index does not show it, it does not move the index.
    for (at, part), coefs in table.items():
        for k in range(len(forms)):
            if math.isnan(coefs[k]) and loops[k][at].parts[part] > 1:
                coefs[k] = 0.0
    return table


def _cuts(
    forms: Sequence[Affine[int]], loops: Sequence[Sequence[LoopFacts]]
) -> dict[tuple[int, int], list[int]] | None:
    """By loop and part how many values of the part are one, where an index has quotients of parts: a tile of outputs
    within a group of channels reads what its neighbours read. None where digits are no quotients of parts either."""
    found: dict[tuple[int, int], list[int]] = {}
    for k, form in enumerate(forms):
        places = {loop.var: i for i, loop in enumerate(loops[k])}
        for term in form.terms:
            at = places[term.var]
            loop = loops[k][at]
            if loop.extent == 1 or loop.part_of(term.lower, term.extent) is not None:
                continue
            cut = loop.quotient_of(term.lower, term.extent)
            if cut is None:
                return None
            part, length = cut
            # Elsewhere a part is whole, or, not written at all, one value.
            each = found.setdefault(
                (at, part), [_written(f, own[at], part) for f, own in zip(forms, loops, strict=True)]
            )
            each[k] = length
    return found


def _written(form: Affine[int], loop: LoopFacts, part: int) -> int:
    """One where an index has a part of a loop as a digit, else the length of the part."""
    shown = any(t.var is loop.var and loop.part_of(t.lower, t.extent) == part for t in form.terms)
    return 1 if shown else loop.parts[part]


def _cut(fitter: DeviceFitter, nest: Nest, cuts: dict[tuple[int, int], list[int]]) -> Nest:
    """A nest whose loops are fused of finer parts."""
    loops, parts = [list(own) for own in nest.loops], list(nest.parts)
    for (at, part), lengths in sorted(cuts.items(), reverse=True):
        rest = []
        for own, length in zip(loops, lengths, strict=True):
            left, cut, right = own[at].parts[:part], own[at].parts[part], own[at].parts[part + 1 :]
            rest.append(cut // length)
            own[at] = replace(own[at], parts=(*left, cut // length, length, *right))
        sizes = [fitter.size([float(x) for x in values]) for values in (rest, lengths)]
        parts[at] = (*parts[at][:part], *sizes, *parts[at][part + 1 :])
    return Nest(loops, parts, nest.joints)


@dataclass
class _Wheel:
    """A loop, or several that are the pieces of one: variables with strides and extents, and the parts."""

    pieces: list[tuple[Any, int, int]]
    parts: tuple[int, ...]

    def point(self, x: int) -> dict[Any, int]:
        """Positions of the loops in iteration ``x``."""
        return {var: x // stride % extent for var, stride, extent in self.pieces}

    def digits(self, point: dict[Any, int]) -> list[int]:
        """The running numbers of the parts."""
        x = sum(point.get(var, 0) * stride for var, stride, _ in self.pieces)
        found = []
        for own in reversed(self.parts):
            found.append(x % own)
            x //= own
        return found[::-1]


def _wheels(nest: Nest, k: int) -> list[_Wheel]:
    """The loops of one example, those that are pieces of one taken together; in the order of joints, then loops."""
    loops, found = nest.loops[k], []
    for joint in nest.joints:
        pieces, stride = [], 1
        for at in reversed(joint.positions):
            pieces.append((loops[at].var, stride, loops[at].extent))
            stride *= loops[at].extent
        found.append(_Wheel(pieces, joint.parts[k]))
    return [*found, *(_Wheel([(x.var, 1, x.extent)], x.parts) for x in loops)]


def _fit_probed(fitter: DeviceFitter, const: Size, forms: Sequence[Affine[int]], nest: Nest) -> Leaf | None:
    """A leaf however the program writes it, by what it gains where one digit makes its first step; None for an index
    that is no sum of digits."""
    table: Table = {}
    joined = {at for joint in nest.joints for at in joint.positions}
    count = len(nest.joints)
    for k, form in enumerate(forms):
        base = base_value(form)
        wheels = _wheels(nest, k)
        own: dict[tuple[int, int], int] = {}
        for number, wheel in enumerate(wheels):
            if number - count in joined:
                continue
            inner = 1
            for part in range(len(wheel.parts) - 1, -1, -1):
                if wheel.parts[part] > 1:
                    own[number, part] = form.value(wheel.point(inner)) - base
                inner *= wheel.parts[part]
        for point in nest.points(k):
            shown = {number: wheels[number].digits(point) for number in {n for n, _ in own}}
            if form.value(point) - base != sum(coef * shown[n][part] for (n, part), coef in own.items()):
                return None
        for key, coef in own.items():
            table.setdefault(key, [NAN] * len(forms))[k] = float(coef)
    table = {key: coefs for key, coefs in table.items() if any(c == c and c for c in coefs)}
    sizes = [*(joint.sizes for joint in nest.joints), *nest.parts]
    kept = {key: _wraps(forms, nest, key[0] - count, key[1]) for key in table if key[0] >= count}
    made = _digits(fitter, table, sizes, kept)
    joint = tuple((nest.joints[number].positions, d) for number, d in made if number < count)
    return Leaf(const, tuple((number - count, d) for number, d in made if number >= count), (), _signed(table), joint)


def _wraps(forms: Sequence[Affine[int]], nest: Nest, at: int, part: int) -> bool:
    """As :func:`_keeps_modulus`, by what the index does where the loop overruns."""
    for form, own in zip(forms, nest.loops, strict=True):
        loop = own[at]
        if part and loop.parts[part] > 1 and math.prod(loop.parts[:part]) == 1:
            return form.value({loop.var: loop.extent}) == base_value(form)
    return False


def _fit_moves(
    fitter: DeviceFitter, const: Size, forms: Sequence[Affine[int]], loops: Sequence[Sequence[LoopFacts]]
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
