"""A region that is said to be certainly touched is touched: by trying all iterations."""

from __future__ import annotations

import itertools
import random

from relaxish import arith, tir
from relaxish.ir import Range
from relaxish.tir.functor import substitute

f, g = tir.Var("f", "int32"), tir.Var("g", "int32")
div, mod = tir.floordiv, tir.floormod


def indices(rng):
    a, b, c = rng.choice((2, 3, 4, 5, 7)), rng.choice((2, 3, 4)), rng.choice((2, 3, 5))
    base = rng.choice((f, f * c + g, f + g, g * c + f))
    forms = (
        div(base, a),
        mod(base, a),
        div(mod(base, a * b), a),
        mod(div(base, a), b),
        base,
        f,
        g,
        f * 2 + g,
        f * c + 3,
    )
    return rng.sample(forms, rng.choice((1, 2, 2, 3)))


def touched(places, extents, domains):
    points = set()
    analyzer = arith.Analyzer()
    for values in itertools.product(*[range(low, low + n) for low, n in domains.values()]):
        here = {v: tir.const(x, "int32") for v, x in zip(domains, values, strict=True)}
        first = [int(analyzer.simplify(substitute(e, here))) for e in places]
        points |= set(itertools.product(*[range(m, m + x) for m, x in zip(first, extents, strict=True)]))
    return points


def test_lower_bounds_are_touched():
    rng = random.Random(3)
    known = 0
    for _ in range(500):
        places = indices(rng)
        extents = [rng.choice((1, 1, 1, 2, 3)) for _ in places]
        domains = {
            f: (rng.choice((0, 0, rng.randint(-3, 90))), rng.randint(1, 12)),
            g: (rng.choice((0, 2)), rng.randint(1, 5)),
        }
        region = [Range.from_min_extent(e, x) for e, x in zip(places, extents, strict=True)]
        found = arith.estimate_region_lower_bound(
            region, {v: Range.from_min_extent(low, n) for v, (low, n) in domains.items()}, True
        )
        if found is None:
            continue
        known += 1
        box = set(itertools.product(*[range(int(s.min_value), int(s.max_value) + 1) for s in found]))
        assert box <= touched(places, extents, domains), (places, extents, domains, found)
    assert known > 50


def test_part_of_a_row_is_not_the_row():
    last = {f: Range.from_min_extent(82, 2)}
    assert arith.estimate_region_lower_bound([Range.from_min_extent(mod(f, 7), 1)], last) is None
    (row,) = arith.estimate_region_lower_bound([Range.from_min_extent(div(f, 7), 1)], last)
    assert int(row.min_value) == int(row.max_value) == 11


def test_regions_whose_size_depends_on_what_runs():
    """The hull of two accesses, say: what is found covers all of them and speaks of none of the variables that ran."""
    low, high = tir.min(f, g), tir.max(f * 2, g)
    hull = Range.from_min_extent(low, high + 1 - low)
    growing = Range.from_min_extent(tir.const(0, "int32"), f + 3)
    for domains in ({f: Range(0, 5)}, {f: Range(0, 5), g: Range(2, 9)}):
        assert arith.estimate_region_strict_bound([growing], domains, True) is None
        assert arith.estimate_region_lower_bound([hull], domains, True) is None
        for region in (hull, growing):
            (found,) = arith.estimate_region_upper_bound([region], domains, True)
            for value in (1, 4):
                fixed = {g: tir.const(value, "int32")}
                ends = [
                    int(arith.Analyzer().simplify(substitute(e, fixed))) for e in (found.min_value, found.max_value)
                ]
                others = range(2, 9) if g in domains else (value,)
                places = [
                    (substitute(region.min, here), substitute(region.min + region.extent - 1, here))
                    for a, b in itertools.product(range(5), others)
                    for here in [{f: tir.const(a, "int32"), g: tir.const(b, "int32")}]
                ]
                for first, last in places:
                    assert ends[0] <= int(arith.Analyzer().simplify(first))
                    assert int(arith.Analyzer().simplify(last)) <= ends[1]
