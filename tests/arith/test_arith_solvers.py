"""Solving for variables: bounds, equations, inequalities, narrowed predicates, touched domains."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import arith, tir
from relaxish.arith import IntervalSet
from relaxish.arith.int_set import neg_inf, pos_inf
from relaxish.error import InternalError
from relaxish.ir import Range, assert_structural_equal

u, v, w, n = (tir.Var(name, "int32") for name in ("u", "v", "w", "n"))
fld, flm = tir.floordiv, tir.floormod


def num(value: int) -> Any:
    return tir.const(value, "int32")


def same(a: Any, b: Any) -> bool:
    return arith.Analyzer().can_prove_equal(a, num(b) if isinstance(b, int) else b)


DEDUCED = [
    (fld(u, 6) > 2, None, 18, None),
    (fld(u, 6) <= 2, None, None, 17),
    (v * 3 + fld(u, 6) < 50, (1, 5), None, 209),
    (u * 5 - v >= 11, (1, 5), 4, None),
    (tir.EQ(u * 3, -12), None, -4, -4),
]


@pytest.mark.parametrize(("cond", "dom", "low", "high"), DEDUCED)
def test_deduce_bound(cond: Any, dom: Any, low: Any, high: Any) -> None:
    relax = {} if dom is None else {v: IntervalSet(*dom)}
    found = arith.deduce_bound(u, cond, relax, relax)
    assert found.min_value.same_as(neg_inf()) if low is None else same(found.min_value, low)
    assert found.max_value.same_as(pos_inf()) if high is None else same(found.max_value, high)


@pytest.mark.parametrize("cond", [
    u + v, u * 2 - u > v, tir.max(u, 4) < 9, flm(u, 5) < 2, tir.EQ(fld(u, 5), 2), tir.NE(u, 3), v < 3,
    tir.EQ(u * 4, 6), tir.EQ(u, v),
])  # fmt: skip
def test_deduce_bound_gives_up(cond: Any) -> None:
    dom = {v: IntervalSet(1, 4)}
    assert arith.deduce_bound(u, cond, dom, dom).is_nothing()


def test_deduce_bound_by_a_factor_of_known_sign() -> None:
    found = arith.deduce_bound(u, v * u + w >= 0, {v: IntervalSet(-4, -2)}, {})
    assert same(found.max_value, fld(0 - w, v))
    assert arith.deduce_bound(u, v * u + w >= 0, {}, {}).is_nothing()


def test_clip_bounds_open_conditions_first() -> None:
    found = arith.detect_clip_bound(tir.all(tir.min(u, v) > 2, tir.Not(u > 8)), [u, v])
    assert [None if e is None else int(e) for e in found] == [3, 8, 3, None]


def test_equations_name_the_free_variable() -> None:
    found = arith.solve_linear_equations([tir.EQ(u + v, 0)], [u, v], {u: Range(-4, 6), v: Range(0, 9)})
    (free,) = found.dst.variables
    assert_structural_equal(found.src_to_dst[u], free)
    assert_structural_equal(found.src_to_dst[v], free * -1)
    assert (int(found.dst.ranges[free].min), int(found.dst.ranges[free].extent)) == (-8, 9)
    (relation,) = found.dst.relations
    assert_structural_equal(relation, tir.LE(num(-4), free))


def test_equations_without_solution() -> None:
    found = arith.solve_linear_equations([tir.EQ(u + v, 1), tir.EQ(u - v, 0)], [u, v])
    assert not found.src_to_dst and not found.dst_to_src and not found.dst.variables
    assert_structural_equal(found.dst.relations[0], tir.const(False, "bool"))


def test_equations_have_only_integer_solutions() -> None:
    found = arith.solve_linear_equations([tir.EQ(u * 4 + v * 6, n * 2)], [u, v])
    total = found.src_to_dst[u] * 4 + found.src_to_dst[v] * 6
    assert same(total, n * 2) and not found.dst.relations


def test_inequalities_bound_each_variable() -> None:
    ranges = {u: Range(-50, 50), v: Range(0, 7)}
    problem = [u + v <= 12, u - v >= 4]
    conditions = arith._ffi_api.SolveInequalitiesAsCondition([u, v], ranges, problem)
    for found, expected in zip(conditions, (u >= v + 4, u <= 12 - v, v >= 0, v <= 4), strict=True):
        assert_structural_equal(found, expected)
    solved = arith.solve_linear_inequalities(problem, [u, v], ranges)
    assert_structural_equal(solved.ranges[u].min, v + 4)
    assert (int(solved.ranges[u].extent), int(solved.ranges[v].extent)) == (9, 5)
    moved = arith.solve_linear_inequalities(problem, [u, v], ranges, deskew_range=True)
    new_u, new_v = moved.dst.variables
    assert_structural_equal(moved.dst.relations[0], new_v * 2 + new_u <= 8)
    assert_structural_equal(moved.dst_to_src[new_u], u - v - 4)


def test_inequalities_find_values_and_contradictions() -> None:
    solved = arith.solve_linear_inequalities([u + v >= 9, u - v >= 3, u <= 6], [u, v], deskew_range=True)
    assert (int(solved.src_to_dst[u]), int(solved.src_to_dst[v])) == (6, 3) and not solved.dst.variables
    solved = arith.solve_linear_inequalities([u > 5, u * 2 < 9], [u], {u: Range(-9, 9)})
    assert not solved.variables
    assert_structural_equal(solved.relations[0], tir.const(False, "bool"))


NO = tir.const(False, "bool")
BUFFER = tir.decl_buffer([9], "int32", name="buffer")
NARROWED = [
    (u < n, u < 2),
    (u > n, u > 5),
    (tir.EQ(u, n), tir.all(u <= 2, tir.LE(num(5), u))),
    (tir.Not(u <= n), tir.Not(u <= 5)),
    (u - n < 9, tir.Sub(u, num(2)) < 9),
    (n * -3 < u, tir.LT(tir.Mul(num(2), num(-3)), u)),
    (tir.EQ(flm(u, 4), n), NO),
    (tir.Or(tir.BufferLoad(BUFFER, [u]) > 0, u <= n), tir.Or(NO, u <= 2)),
]


@pytest.mark.parametrize(("before", "after"), NARROWED)
def test_narrowed_predicates(before: Any, after: Any) -> None:
    assert_structural_equal(arith.narrow_predicate_expression(before, {n: Range(2, 6)}), after)


def test_domain_touched() -> None:
    source, target = tir.decl_buffer((9, n), name="source"), tir.decl_buffer((9, n), name="target")
    value = tir.BufferLoad(source, [u + 2, v - 1]) + tir.BufferLoad(target, [u - 1, v])
    inner = tir.For(v, 0, n, tir.ForKind.SERIAL, tir.BufferStore(target, value, [u, v]))
    loops = tir.For(u, 0, 7, tir.ForKind.SERIAL, inner)
    rows, columns = arith.domain_touched(loops, source, True, False)
    assert (int(rows.min), int(rows.extent), int(columns.min)) == (2, 7, -1)
    assert columns.extent is n
    rows, _ = arith.domain_touched(loops, target, True, True)
    assert (int(rows.min), int(rows.extent)) == (-1, 8)
    assert arith.domain_touched(loops, source, False, True) == []


def test_contradicting_updates_raise() -> None:
    analyzer = arith.Analyzer()
    analyzer.update(u, arith.ConstIntBound(0, 4))
    with pytest.raises(InternalError, match="different const bound"):
        analyzer.update(u, arith.ConstIntBound(0, 5))
    analyzer.update(u, arith.ConstIntBound(0, 5), override=True)
    assert analyzer.const_int_bound(u).max_value == 5


def test_union_of_open_intervals() -> None:
    low, high = IntervalSet(neg_inf(), num(3)), IntervalSet(num(4), pos_inf())
    assert arith.union_lower_bound([low, high]).is_everything()
    lanes = tir.Ramp(num(3), num(2), tir.vscale() * 4)
    found = arith.IntSet.vector(lanes)
    assert int(found.min_value) == 3 and found.max_value.same_as(pos_inf())


def test_region_of_an_imperfect_tile() -> None:
    point = w * 6 + u
    region = [Range.from_min_extent(point, 1)]
    (box,) = arith.estimate_region_lower_bound(region, {u: Range(0, 8)}, tir.all(point >= 2, point < 60))
    for tile, low, high in ((0, 2, 7), (5, 30, 37), (9, 54, 59)):
        values = {w: num(tile)}
        ends = (tir.stmt_functor.substitute(e, values) for e in (box.min_value, box.max_value))
        assert [int(arith.Analyzer().simplify(e)) for e in ends] == [low, high]


def test_inner_space_of_a_split_fusion_forgets_the_outer_iterator() -> None:
    fused = v * 6 + w
    bindings = [u * 4 + fld(fused, 3), flm(fused, 3) * 5 + n]
    domain = {u: Range(0, 3), v: Range(0, 2), w: Range(0, 6), n: Range(0, 5)}
    first, second, _ = arith.subspace_divide(bindings, domain, [w, n])
    plain = arith.normalize_iter_map_to_expr
    assert_structural_equal(plain(first[0].source), u * 2 + v)
    assert_structural_equal(plain(second[1].source), flm(w, 3) * 5 + n)


def test_remainders_that_conditions_state() -> None:
    analyzer = arith.Analyzer()

    def known(e: Any) -> tuple[int, int]:
        found = analyzer.modular_set(e)
        return found.coeff, found.base

    with analyzer.constraint_scope(tir.EQ(tir.truncmod(u, 5), 3)):
        assert known(u + 1) == (5, 4)
        with analyzer.constraint_scope(tir.EQ(flm(u, 4), 2)):
            assert known(u) == (20, 18)
    with analyzer.constraint_scope(tir.EQ(flm(u, -3), -1)):
        assert known(u) == (3, 2)
    assert known(u) == (1, 0)
    assert known(tir.Let(u, v * 6, u + 1)) == (6, 1)
