"""What the analyzer remembers, and when it must not: results hold for one state of knowledge only."""

from __future__ import annotations

from relaxish import tir
from relaxish.arith import Analyzer
from relaxish.arith.sharing import Sharing
from relaxish.ir import Range, assert_structural_equal


def test_results_of_a_scope_end_with_it() -> None:
    x = tir.Var("x", "int32")
    analyzer = Analyzer()
    analyzer.bind(x, Range(0, 64))
    e = tir.FloorDiv(x, 8)
    assert analyzer.simplify(e) is e
    with analyzer.constraint_scope(x < 8):
        assert_structural_equal(analyzer.simplify(e), tir.IntImm("int32", 0))
        assert analyzer.const_int_bound(e).max_value == 0
    assert analyzer.simplify(e) is e
    assert analyzer.const_int_bound(e).max_value == 7


def test_what_is_bound_within_a_scope_is_known_after_it() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    analyzer = Analyzer()
    e = tir.FloorMod(y, 4)
    assert analyzer.simplify(e) is e
    with analyzer.constraint_scope(x < 8):
        analyzer.bind(y, Range(0, 4))
    assert analyzer.simplify(e) is y
    with analyzer.constraint_scope(x < 8):
        analyzer.unbind(y)
    assert analyzer.simplify(e) is e


def test_scopes_within_scopes() -> None:
    x = tir.Var("x", "int32")
    analyzer = Analyzer()
    e = tir.Min(x, 5)
    with analyzer.constraint_scope(x < 8):
        assert analyzer.simplify(e) is e
        with analyzer.constraint_scope(x < 3):
            assert analyzer.simplify(e) is x
        assert analyzer.simplify(e) is e
        with analyzer.constraint_scope(x > 6):
            assert_structural_equal(analyzer.simplify(e), tir.IntImm("int32", 5))
    assert analyzer.simplify(e) is e


def test_equal_expressions_become_one_object() -> None:
    x, share = tir.Var("x", "int32"), Sharing()
    buffer = tir.decl_buffer((64,), "float32")

    def load() -> tir.PrimExpr:
        return tir.Cast("float16", buffer[tir.Select(tir.Not(x < 3), x * 2 + 1, x)])

    e = load() + tir.exp(load())
    shared = share(e)
    assert shared.a is shared.b.args[0]
    assert share(load()) is shared.a
    assert_structural_equal(shared, e)


def test_other_types_variables_and_buffers_are_not_mixed_up() -> None:
    x, share = tir.Var("x", "int32"), Sharing()
    assert share(x + 1) is not share(tir.Var("x", "int32") + 1)
    assert share(tir.IntImm("int32", 1)) is not share(tir.IntImm("int64", 1))
    first, second = tir.decl_buffer((8,), name="B"), tir.decl_buffer((8,), name="B")
    assert share(first[x]) is not share(second[x])
    assert share(tir.Cast("int64", x)) is not share(tir.Cast("int16", x))
