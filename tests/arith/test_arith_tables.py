"""Exact forms: what the rewrite and the canonical simplifier make of single expressions."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import arith, te, tir
from relaxish.arith import ConstIntBound, Extension
from relaxish.ir import Range, assert_structural_equal

p, q, r, s = (tir.Var(n, "int32") for n in "pqrs")
a, b, c = (tir.Var(n, "bool") for n in "abc")
fld, flm, tdiv, tmod = tir.floordiv, tir.floormod, tir.truncdiv, tir.truncmod
EQ, NE, LT, LE, And, Or = tir.EQ, tir.NE, tir.LT, tir.LE, tir.And, tir.Or
ramp, wide = tir.Ramp, tir.Broadcast


def num(value: int) -> Any:
    return tir.const(value, "int32")


def as_expected(value: Any, before: Any) -> Any:
    return tir.const(value, before.dtype) if isinstance(value, (int, float)) else value


REWRITE = [
    # remainders by two
    (flm(p + 3, 2) + flm(p, 2), 1),
    (fld(p + 7, 2) - fld(p - 4, 2), flm(p, 2) + 5),
    (fld(p, 2) - fld(p - 3, 2), flm(p, 2) * -1 + 2),
    (fld(flm(p, 2) + 1, 2), flm(p, 2)),
    (fld(p, 2) + flm(p, 2), fld(p + 1, 2)),
    (fld(p + 1, 2) - flm(p, 2), fld(p, 2)),
    # differences
    (p - q * 5, p + q * -5),
    (p - (q + 3), p - q + -3),
    (fld(p - flm(p, -6), 6) * 6, p - flm(p, -6)),
    # quotients of sums
    (fld(p * 6 + q + r, 3), p * 2 + fld(q + r, 3)),
    (fld(p * 6 - q + r, 3), p * 2 + fld(r - q, 3)),
    (fld(p * 10 + 49, 20), fld(p, 2) + 2),
    (fld(p * 12, p * 4), 3),
    (flm(p * 7, p * 3), p),
    (flm(p - flm(p, 9), 9), 0),
    # vectors
    (flm(ramp(p * 6 + 1, 11, 4), wide(num(6), 4)), flm(ramp(1, 11, 4), wide(num(6), 4))),
    (fld(ramp(p * 6 + 1, 1, 5), wide(num(6), 5)), wide(p, 5)),
    (ramp(p, 1, tir.vscale() * 4) + wide(q, tir.vscale() * 4), ramp(p + q, 1, tir.vscale() * 4)),
    # comparisons
    (fld(p, 6) * 6 >= p, EQ(flm(p, 6), 0)),
    (p * 6 < q * 9, p * 2 < q * 3),
    (p * 4 <= q * 8, p <= q * 2),
    (LT(p, 7 + q), p - q < 7),
    (p - q < 0, p - q < 0),
    (EQ(p + q, p), EQ(p + q, p)),
    # conditions on a quotient and a remainder
    (And(EQ(fld(p, 6), 2), EQ(flm(p, 6), 5)), EQ(p, 17)),
    (And(LE(num(0), p - q * 7), p - q * 7 < 7), EQ(q, fld(p, 7))),
    (And(p < 28, flm(p, 7) < 3), And(p < 24, flm(p, 7) < 3)),
    (And(p <= 26, flm(p, 7) < 3), And(p < 24, flm(p, 7) < 3)),
    (And(p < 23, flm(p, 7) < 3), And(p < 23, flm(p, 7) < 3)),
    (And(EQ(fld(p, 9), -2), flm(p, 9) < 4), And(LE(num(-18), p), p < -14)),
    (And(EQ(fld(p, 9), 2), LT(num(4), flm(p, 9))), And(LT(num(22), p), p < 27)),
    (And(a, And(b, c)), And(And(a, b), c)),
    (Or(a, Or(b, c)), Or(Or(a, b), c)),
    (Or(EQ(q, p), p < q), LE(p, q)),
    (Or(NE(p, 4), NE(p, 9)), True),
    # what the table leaves alone
    (And(p < 4, p < 9), And(p < 4, p < 9)),
    (And(a, a), And(a, a)),
    # calls
    (tir.if_then_else(p < 9, tir.if_then_else(q < 3, r, 2), 2), tir.if_then_else(And(p < 9, q < 3), r, 2)),
    (tir.if_then_else(p < 9, q, q), tir.if_then_else(p < 9, q, q)),
    (tir.call_intrin("int32", "tir.clz", tir.IntImm("int32", 19)), 27),
    (tir.call_intrin("int32", "tir.clz", tir.IntImm("int64", 0)), 64),
    (tir.Let(p, q, p + 2), q + 2),
    (tir.Let(p, q + 1, p + 2), tir.Let(p, q + 1, p + 2)),
]


@pytest.mark.parametrize(("before", "after"), REWRITE)
def test_rewrite(before: Any, after: Any) -> None:
    assert_structural_equal(arith.Analyzer().rewrite_simplify(before), as_expected(after, before))


GIVEN = [
    (fld(p * 8 + q + r, 16), fld(p, 2), tir.all(q >= 0, q < 4, r >= 0, r < 4)),
    (fld(p * q * 4 + r, q * 4), p + fld(r, q * 4), q >= 0),
    (flm(p * q * 4 + r, q * 4), flm(r, q * 4), q >= 0),
    (tdiv(p * 6 - q + r, 3), p * 2 + tdiv(r - q, 3), tir.all(p >= 0, q <= 0, r >= 0)),
    (tmod(ramp(p * 6 + 1, 1, 5), wide(num(6), 5)), ramp(1, 1, 5), p >= 0),
    (tir.min(tdiv(p + 6, 7) * 7, tir.max(p, 7)), tir.max(p, 7), p > 0),
    (p < q + 2, True, p < q),
    (NE(p, q), True, p < q),
    (p < q, True, tir.all(p <= q, NE(p, q))),
    (p * q <= 0, True, tir.all(p >= 0, q <= 0)),
]


@pytest.mark.parametrize(("before", "after", "given"), GIVEN)
def test_rewrite_under_a_condition(before: Any, after: Any, given: Any) -> None:
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(given):
        assert_structural_equal(analyzer.rewrite_simplify(before), as_expected(after, before))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "int64", "float32"])
def test_cancellation_holds_for_all_types(dtype: str) -> None:
    v = tir.Var("v", dtype)
    simplify = arith.Analyzer().rewrite_simplify
    assert_structural_equal(simplify(tir.Sub(v, v)), tir.const(0, dtype))
    assert_structural_equal(simplify(tir.EQ(v, v)), tir.const(True, "bool"))
    assert_structural_equal(simplify(tir.NE(v, v)), tir.const(False, "bool"))


def test_chains_of_inequalities_need_the_extension() -> None:
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(tir.all(p + 2 < q, q + 3 <= r, r < s)):
        assert not analyzer.can_prove(p + 7 <= s)
        analyzer.enabled_extensions = Extension.TransitivelyProveInequalities
        assert analyzer.can_prove(p + 7 <= s) and not analyzer.can_prove(p + 8 <= s)


def test_ends_of_a_symbolic_range_are_known() -> None:
    analyzer = arith.Analyzer()
    analyzer.bind(p, Range(0, q))
    assert analyzer.can_prove(p < q) and analyzer.can_prove(p * 4 < q * 4)
    analyzer.unbind(p)
    assert not analyzer.can_prove(p < q)


@pytest.mark.parametrize(("claim", "given"), [
    (p * q < (p + q) * 512, tir.all(p > 0, q > 0, p < 512)),
    (p * q * 16 < (q + p) * 8192, tir.all(p > 0, q > 0, p < 1024, q < 1024)),
    ((p + q) * 16 < p * q, tir.all(p >= 64, q >= 64)),
])  # fmt: skip
def test_products_and_sums_compare(claim: Any, given: Any) -> None:
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(given):
        assert not analyzer.can_prove(claim)
        analyzer.enabled_extensions = Extension.ComparisonOfProductAndSum
        assert_structural_equal(analyzer.rewrite_simplify(claim), tir.const(True, "bool"))


def test_counters() -> None:
    analyzer = arith.Analyzer()
    analyzer.rewrite_simplify(p + q - q)
    stats = analyzer.rewrite_simplify_stats
    assert stats.rewrites_performed >= 1 and stats.nodes_visited >= 3 and stats.rewrites_attempted >= 1
    analyzer.reset_rewrite_simplify_stats()
    assert analyzer.rewrite_simplify_stats.nodes_visited == 0


CANONICAL = [
    (tmod(p + q + p + q * 3, 2), 0),
    (tmod(p * -1, 3), tmod(p, -3) * -1),
    (flm(p * 24 * p, p), 0),
    (flm(r * p * 24 * (p * q), p * 9 * r), flm(p * q * 8, 3) * (p * r * 3)),
    (fld(p * 2 * p * r, 6 * p * p * p), fld(r, p * 3)),
    (tdiv(p * (2 * q) * 5, 5 * q * r), tdiv(p * 2, r)),
    (tir.Cast("int64", p + q + 1) - tir.Cast("int64", p), tir.Cast("int64", q) + tir.const(1, "int64")),
    (EQ(te.min_value("int32") - p, 0), EQ(p, te.min_value("int32"))),
]


@pytest.mark.parametrize(("before", "after"), CANONICAL)
def test_canonical(before: Any, after: Any) -> None:
    assert_structural_equal(arith.Analyzer().canonical_simplify(before), as_expected(after, before))


def test_casts_to_narrower_types_need_bounds() -> None:
    wide_p, wide_q = tir.Var("p", "int64"), tir.Var("q", "int64")
    before = tir.Cast("int32", wide_p + wide_q + 1) - tir.Cast("int32", wide_p)
    assert_structural_equal(arith.Analyzer().canonical_simplify(before), before)
    analyzer = arith.Analyzer()
    analyzer.update(wide_p, ConstIntBound(0, 9))
    analyzer.update(wide_q, ConstIntBound(0, 9))
    assert_structural_equal(analyzer.canonical_simplify(before), tir.Cast("int32", wide_q) + 1)


def test_reductions_drop_unused_components() -> None:
    both = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda t0, t1: (tir.const(0, t0), tir.const(1, t1)))
    k = te.reduce_axis((0, 6), name="k")
    data = te.placeholder((6,), name="data")
    simplify = arith.Analyzer().canonical_simplify
    assert_structural_equal(simplify(both((data[k], data[5 - k]), k)[0]), te.sum(data[k], k))
    assert_structural_equal(simplify(te.sum(data[2], [])), data[2])
    clipped = te.sum(tir.Select(k.var < 6, k.var, 0), k)
    assert_structural_equal(simplify(clipped), te.sum(k.var, k))


def test_data_of_float_types_may_be_nan() -> None:
    """What holds for all numbers but not for NaN and infinities is left alone where memory decides."""
    data = tir.decl_buffer((4,), "float32", "data")
    a, b = data[0], data[1]
    simplify = arith.Analyzer().rewrite_simplify
    kept = [
        tir.EQ(a, a), tir.NE(a, a), tir.LE(a, a), tir.Sub(a, a), tir.Sub(tir.Add(a, b), b), tir.Not(tir.LT(a, b)),
        tir.Or(tir.LT(a, b), tir.LE(b, a)), tir.Or(tir.LT(a, b), tir.LT(b, a)),
        tir.Mul(a, tir.const(0.0, "float32")),
    ]  # fmt: skip
    for expr in kept:
        assert_structural_equal(simplify(expr), expr)
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(tir.Not(tir.LT(a, b))):
        assert_structural_equal(analyzer.rewrite_simplify(tir.LE(b, a)), tir.LE(b, a))
