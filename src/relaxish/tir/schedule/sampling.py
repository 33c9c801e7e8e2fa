"""Random numbers and the factorisations drawn with them.

A schedule made from a seed draws what the public API's draws from that seed, so the order and number of the raw draws
below is part of the interface.

Source of the generator: Park, Miller and Stockmeyer, technical correspondence (Communications of the ACM 36-7, 1993).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

__all__ = [
    "LinearCongruentialEngine", "factor_tuples", "normalize_seed", "sample_partitioned_factors", "sample_perfect_factors",
]  # fmt: skip

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

    def distinct(self, n: int, k: int) -> list[int]:
        """``k`` different numbers below ``n``."""
        if k == 1:
            return [self.rand_int(0, n)]
        if k == 2:
            first, second = self.rand_int(0, n), self.rand_int(0, n - 1)
            return [first, second + 1 if second >= first else second]
        order = list(range(n))
        for i in range(k):
            j = self.rand_int(i, n)
            order[i], order[j] = order[j], order[i]
        return order[:k]

    def categorical(self, probs: Sequence[float]) -> int:
        """An index drawn by (not necessarily normalised) probability."""
        if len(probs) < 2:
            return 0
        total, cumulative = sum(probs), []
        if total <= 0:
            return self.rand_int(0, len(probs))
        below = 0.0
        for p in probs:
            below += p / total
            cumulative.append(below)
        cumulative[-1] = 1.0
        return bisect_left(cumulative, self.uniform())


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


@lru_cache(maxsize=4096)
def _prime_powers(extent: int) -> tuple[tuple[int, int], ...]:
    """The factorisation of ``extent``: primes, smallest first, with their exponents."""
    out = []
    prime = 2
    while prime * prime <= extent:
        exponent = 0
        while extent % prime == 0:
            extent //= prime
            exponent += 1
        if exponent:
            out.append((prime, exponent))
        prime += 1
    if extent > 1:
        out.append((extent, 1))
    return tuple(out)


_SIEVE_LIMIT = 65536


def _draw_factors(engine: LinearCongruentialEngine, extent: int, n: int) -> list[int]:
    """A factorisation into ``n`` factors: the exponent of each prime is dealt out on its own, uniformly."""
    if n == 1:
        return [extent]
    out = [1] * n
    for prime, exponent in _prime_powers(extent):
        if n == 2:
            # A prime beyond the sieve takes its side by the opposite coin.
            first = 1 - engine.rand_int(0, 2) if prime >= _SIEVE_LIMIT else engine.rand_int(0, exponent + 1)
            out[0] *= prime**first
            out[1] *= prime ** (exponent - first)
        elif exponent == 1:
            out[engine.rand_int(0, n)] *= prime
        else:
            # Stars and bars: the gaps between n - 1 separators among exponent + n - 1 places.
            last = -1
            places = exponent + n - 1
            for index, place in enumerate([*sorted(engine.distinct(places, n - 1)), places]):
                out[index] *= prime ** (place - last - 1)
                last = place
    return out


def sample_perfect_factors(engine: LinearCongruentialEngine, extent: int, n: int, max_innermost: int) -> list[int]:
    """Factors of ``extent``, the last at most ``max_innermost`` (-1: any): drawn again until they fit."""
    if extent < 1:
        raise ValueError("Cannot tile a loop with 0 or negative extent")
    if n < 1:
        raise ValueError("Cannot tile a loop to 0 or negative splits")
    if max_innermost == -1:
        return _draw_factors(engine, extent, n)
    if n < 2:
        raise ValueError(f"Cannot tile a loop into {n} splits")
    if max_innermost < 1:
        raise ValueError(f"max_innermost_factor is positive or -1, not {max_innermost}")
    while True:
        factors = _draw_factors(engine, extent, n)
        if factors[-1] <= max_innermost:
            return factors


def sample_partitioned_factors(
    engine: LinearCongruentialEngine, extent: int, n: int, position: int, inner: int
) -> list[int]:
    """Factors of ``extent``, those from ``position`` on with a product that ``inner`` divides."""
    if position == 0 and inner == 1:
        return sample_perfect_factors(engine, extent, n, -1)
    if n < 2:
        raise ValueError(f"Cannot tile a loop into {n} splits")
    while True:
        factors = _draw_factors(engine, extent, n)
        product = 1
        for factor in factors[position:]:
            product *= factor
        if product % inner == 0:
            return factors


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
