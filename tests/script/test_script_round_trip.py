"""Random programs print and parse back to themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from relaxish import tir
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source

DTYPES = ("int32", "int64", "float32", "float16", "bool", "uint8")
N, M = tir.Var("n", "int32"), tir.Var("m", "int32")
BUFFER = tir.decl_buffer((16, 16), "float32", "A")
OTHER = tir.decl_buffer((16,), "int32", "B")


def ints(variables: list[Any]) -> st.SearchStrategy[Any]:
    """Index expressions."""
    leaves = st.one_of(st.sampled_from(variables), st.integers(-3, 40).map(tir.const))
    binary = (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod, tir.Min, tir.Max)

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.tuples(st.sampled_from(binary), inner, inner).map(lambda t: t[0](t[1], t[2]))
        chosen = st.tuples(inner, inner, inner).map(lambda t: tir.Select(tir.LT(t[0], t[1]), t[1], t[2]))
        return st.one_of(pairs, chosen, inner.map(lambda e: tir.BufferLoad(OTHER, [e])))

    return st.recursive(leaves, extend, max_leaves=6)


def floats(variables: list[Any]) -> st.SearchStrategy[Any]:
    """Values of the float buffer."""
    index = ints(variables)
    numbers = st.floats(width=32, allow_nan=False).map(lambda v: tir.FloatImm("float32", v))
    loads = st.tuples(index, index).map(lambda t: tir.BufferLoad(BUFFER, list(t)))
    leaves = st.one_of(numbers, loads, index.map(lambda e: tir.Cast("float32", e)))

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.tuples(st.sampled_from((tir.Add, tir.Mul, tir.Max)), inner, inner).map(lambda t: t[0](t[1], t[2]))
        return st.one_of(pairs, inner.map(tir.exp), st.tuples(index, inner, inner).map(
            lambda t: tir.Call("float32", "tir.if_then_else", [tir.GE(t[0], 0), t[1], t[2]])
        ))  # fmt: skip

    return st.recursive(leaves, extend, max_leaves=4)


@st.composite
def statements(draw: Any, variables: list[Any], depth: int = 2) -> Any:
    """Loops, conditions, lets and stores over the given variables."""
    kind = draw(st.sampled_from(["store", "for", "if", "let", "seq", "while"] if depth else ["store"]))
    if kind == "store":
        indices = [draw(ints(variables)), draw(ints(variables))]
        return tir.BufferStore(BUFFER, draw(floats(variables)), indices)
    if kind == "for":
        var = tir.Var(draw(st.sampled_from("ijk")), "int32")
        loop_kind = draw(st.sampled_from([tir.ForKind.SERIAL, tir.ForKind.PARALLEL, tir.ForKind.UNROLLED]))
        low = draw(st.sampled_from([0, 2]))
        notes = draw(st.sampled_from([{}, {"pragma_x": 1}]))
        return tir.For(var, low, draw(st.integers(1, 9)), loop_kind, draw(statements([*variables, var], depth - 1)),
                       None, notes)  # fmt: skip
    if kind == "if":
        other = draw(st.one_of(st.none(), statements(variables, depth - 1)))
        condition = tir.LT(draw(ints(variables)), draw(ints(variables)))
        return tir.IfThenElse(condition, draw(statements(variables, depth - 1)), other)
    if kind == "let":
        var = tir.Var("x", "int32")
        return tir.LetStmt(var, draw(ints(variables)), draw(statements([*variables, var], depth - 1)))
    if kind == "while":
        return tir.While(tir.LT(draw(ints(variables)), 5), draw(statements(variables, depth - 1)))
    return tir.SeqStmt([draw(statements(variables, depth - 1)) for _ in range(2)])


@settings(max_examples=60, deadline=None)
@given(statements([N, M]))
def test_print_then_parse(body: Any) -> None:
    func = tir.PrimFunc([BUFFER, OTHER, N, M], body).with_attr("global_symbol", "main")
    assert_structural_equal(from_source(func.script(), check_well_formed=False), func)
    assert_structural_equal(from_source(func.script(syntax_sugar=False), check_well_formed=False), func)
