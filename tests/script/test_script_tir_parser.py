"""Parsing of tensor programs, and print-parse round trips."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxish import script, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.support.errors import DiagnosticError


def roundtrip(node: object) -> None:
    """Printing and parsing gives the same program."""
    assert_structural_equal(node, script.from_source(node.script()))  # type: ignore[attr-defined]


def test_block_attributes_and_buffers() -> None:
    @T.prim_func
    def func(a: T.handle, b: T.handle) -> None:
        n = T.int32()
        A = T.match_buffer(a, (n, 8), "int8", scope="global", offset_factor=1)
        B = T.match_buffer(b, (n, 8), strides=("s0", 1), elem_offset=T.int32())
        C = T.alloc_buffer((8,), "float16", scope="shared")
        for i in range(n):
            with T.block("outer"):
                v = T.axis.spatial(n, i)
                T.where(i < 4)
                T.reads(A[v, 0:8])
                T.writes(C[0:8])
                T.block_attr({"key": 1})
                D = T.match_buffer(A[v, 0:8], (8,), "int8", offset_factor=1)
                for j in T.vectorized(8):
                    with T.block("inner"):
                        w = T.axis.spatial(8, j)
                        C[w] = T.Cast("float16", D[w])

    roundtrip(func)
    assert func.body.block.alloc_buffers[0].scope() == "shared"


def test_statement_forms() -> None:
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), n: T.int32) -> T.int32:
        x: T.int32 = n + 1
        assert x > 0, "positive"
        with T.attr(0, "pragma", 1):
            B = T.decl_buffer((4,), "float32")
            B[0] = A[0]
        p = T.allocate([4], "int32", "local")
        P = T.decl_buffer((4,), "int32", data=p, scope="local")
        P[0] = 0
        while P[0] < 4:
            P[0] += 1
        if n > 2 or n < 1:
            A[0] = T.exp(A[1]) if n > 3 else A[2]
        elif not n == 1:
            A[0:4] = A[4:8]
        else:
            T.evaluate(T.call_extern("int32", "f", 1))
        return x

    roundtrip(func)


def test_launch_threads() -> None:
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 32)
        A[bx * 32 + tx] = 0.0

    roundtrip(func)


def test_closure_values_and_macros() -> None:
    size, kind = 8, "float16"

    @T.macro
    def fill(target, value):
        for i in range(size):
            target[i] = value

    @T.prim_func
    def func(A: T.Buffer((size,), kind)):
        fill(A, T.float16(1))

    @T.prim_func
    def plain(A: T.Buffer((8,), "float16")):
        for i in range(8):
            A[i] = T.float16(1)

    assert_structural_equal(func.without_attr("global_symbol"), plain.without_attr("global_symbol"))


def test_meta_values_unroll_while_parsing() -> None:
    @T.prim_func
    def func(A: T.Buffer((3,), "int32")):
        for i in [0, 1, 2]:
            A[i] = i

    assert len(func.body.seq) == 3


def test_cross_references() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def callee(n: T.int32):
            T.evaluate(n)

        @T.prim_func
        def main():
            Module.callee(3)

    roundtrip(Module)


def test_spans() -> None:
    @T.prim_func
    def func(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i + 1

    store = func.body.body
    assert store.span.line == store.value.span.line
    assert func.body.span.line == store.span.line - 1


def test_error_shows_the_place() -> None:
    with pytest.raises(DiagnosticError) as caught:
        script.from_source(
            "@T.prim_func\ndef f(A: T.Buffer((4,), 'int32')):\n    for i in range(4):\n        A[i] = B[i]\n"
        )
    text = str(caught.value)
    assert text.startswith("error: Undefined variable: B")
    assert "--> <str>:4:16" in text and "A[i] = B[i]" in text and "^" in text


@pytest.mark.parametrize(
    "body",
    ["x = y = 1", "for i in 3:\n        pass", "with 1:\n        pass", "A[0] = undefined", "T.where(True)"],
)
def test_bad_statements(body: str) -> None:
    with pytest.raises(DiagnosticError):
        script.from_source(f"@T.prim_func\ndef f(A: T.Buffer((4,), 'int32')):\n    {body}\n")


def test_missing_annotation() -> None:
    with pytest.raises(DiagnosticError, match="Type annotation required"):
        script.from_source("@T.prim_func\ndef f(A):\n    T.evaluate(0)\n")


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tir.PrimExpr:
    """Random integer expressions over x and y, built without folding."""
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.integers(0, 3))
        return [X, Y, tir.IntImm("int32", draw(st.integers(-9, 9))), tir.IntImm("int32", 1)][leaf]
    kind = draw(
        st.sampled_from([tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.Div, tir.Mod])
    )
    return kind(draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1)))


X, Y = tir.Var("x", "int32"), tir.Var("y", "int32")


@settings(max_examples=60, deadline=None)
@given(expressions())
def test_random_expressions_round_trip(expr: tir.PrimExpr) -> None:
    func = tir.PrimFunc([X, Y], tir.Evaluate(expr), attrs={"global_symbol": "f"})
    roundtrip(func)


def test_virtual_threads_of_any_dimension_survive_printing():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        for v in T.thread_binding(2, thread="vthread.x"):
            for i in range(2):
                with T.block():
                    T.reads()
                    T.writes(A[v * 2 + i])
                    A[v * 2 + i] = T.float32(1)

    lowered = tir.transform.LowerOpaqueBlock()(IRModule({"f": f}))["f"]
    assert lowered.body.attr_key == "virtual_thread"
    roundtrip(lowered)
