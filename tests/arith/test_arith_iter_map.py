"""Iterator maps: detection, simplification, division into subspaces, inversion."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from relaxish import arith, tir
from relaxish.arith.build import deep_equal
from relaxish.ir import Range, assert_structural_equal
from relaxish.ir import evaluate


def value_of(e: Any, env: dict[Any, int]) -> int:
    return int(evaluate(e, env))


x, y, z = (tir.Var(n, "int32") for n in "xyz")


def detect(indices: Any, dom: dict[Any, int], predicate: Any = True, level: Any = "surjective") -> Any:
    return arith.detect_iter_map(indices, {v: Range(0, n) for v, n in dom.items()}, predicate, level)


GOOD = [
    ([x], {x: 10}),
    ([x * 4 + y], {x: 3, y: 4}),
    ([x // 4, x % 4], {x: 16}),
    ([x // 8, x % 8 // 2, x % 2], {x: 64}),
    ([(x * 4 + y) // 2, (x * 4 + y) % 2], {x: 3, y: 4}),
    ([(x * 16 + y) // 32, (x * 16 + y) % 32], {x: 4, y: 16}),
    ([y * 16 + x], {x: 16, y: 4}),
    ([x + 3, y], {x: 4, y: 5}),
    ([(x * 12 + y * 3 + z) // 6, (x * 12 + y * 3 + z) % 6], {x: 2, y: 4, z: 3}),
]
MEETING = [
    ([x * 2 + y], {x: 3, y: 4}),
    ([x * 7 + y, z], {x: 3, y: 9, z: 2}),
    ([x * 112 + z], {x: 2, z: 117}),
    ([x // 4 + y], {x: 16, y: 8}),
    ([(x * 2 + y) // 4, (x * 2 + y) % 4], {x: 5, y: 4}),
    ([x * 3 + y * 2 + z], {x: 4, y: 3, z: 2}),
    ([(80 + y) // 2 // 16, (80 + y) // 2 % 16], {y: 32}),
    ([(x + 10) // 3], {x: 10}),
]
BAD = [
    ([x, x], {x: 4}),
    ([x * y], {x: 3, y: 4}),
    ([x % 4, x % 8 // 2], {x: 16}),
    ([x * 5 + y], {x: 3, y: 4}),
]


@pytest.mark.parametrize("indices, dom", GOOD + MEETING)
def test_detect(indices: Any, dom: Any) -> None:
    result = detect(indices, dom)
    assert len(result.indices) == len(indices), result.errors
    for values in itertools.product(*(range(n) for n in dom.values())):
        env = dict(zip(dom, values))
        for e, found in zip(indices, result.indices):
            assert value_of(arith.normalize_iter_map_to_expr(found), env) == value_of(e, env)


@pytest.mark.parametrize("indices, dom", BAD)
def test_reject(indices: Any, dom: Any) -> None:
    result = detect(indices, dom)
    assert not result.indices
    assert result.errors


@pytest.mark.parametrize("indices, dom", MEETING)
def test_overlaps_and_padding_are_no_bijection(indices: Any, dom: Any) -> None:
    assert not detect(indices, dom, level="bijective").indices


def test_overlapping_maps_take_the_values_they_say() -> None:
    rng, accepted = random.Random(19), 0
    for _ in range(150):
        dom = {v: rng.choice([2, 3, 4, 5, 8]) for v in (x, y, z)}
        index = sum((v * rng.choice([1, 2, 3, 4, 7]) for v in (x, y, z)), tir.IntImm("int32", rng.choice([0, 3])))
        index = rng.choice([index, index // 2, index // 4])
        for total in detect([index], dom).indices:
            new = arith.normalize_iter_map_to_expr(total)
            envs = [dict(zip(dom, values)) for values in itertools.product(*(range(n) for n in dom.values()))]
            values = {value_of(index, env) for env in envs}
            assert [value_of(new, env) for env in envs] == [value_of(index, env) for env in envs]
            assert values == set(range(min(values), max(values) + 1)), (index, dom)
            accepted += 1
    assert accepted > 40


def test_bijective_needs_all_iterators() -> None:
    assert detect([x], {x: 4, y: 3}).indices
    assert not detect([x], {x: 4, y: 3}, level="bijective").indices
    assert not detect([x % 4], {x: 16}, level=arith.IterMapLevel.Bijective).indices
    assert detect([x % 4], {x: 16}).indices


def test_predicate_bounds_a_fused_iterator() -> None:
    result = detect([x * 16 + y], {x: 8, y: 16}, x * 16 + y < 100)
    (total,) = result.indices
    assert int(total.args[0].extent) == 100
    result = detect([(x * 16 + y) // 10, (x * 16 + y) % 10], {x: 8, y: 16}, x * 16 + y < 100)
    assert [int(i.args[0].extent) for i in result.indices] == [10, 10]


def test_predicate_bounds_some_digits_of_an_iterator() -> None:
    x = tir.Var("x", "int32")
    found = detect([x // 7, x % 7], {x: 14}, x % 7 < 6)
    assert [int(mark.args[0].extent) for mark in found.indices] == [2, 6]
    assert not detect([x // 7, x % 7 + 1, x % 7], {x: 14}, x % 7 < 6).indices


def test_terms_of_one_value_take_no_room() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    split = [(x // 16 + y) // 4, (x // 16 + y) % 4, x % 16]
    simple = arith.iter_map_simplify(split, {x: Range(0, 16), y: Range(0, 12)}, True, "surjective")
    assert [str(e) for e in simple] == ["y // 4", "y % 4", "x"]


def test_padding_is_reported() -> None:
    result = detect([x // 4, x % 4], {x: 10})
    assert result.indices
    assert not (isinstance(result.padding_predicate, tir.IntImm) and result.padding_predicate.value == 0)
    assert not detect([x // 4, x % 4], {x: 10}, level="bijective").indices


def test_simplify() -> None:
    fused = x * 8 + y
    domains = {x: Range(0, 4), y: Range(0, 8)}
    # Splits of a fused iterator stay splits of it; what was split and fused again is the iterator.
    for same in (fused // 16, fused % 16):
        assert_structural_equal(arith.iter_map_simplify([same], domains), [same])
    assert_structural_equal(arith.iter_map_simplify([fused // 4 * 4 + fused % 4], domains), [fused])
    # Without a map the indices stay, in the given form.
    assert_structural_equal(arith.iter_map_simplify([x * 4 + y], domains), [x * 4 + y])


def test_subspace_divide() -> None:
    result = arith.subspace_divide([x * 16 + y], {x: Range(0, 4), y: Range(0, 16)}, [y])
    (outer, inner), _ = result
    assert int(outer.extent) == 4 and int(inner.extent) == 16
    env = {x: 3, y: 5}
    assert value_of(arith.normalize_iter_map_to_expr(outer.source), env) == 3
    assert value_of(arith.normalize_iter_map_to_expr(inner.source), env) == 5
    assert arith.subspace_divide([x * 16 + y], {x: Range(0, 4), y: Range(0, 16)}, [x]) == []


def test_extents_of_a_division_are_products_from_the_innermost_part_outwards() -> None:
    n = tir.SizeVar("n", "int32")
    tiles = (n + 31) // 32
    dom = {x: Range(0, tiles), y: Range(0, 8), z: Range(0, 4)}
    [outer, inner], _ = arith.subspace_divide([x * 32 + y * 4 + z], dom, [z])
    assert deep_equal(outer.extent, tir.Mul(tir.const(8, "int32"), tiles)) and int(inner.extent) == 4


def test_subspace_divide_splits_a_fused_iterator() -> None:
    fused = x * 32 + y * 8 + z
    dom = {x: Range(0, 2), y: Range(0, 4), z: Range(0, 8)}
    pairs = arith.subspace_divide([fused // 4, fused % 4], dom, [y, z])
    extents = [(int(a.extent), int(b.extent)) for a, b in pairs[:-1]]
    assert extents == [(2, 8), (1, 4)]
    for values in itertools.product(range(2), range(4), range(8)):
        env = dict(zip((x, y, z), values))
        total = 32 * values[0] + 8 * values[1] + values[2]
        for (outer, inner), expected in zip(pairs[:-1], (total // 4, total % 4)):
            a = value_of(arith.normalize_iter_map_to_expr(outer.source), env)
            b = value_of(arith.normalize_iter_map_to_expr(inner.source), env)
            assert a * int(inner.extent) + b == expected


def test_inverse() -> None:
    a, b = tir.Var("a", "int32"), tir.Var("b", "int32")
    found = detect([x // 4, x % 4], {x: 16}).indices
    inverse = arith.inverse_affine_iter_map(found, [a, b])
    assert deep_equal(inverse[x], b + a * 4)
    found = detect([(x * 16 + y) // 8, (x * 16 + y) % 8], {x: 4, y: 16}).indices
    inverse = arith.inverse_affine_iter_map(found, [a, b])
    for i, j in itertools.product(range(4), range(16)):
        env = {a: (i * 16 + j) // 8, b: (i * 16 + j) % 8}
        assert value_of(inverse[x], env) == i and value_of(inverse[y], env) == j


def test_normalize_to_iter_sum() -> None:
    total = arith.normalize_to_iter_sum(y * 4 + x * 32 + 3, {x: Range(0, 4), y: Range(0, 8)})
    assert [int(s.scale) for s in total.args] == [32, 4]
    assert int(total.base) == 3


def test_region_of_a_falling_index() -> None:
    k = tir.Var("k", "int32")
    region = [Range.from_min_extent(31 - k, 1)]
    (found,) = arith.estimate_region_lower_bound(region, {k: Range(0, 32)}, True)
    assert (int(found.min_value), int(found.max_value)) == (0, 31)
    assert arith.estimate_region_lower_bound([Range.from_min_extent(31 - k * 2, 1)], {k: Range(0, 8)}, True) is None


def test_set_of_lanes_of_a_computed_vector() -> None:
    k = tir.Var("k", "int64")
    one = tir.const(1, "int64")
    index = tir.Add(tir.Broadcast(k * 8, 4), tir.Ramp(tir.const(0, "int64"), one, 4))
    from relaxish.arith.int_set import int_set_of_vector

    found = int_set_of_vector(index)
    analyzer = arith.Analyzer()
    assert analyzer.can_prove_equal(found.max_value - found.min_value, tir.const(3, "int64"))


@pytest.mark.parametrize("find", [arith.detect_iter_map, arith.iter_map_simplify])
def test_a_predicate_stays_inside(find):
    """The caller's analyzer learns the iterators' ranges, not what holds under the predicate alone."""
    analyzer = arith.Analyzer()
    find([x * 2 + y], {x: Range(0, 3), y: Range(0, 2)}, tir.And(x >= 1, x < 2), analyzer=analyzer)
    assert analyzer.simplify(x).same_as(x)
    assert not analyzer.can_prove(x < 2) and not analyzer.can_prove(x > 0)
    assert analyzer.can_prove(x < 3) and analyzer.can_prove(x >= 0)
