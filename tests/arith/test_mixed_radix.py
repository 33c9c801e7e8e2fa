"""Quotients and remainders by symbolic sizes: digits taken apart and put together."""

import itertools
import random

import pytest

from relaxish import tir
from relaxish.arith.mixed_radix import MixedRadix

NAMES = "n h w t a b x y"
n, h, w, t, a, b, x, y = (tir.Var(name, "int64") for name in NAMES.split())


def const(value):
    return tir.const(value, "int64")


def knowing(**extents):
    """n, h, w, t are sizes; other variables run below what is given."""
    radix = MixedRadix()
    for size in (n, h, w, t):
        radix.mark_size(size)
    for var in (a, b, x, y):
        if var.name in extents:
            extent = extents[var.name]
            radix.bind(var, const(extent) if isinstance(extent, int) else extent)
    return radix


def check(radix, expr, expected):
    made = radix.simplify(expr)
    assert str(made) == str(expected), f"{expr} became {made}"


def test_coordinates_of_an_offset():
    radix = knowing(a=n, b=8, x=h, y=w)
    offset = ((a * 8 + b) * h + x) * w + y
    check(radix, offset // w // h // 8 % n, a)
    check(radix, offset // w // h % 8, b)
    check(radix, offset // w % h, x)
    check(radix, offset % w, y)
    check(radix, offset // (h * w), a * 8 + b)


def test_an_offset_of_its_coordinates():
    radix = knowing(a=(n * h * w * 8 + 1023) // 1024, b=1024)
    index = a * 1024 + b
    radix.below(index, n * h * w * 8)
    digits = [index // (h * w * 8), index % (h * w * 8) // (h * w), index % (h * w) // w, index % w]
    check(radix, ((digits[0] * 8 + digits[1]) * h + digits[2]) * w + digits[3], index)
    check(radix, index % (n * h * w * 8), index)


def test_digits_that_simplification_has_split():
    # The low digit of a * 1024 + b by 64 is written b % 64, the rest a * 16 + b // 64.
    radix = knowing(a=(n * t * 64 + 1023) // 1024, b=1024)
    radix.below(a * 1024 + b, n * t * 64)
    rest = a * 16 + b // 64
    check(radix, rest // t * t * 64 + rest % t * 64 + b % 64, a * 1024 + b)
    check(radix, rest // t % n, rest // t)


def test_what_is_not_known_stays():
    radix = knowing(a=n, x=h)
    for expr in (a % h, x // n, (a + x) % h, y % w, a // 3 % t):
        check(radix, expr, expr)
    # A part that divides goes, the rest stays.
    check(radix, (x * w + y) // w, x + y // w)
    check(radix, (x * w + y) % w, y % w)


def test_facts_hold_in_their_scope():
    radix = knowing(a=n)
    with radix.scope():
        radix.below(a, t)
        assert radix.is_below(a, t)
        check(radix, a % t, a)
    assert not radix.is_below(a, t)
    check(radix, a % t, a % t)


def test_common_factors_of_numerator_and_divisor():
    radix = knowing(a=n, x=h, y=w)
    check(radix, (a * h * w + x * w) // (h * w), a)
    check(radix, (a * w) // (h * w), a // h)
    check(radix, (a * w) % (h * w), w * (a % h))


def test_differences_are_not_taken_for_non_negative():
    radix = knowing(a=n, x=h)
    assert not radix.is_at_least_zero(a - 1)
    check(radix, (a - 1) % n, (a - 1) % n)


def random_expr(rng, leaves, divisors, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves)
    left = random_expr(rng, leaves, divisors, depth - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return left + random_expr(rng, leaves, divisors, depth - 1)
    if kind == 1:
        return left * rng.choice(divisors) + random_expr(rng, leaves, divisors, depth - 1)
    if kind == 2:
        divisor = rng.choice(divisors)
        return left // divisor * divisor + left % divisor
    if kind == 3:
        return left - random_expr(rng, leaves, divisors, depth - 1)
    return left // rng.choice(divisors) if kind == 4 else left % rng.choice(divisors)


def value_of(expr, values):
    if isinstance(expr, tir.IntImm):
        return expr.value
    if isinstance(expr, tir.Var):
        return values[expr]
    left, right = value_of(expr.a, values), value_of(expr.b, values)
    return {
        tir.Add: lambda: left + right,
        tir.Sub: lambda: left - right,
        tir.Mul: lambda: left * right,
        tir.FloorDiv: lambda: left // right,
        tir.FloorMod: lambda: left % right,
    }[type(expr)]()


@pytest.mark.parametrize("seed", range(60))
def test_values_stay(seed):
    rng = random.Random(seed)
    radix = knowing(a=n, b=4, x=h, y=h * w)
    leaves = [a, b, x, y, const(rng.randrange(5))]
    divisors = [const(2), const(4), const(6), n, h, w, h * w, w * 4, h * w * 8]
    expr = random_expr(rng, leaves, divisors, 4)
    if seed % 3 == 0:
        radix.below(expr, n * h * w)
    made = radix.simplify(expr)
    for sizes in itertools.product((1, 2, 3), repeat=3):
        known = dict(zip((n, h, w), sizes, strict=True))
        for point in itertools.product(*(range(value_of(e, known)) for e in (n, const(4), h, h * w))):
            values = known | dict(zip((a, b, x, y), point, strict=True))
            value = value_of(expr, values)
            if seed % 3 == 0 and value >= known[n] * known[h] * known[w]:
                continue
            assert value_of(made, values) == value, f"{expr} became {made}, which differs for {values}"
