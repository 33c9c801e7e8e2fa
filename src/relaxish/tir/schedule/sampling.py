"""Random numbers and the factorisations drawn with them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["LinearCongruentialEngine", "factor_tuples", "normalize_seed"]

_MULTIPLIER = 48271
_MODULUS = 2147483647


def normalize_seed(seed: int | None) -> int:
    """A legal engine state; None and -1 mean "from the operating system"."""
    if seed is None or seed == -1:
        import secrets

        seed = secrets.randbelow(_MODULUS - 1) + 1
    state = int(seed) % _MODULUS
    return state or 1


class LinearCongruentialEngine:
    """The minimal-standard generator: one multiplication per draw, its whole state one integer."""

    __slots__ = ("state",)

    def __init__(self, seed: int | None = None) -> None:
        self.state = normalize_seed(seed)

    def next(self) -> int:
        """The next raw number in [1, 2**31 - 1)."""
        self.state = self.state * _MULTIPLIER % _MODULUS
        return self.state

    def fork(self) -> int:
        """A seed for an independent stream."""
        return self.next() * 32767 % 1999999973

    def rand_int(self, low: int, high: int) -> int:
        """Uniform in [low, high): the range of raw numbers is cut into equal parts, what is left over drawn again."""
        size = high - low
        if size <= 1:
            return low
        part = (_MODULUS - 1) // size
        while True:
            raw = self.next()
            if raw < part * size:
                return low + raw // part

    def uniform(self) -> float:
        """Uniform in [0, 1), from two draws: one has too few bits."""
        first = self.next()
        return (first + self.next() * _MODULUS) / (_MODULUS * _MODULUS)

    def categorical(self, probs: Sequence[float]) -> int:
        """An index drawn by (not necessarily normalised) probability."""
        total, cumulative = 0.0, []
        for p in probs:
            total += p
            cumulative.append(total)
        if total <= 0:
            return self.rand_int(0, len(cumulative))
        ticket = LinearCongruentialEngine(self.fork()).uniform() * total
        return min(bisect_left(cumulative, ticket), len(cumulative) - 1)


@lru_cache(maxsize=4096)
def _divisors(extent: int) -> tuple[int, ...]:
    small, large, k = [], [], 1
    while k * k <= extent:
        if extent % k == 0:
            small.append(k)
            if k * k != extent:
                large.append(extent // k)
        k += 1
    return tuple(small + large[::-1])


@lru_cache(maxsize=65536)
def _count(extent: int, parts: int) -> int:
    """How many ordered ways there are to write ``extent`` as a product of ``parts`` factors."""
    if parts == 1:
        return 1
    return sum(_count(extent // d, parts - 1) for d in _divisors(extent))


def sample_factors(engine: LinearCongruentialEngine, extent: int, n: int, max_innermost: int) -> list[int]:
    """A factorisation of ``extent`` into ``n`` factors, uniform among those with a small enough last one."""
    if n == 1:
        return [extent]
    inner = [d for d in _divisors(extent) if max_innermost <= 0 or d <= max_innermost]
    weights = [_count(extent // d, n - 1) for d in inner]
    last = _draw(engine, inner, weights)
    rest, out = extent // last, []
    for parts in range(n - 1, 1, -1):
        choices = _divisors(rest)
        factor = _draw(engine, choices, [_count(rest // d, parts - 1) for d in choices])
        out.append(factor)
        rest //= factor
    return [*out, rest, last]


def _draw(engine: LinearCongruentialEngine, choices: Sequence[int], weights: Sequence[int]) -> int:
    total = sum(weights)
    # Two draws make a number wide enough for very many factorisations.
    ticket = (engine.next() * _MODULUS + engine.next()) % total
    for choice, weight in zip(choices, weights, strict=True):
        ticket -= weight
        if ticket < 0:
            return choice
    return choices[-1]


@lru_cache(maxsize=1024)
def factor_tuples(extent: int, n: int, max_innermost: int) -> tuple[tuple[int, ...], ...]:
    """All factorisations of ``extent`` into ``n`` factors whose last is at most ``max_innermost``."""
    if n == 1:
        return ((extent,),)
    out = []
    for last in _divisors(extent):
        if 0 < max_innermost < last:
            continue
        for head in factor_tuples(extent // last, n - 1, 0):
            out.append((*head, last))
    return tuple(out)
