"""The exact forms that simplification is known to give, and the other analyses."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import TVMError, arith, tir
from relaxish.arith import build as B
from relaxish.ir import Range, structural_equal

x, y, z, n = (tir.Var(v, "int32") for v in ("x", "y", "z", "n"))
fld, flm = tir.floordiv, tir.floormod

FORMS = [
    (x + x, x * 2),
    (x * 4 + x, x * 5),
    ((x + y) - y, x),
    (1 + x, x + 1),
    (x * 2 + y * 2, (x + y) * 2),
    (tir.min(x + 1, x + 10), x + 1),
    (tir.max(x + 1, x + 10), x + 10),
    (tir.min(x, y) + tir.max(x, y), x + y),
    (fld(x, 4) * 4 + flm(x, 4), x),
    (flm(x * 8 + y, 8), flm(y, 8)),
    (fld(x, 12) % 2, fld(flm(x, 24), 12)),
    (x < x + 1, tir.const(True, "bool")),
    (x + 3 < y + 5, x < y + 2),
    (x * 2 < 9, x < 5),
    (tir.LE(x, x - 1), tir.const(False, "bool")),
    (tir.Not(x < y), tir.LE(y, x)),
    (tir.EQ(x - 3, 4), tir.EQ(x, 7)),
    (tir.all(x < 5, 7 < x), tir.const(False, "bool")),
    (tir.const(0, "int32") - x * -1, x),
]


@pytest.mark.parametrize("before, after", FORMS)
def test_form(before: Any, after: Any) -> None:
    result = arith.Analyzer().rewrite_simplify(before)
    other = arith.Analyzer().simplify(before)
    assert B.deep_equal(result, after) or B.deep_equal(other, after), f"{before} -> {result} / {other}"


def test_bounds_drop_division() -> None:
    analyzer = arith.Analyzer()
    analyzer.bind(y, Range(0, 8))
    assert analyzer.simplify(fld(x * 8 + y, 8)) is x
    assert analyzer.simplify(flm(x * 8 + y, 8)) is y
    assert analyzer.can_prove(y < 8) and not analyzer.can_prove(y < 7)


def test_constraints() -> None:
    analyzer = arith.Analyzer()
    with analyzer.constraint_scope(x < 10):
        assert analyzer.can_prove(x < 12)
        assert analyzer.const_int_bound(x).max_value == 9
    assert not analyzer.can_prove(x < 12)
    with analyzer.constraint_scope(tir.EQ(flm(x, 4), 2)):
        assert analyzer.modular_set(x + 1).base == 3
    with analyzer.constraint_scope(x < y):
        assert analyzer.can_prove(x < y + 1) and analyzer.can_prove(tir.LE(x, y))
    with analyzer.constraint_scope(tir.all(x < y, y < z + 2)):
        assert not analyzer.can_prove(x <= z)
        analyzer.enabled_extensions = arith.Extension.TransitivelyProveInequalities
        assert analyzer.can_prove(x <= z) and not analyzer.can_prove(x < z)


def test_float_division_by_a_constant() -> None:
    f = tir.Var("f", "float32")
    result = arith.Analyzer().simplify(f / tir.const(2.0, "float32"))
    assert isinstance(result, tir.Mul) and result.b.value == 0.5


def test_linear_forms() -> None:
    coeffs = arith.detect_linear_equation(x * 4 + y * n + 3, [x, y])
    assert int(coeffs[0]) == 4 and coeffs[1] is n and int(coeffs[2]) == 3
    assert arith.detect_linear_equation(x * x, [x]) == []
    low, high = arith.detect_clip_bound(tir.all(x >= 2, x < n), [x])
    assert int(low) == 2 and B.deep_equal(high, n - 1)


def test_deduce_bound() -> None:
    found = arith.deduce_bound(x, x * 4 + y < 16, {y: Range(0, 4)}, {y: Range(0, 4)})
    assert int(found.max_value) == 3 and found.min_value is arith.neg_inf()


def test_symbolic_proof() -> None:
    size = tir.SizeVar("n", "int32")
    analyzer = arith.Analyzer()
    analyzer.bind(x, Range(0, size))
    assert analyzer.can_prove(x < size, arith.ProofStrength.SYMBOLIC_BOUND)


def test_regions() -> None:
    dom = {x: Range(0, 4), y: Range(0, 8)}
    region = [Range.from_min_extent(x * 8 + y, tir.const(1, "int32"))]
    (box,) = arith.estimate_region_strict_bound(region, dom)
    assert int(box.min_value) == 0 and int(box.max_value) == 31
    region = [Range.from_min_extent(x + y, tir.const(2, "int32"))]
    (box,) = arith.estimate_region_strict_bound(region, dom) or []
    assert (int(box.min_value), int(box.max_value)) == (0, 11)  # the sums overlap and leave no gap
    (box,) = arith.estimate_region_upper_bound(region, dom)
    assert int(box.max_value) == 11


def test_solve_equations() -> None:
    result = arith.solve_linear_equations([tir.EQ(x + y, 10)], [x, y], {x: Range(0, 11), y: Range(0, 11)})
    assert len(result.dst.variables) == 1
    env = {result.dst.variables[0]: tir.const(3, "int32")}
    total = tir.stmt_functor.substitute(result.src_to_dst[x] + result.src_to_dst[y], env)
    assert int(arith.Analyzer().simplify(total)) == 10
    unsolvable = arith.solve_linear_equations([tir.EQ(x * 2, 5)], [x], {})
    assert len(unsolvable.dst.variables) == 0


def test_solve_inequalities() -> None:
    result = arith.solve_linear_inequalities([x >= 2, x + y < 8, y >= 0], [x, y], {})
    assert x in result.ranges
    assert int(result.ranges[y].min) == 0 and int(result.ranges[y].extent) == 6


def test_every_rule_compiles_and_knows_its_line() -> None:
    from relaxish.arith import rules_arith, rules_div, rules_logic, rules_minmax
    from relaxish.arith.rules import RuleTable

    count = 0
    for module in (rules_arith, rules_div, rules_logic, rules_minmax):
        with open(module.__file__, encoding="utf8") as source:
            lines = source.read().split("\n")
        for table in vars(module).values():
            if isinstance(table, RuleTable):
                table.compile()
                for rule in table.rules:
                    count += 1
                    assert rule.text in lines[rule.line - 1], (rule.text, rule.line)
    assert count > 400


@pytest.mark.parametrize(
    ("flag", "before", "after"),
    [
        (arith.Extension.ConvertBooleanToAndOfOrs, tir.all(tir.any(x < 10, tir.EQ(y, 5)), tir.any(x < 10, tir.NE(y, 7))),
         tir.any(x < 10, tir.EQ(y, 5))),
        (arith.Extension.ApplyConstraintsToBooleanBranches, tir.all(x < 10, tir.any(x < 20, y < 3)), x < 10),
    ],
)  # fmt: skip
def test_boolean_extensions(flag: arith.Extension, before: tir.PrimExpr, after: tir.PrimExpr) -> None:
    analyzer = arith.Analyzer()
    analyzer.enabled_extensions = flag
    assert structural_equal(analyzer.rewrite_simplify(before), after)


def test_comparison_of_product_and_sum() -> None:
    analyzer = arith.Analyzer()
    goal = (x + y) * 64 < x * y
    with analyzer.constraint_scope(tir.all(x >= 256, y >= 256)):
        assert not analyzer.can_prove(goal)
        analyzer.enabled_extensions = arith.Extension.ComparisonOfProductAndSum
        assert analyzer.can_prove(goal)


def test_vector_rules_use_lane_literals() -> None:
    base = tir.Var("b", "int64")
    vector = tir.Broadcast(base, 4) - tir.Ramp(base * 2, tir.const(1, "int64"), 4)
    assert arith.Analyzer().rewrite_simplify(vector).dtype == "int64x4"
    quotient = tir.Div(tir.Broadcast(x, 2), tir.Broadcast(y, 2))
    assert structural_equal(arith.Analyzer().rewrite_simplify(quotient), tir.Broadcast(tir.Div(x, y), 2))


def test_results_beyond_a_literal_are_folded_all_the_same() -> None:
    shifted = arith.Analyzer().simplify(
        tir.Call("uint64", "tir.shift_left", [tir.const(3, "uint64"), tir.const(62, "uint64")])
    )
    assert shifted.op.name == "tir.large_uint_imm"


def test_intervals_of_two_integer_types_unite() -> None:
    k = tir.Var("k", "int64")
    found = arith.union([arith.IntervalSet(x, x), arith.IntervalSet(k, k + 1)])
    assert found.min_value.dtype == found.max_value.dtype == "int64"


def test_casts_of_constants_and_division_by_zero() -> None:
    analyzer = arith.Analyzer()
    for number, truth in ((0.0, False), (0.25, True), (float("nan"), True)):
        assert analyzer.simplify(tir.Cast("bool", tir.FloatImm("float32", number))).value == truth
    x = tir.Var("x", "int32")
    for kind in (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod):
        for value in (x, tir.IntImm("int32", 7)):
            with pytest.raises(TVMError, match="zero"):
                analyzer.simplify(kind(value, tir.IntImm("int32", 0)))
