"""What tensor programs parse to: vectors, access regions, macros, metaprogramming, and where errors point."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.support.errors import DiagnosticError


def body_of(text: str, **names: Any) -> Any:
    """The body of a function of a float32[16] ``A``, int32[16] ``B`` and int32 ``n`` whose statements are given."""
    head = '@T.prim_func\ndef f(A: T.Buffer((16,)), B: T.Buffer((16,), "int32"), n: T.int32):\n'
    func = from_source(head + textwrap.indent(textwrap.dedent(text), "    "), {"T": T, **names}, trusted=bool(names))
    return func.body


def test_slices_are_vectors_where_values_are_meant() -> None:
    for right in ("A[4:8] + A[8:12]", "-A[4:8]", "T.exp(A[4:8])", "A[4:8]", "A[4:8] if n > 1 else A[0:4]"):
        store = body_of(f"A[0:4] = {right}")
        assert store.value.dtype == "float32x4", right
        assert isinstance(store.indices[0], tir.Ramp)
    assert body_of("A[0:8:2] = A[0:4] * 2.0").indices[0].stride.value == 2
    assert body_of("A[3:4] = 1.0").indices[0].value == 3


def test_slices_are_regions_where_regions_are_meant() -> None:
    block = body_of(
        """
        with T.block("outer"):
            with T.block("b"):
                T.reads(A[0:4], B[n])
                T.writes([A[4:8]])
                V = T.match_buffer(A[4:8], (4,), offset_factor=1)
                W = T.match_buffer(A[4:8])
                V[0] = W[1]
        """
    ).block.body.block
    assert [r.region[0].extent.value for r in (*block.reads, *block.writes)] == [4, 1, 4]
    assert [m.buffer.shape[0].value for m in block.match_buffers] == [4, 4]


def test_inferred_regions_leave_out_what_a_block_allocates() -> None:
    @T.prim_func
    def nested(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")) -> None:
        for i in range(4):
            with T.block("outer"):
                v = T.axis.spatial(4, i)
                kept = T.alloc_buffer((4,), "int32")
                with T.block("inner"):
                    passing = T.alloc_buffer((4,), "int32")
                    for k in range(4):
                        with T.block("load"):
                            w = T.axis.spatial(4, k)
                            passing[w] = A[v * 4 + w]
                    for k in range(4):
                        with T.block("store"):
                            w = T.axis.spatial(4, k)
                            kept[w] = passing[w]
                            C[v * 4 + w] = passing[w] + 1

    root = nested.body.block
    assert (root.reads, root.writes) == ((), ())
    outer = root.body.body.block
    assert [r.buffer.name for r in outer.reads] == ["A"]
    assert [r.buffer.name for r in outer.writes] == ["C"]
    inner = outer.body.block
    assert [r.buffer.name for r in inner.reads] == ["A"]
    assert [r.buffer.name for r in inner.writes] == ["kept", "C"]


def test_inferred_regions_follow_conditions() -> None:
    outer = body_of(
        """
        with T.block("root"):
            with T.block("branch"):
                for i in range(16):
                    if i < 8:
                        A[i] = 1.0
                    else:
                        B[i] = 1
            with T.block("choice"):
                for i in range(16):
                    B[i] = T.if_then_else(4 <= i and i < 6, T.Cast("int32", A[i]), 0)
        """
    ).block
    branch, choice = (r.block for r in outer.body)
    assert [(r.buffer.name, r.region[0].min.value, r.region[0].extent.value) for r in branch.writes] == [
        ("A", 0, 8), ("B", 8, 8),
    ]  # fmt: skip
    assert (choice.reads[0].region[0].min.value, choice.reads[0].region[0].extent.value) == (4, 2)


def test_the_outermost_block_keeps_no_regions() -> None:
    block = body_of('with T.block("only"):\n    A[n] = 1.0').block
    assert (block.name_hint, block.reads, block.writes) == ("only", (), ())


def test_pointer_masks_say_how_memory_is_accessed() -> None:
    inner = body_of(
        """
        with T.block("root"):
            with T.block("b"):
                T.evaluate(A.access_ptr("r"))
                T.evaluate(B.access_ptr("w"))
        """
    ).block.body.block
    assert [r.buffer.name for r in inner.reads] == ["A"]
    assert [r.buffer.name for r in inner.writes] == ["B"]
    with pytest.raises(DiagnosticError, match="Can not auto detect"):
        body_of('with T.block("root"):\n    with T.block("b"):\n        T.evaluate(A.access_ptr("rw"))')


def test_views_declared_in_the_body_count() -> None:
    @T.prim_func
    def viewed(p: T.handle("float32"), C: T.Buffer((16,), "float32")) -> None:
        D = T.decl_buffer((16,), data=p)
        for i in range(16):
            with T.block("copy"):
                v = T.axis.spatial(16, i)
                C[v] = D[v]

    block = viewed.body.block.body.body.body.block
    assert [r.buffer.name for r in block.reads] == ["D"]


def test_domains() -> None:
    block = body_of(
        """
        for i in range(16):
            with T.block("b"):
                a = T.axis.spatial((2, 6), 3)
                b = T.axis.spatial((n, n + 4), n)
                c = T.axis.spatial(T.int64(16), i)
                A[a] = 0.0
        """
    ).block.body.body.block
    assert [iv.dom.extent.value for iv in block.iter_vars] == [4, 4, 16]
    assert [iv.var.dtype for iv in block.iter_vars] == ["int32", "int32", "int64"]


def test_macros_see_names_of_definition_or_of_use() -> None:
    width = 3

    @T.macro
    def at_definition(A: Any) -> None:
        A[width] = 1.0

    @T.macro(hygienic=False)
    def at_use(A: Any) -> None:
        A[width] = 1.0

    @T.prim_func(private=True)
    def func(A: T.Buffer((16,))) -> None:
        for width in range(16):
            at_definition(A)
            at_use(A=A)

    first, second = func.body.body
    assert first.indices[0].value == 3
    assert second.indices[0].same_as(func.body.loop_var)


def test_macros_as_methods() -> None:
    class Staged:
        def __init__(self, like: Any) -> None:
            self.local = T.alloc_buffer(like.shape, like.dtype, scope="local")

        @T.macro
        def load(self, source: Any) -> None:
            for i in T.grid(*self.local.shape):
                self.local[i] = source[i]

    @T.prim_func(private=True)
    def func(A: T.Buffer((16,))) -> None:
        staged = T.meta_var(Staged(A))
        staged.load(A)
        staged.local[0] = 2.0

    assert func.body.block.alloc_buffers[0].scope() == "local"
    assert isinstance(func.body.block.body[0], tir.For)


def test_python_values_while_parsing() -> None:
    store = body_of(
        """
        buffers = [T.alloc_buffer((4,)) for _ in range(3)]
        taps = T.meta_var([A[2 * i] for i in range(3)])
        if flag:
            buffers[1][0] = taps[0] + taps[2] * scale(n)
        else:
            T.evaluate(undefined_here)
        """,
        flag=True,
        scale=lambda n: T.Cast("float32", n + 1),
    ).block.body
    assert store.buffer.name == "buffers_1"


def test_later_parameters_may_name_earlier_ones_in_modules() -> None:
    mod = from_source(
        """
        @I.ir_module
        class Module:
            @T.prim_func
            def copy(n: T.int32, A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")):
                for i in range(n):
                    B[i] = A[i]
        """
    )
    func = mod["copy"]
    assert func.buffer_map[func.params[1]].shape[0].same_as(func.params[0])


def test_call_without_arguments_of_a_sibling() -> None:
    @I.ir_module
    class Module:
        @T.prim_func
        def main() -> None:
            Module.helper()

        @T.prim_func
        def helper() -> None:
            T.evaluate(1)

    call = Module["main"].body.value
    assert isinstance(call, tir.Call)
    assert call.op.name_hint == "helper"
    assert_structural_equal(Module, from_source(Module.script()))


ERRORS = [
    ("T.evaluate(missing)", 0, "Undefined variable: missing"),
    ("for i in T.evaluate(0):\n    T.evaluate(1)", 0, "Expect the for loop to be one of the following"),
    ("with T.evaluate(0):\n    T.evaluate(1)", 0, "Invalid context expression"),
    ('with T.block("b") as x:\n    T.evaluate(1)', 0, "Do not know how to bind type"),
    ("return T.evaluate(0)", 0, "must be a PrimExpr"),
    ("a = b = 3", 0, "Consequential assignments"),
    ("x: n = 3\ny: 3 = 4", 1, "Annotation should be Var"),
    ("x = 1\nx = 2", 1, "Variable x already defined in current scope"),
    ("T.realize(A, 'local')", 0, "region"),
    ("T.where(n > 0)", 0, "outside of any T.block"),
    ("with T.block():\n    if n > 1:\n        T.reads(A[0])", 2, "at the top of a T.block"),
    ("with T.block():\n    T.reads(A[0])\n    T.reads(A[1])", 2, "Duplicate read region"),
    ("with T.block():\n    T.where(n > 1)\n    T.where(n > 2)", 2, "Duplicate block predicate"),
    ("with T.block():\n    v = T.axis.remap('T', [n])", 1, ""),
    ("for i in range(4):\n    with T.block():\n        v = T.axis.remap('S', [i + 1])", 2, "Only Var"),
    ("for i, j in range(4):\n    T.evaluate(i)", 0, ""),
    ("A[0, 1] = 1.0", 0, "1-dimensional"),
    ("A[0:4] = T.Broadcast(1.0, 8)", 0, "Incompatible types"),
    ("if 'text':\n    T.evaluate(0)", 0, "If condition must be a boolean expression"),
    ("T.func_attr({'a': 1})\nT.func_attr({'a': 2})", 1, "Duplicate prim func annotation"),
    ("T.no_such_name(1)", 0, "no_such_name"),
    ("try:\n    pass\nfinally:\n    pass", 0, "Try"),
    ("T.launch_thread(n, 4)", 0, "not an env_thread"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), ERRORS)
def test_errors_point_at_their_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        body_of(text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span.line == line + 3
    assert message in diagnostic.message
    rendered = str(caught.value)
    assert rendered.startswith(f"error: {diagnostic.message}")
    assert f"--> <str>:{line + 3}:" in rendered
    assert "^" in rendered
