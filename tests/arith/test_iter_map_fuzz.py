"""Indices rewritten through iterator maps have the values they had: by trying all iterations."""

from __future__ import annotations

import itertools
import random

import pytest

from relaxish import arith, tir
from relaxish.ir import Range

f, g, h = (tir.Var(name, "int32") for name in "fgh")
_MEANING = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
}


def value(expr, env):
    kind = type(expr).__name__
    if kind == "Var":
        return env[expr]
    return expr.value if kind == "IntImm" else _MEANING[kind](value(expr.a, env), value(expr.b, env))


def index(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice((f, g, h))
    inner, by, kind = index(rng, depth - 1), rng.randint(2, 9), rng.randrange(9)
    if kind == 0:
        return inner + rng.randint(-9, 9)
    if kind == 1:
        return inner * rng.choice((2, 3, 4, -1, -1, -2))
    if kind < 4:
        return tir.floordiv(inner, by)
    if kind < 6:
        return tir.floormod(inner, by)
    return rng.randint(-5, 25) - inner if kind < 8 else inner * rng.choice((1, 2, 3, 5)) + index(rng, depth - 1)


@pytest.mark.parametrize("start", [0, 1000])
def test_simplified_indices_keep_their_values(start):
    changed = 0
    for seed in range(start, start + 500):
        rng = random.Random(seed)
        before = [index(rng, rng.randint(1, 4)) for _ in range(rng.choice((1, 1, 2)))]
        domains = {v: (rng.choice((0, 0, 0, rng.randint(-4, 9))), rng.choice((1, 2, 3, 4, 6, 8))) for v in (f, g, h)}
        level = rng.choice((arith.IterMapLevel.Surjective, arith.IterMapLevel.Bijective))
        ranges = {v: Range.from_min_extent(*d) for v, d in domains.items()}
        after = arith.iter_map_simplify(before, ranges, True, level, rng.random() < 0.7)
        changed += any(a is not b for a, b in zip(after, before, strict=True))
        for values in itertools.product(*[range(low, low + n) for low, n in domains.values()]):
            env = dict(zip(domains, values, strict=True))
            assert [value(e, env) for e in after] == [value(e, env) for e in before], (seed, before, after, values)
    assert changed > 30


def test_an_iterator_that_falls_is_not_divided_backwards():
    fall = tir.floormod(tir.floormod(23 - f, 24), 19)
    (made,) = arith.iter_map_simplify([fall], {f: Range(0, 8)})
    assert [value(made, {f: i}) for i in range(8)] == [(23 - i) % 24 % 19 for i in range(8)]
