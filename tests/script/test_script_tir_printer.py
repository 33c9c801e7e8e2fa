"""Golden text of tensor programs."""

from __future__ import annotations

import pytest

from relaxish import script, tir
from relaxish.ir import assert_structural_equal
from relaxish.ir.expr import Range
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.script.printer import ObjectPath


@T.prim_func
def matmul(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    T.func_attr({"tir.noalias": True})
    for i, j, k in T.grid(16, 16, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


GOLDEN = """\
# from relaxish.script import tir as T

@T.prim_func
def matmul(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    T.func_attr({"tir.noalias": T.bool(True)})
    # with T.block("root"):
    for i, j, k in T.grid(16, 16, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0.0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"""


def test_matmul_text() -> None:
    assert matmul.script() == GOLDEN
    assert str(matmul) == GOLDEN


def test_no_sugar_spells_out_loops_and_root() -> None:
    text = matmul.script(syntax_sugar=False)
    assert "T.grid" not in text and "T.axis.remap" not in text
    assert 'with T.block("root"):' in text and "A: T.handle" not in text
    assert "A_handle: T.handle" in text and "T.match_buffer(A_handle, (16, 16))" in text


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda x, y: x + y * 2, "x + y * 2"),
        (lambda x, y: (x + y) * 2, "(x + y) * 2"),
        (lambda x, y: x - (y - 1), "x - (y - 1)"),
        (lambda x, y: x - y - 1, "x - y - 1"),
        (lambda x, y: x // 3 % y, "x // 3 % y"),
        (lambda x, y: tir.truncdiv(x, y), "T.Div(x, y)"),
        (lambda x, y: tir.truncmod(x, y), "T.truncmod(x, y)"),
        (lambda x, y: tir.Min(x, y), "T.min(x, y)"),
        (lambda x, y: tir.Add(tir.IntImm("int32", 1), tir.IntImm("int32", 2)), "T.Add(1, 2)"),
        (lambda x, y: tir.Cast("int64", x), 'T.Cast("int64", x)'),
        (lambda x, y: tir.And(x < y, tir.Not(x == 1)), "x < y and not x == 1"),
        (lambda x, y: tir.Select(x < y, x, y), "T.Select(x < y, x, y)"),
        (lambda x, y: tir.Ramp(x, 1, 4), "T.Ramp(x, 1, 4)"),
        (lambda x, y: tir.Broadcast(x, 4), "T.Broadcast(x, 4)"),
        (lambda x, y: tir.if_then_else(x < y, x, y), "T.if_then_else(x < y, x, y)"),
        (lambda x, y: tir.IntImm("int64", 5), "T.int64(5)"),
        (lambda x, y: tir.IntImm("bool", 1), "T.bool(True)"),
        (lambda x, y: tir.FloatImm("float16", 0.5), "T.float16(0.5)"),
        (lambda x, y: tir.FloatImm("float32", float("inf")), 'T.float32("inf")'),
        (lambda x, y: x >> 1, "T.shift_right(x, 1)"),
        (lambda x, y: x & y, "T.bitwise_and(x, y)"),
    ],
)
def test_expressions(build: object, text: str) -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert build(x, y).script() == text  # type: ignore[operator]


def test_free_names_are_declared() -> None:
    a = tir.decl_buffer((8,), "float16", "A")
    i = tir.Var("i", "int32")
    assert tir.BufferStore(a, tir.FloatImm("float16", 1.0), [i]).script() == (
        'i = T.int32()\nA = T.Buffer((8,), "float16")\nA[i] = T.float16(1.0)'
    ) or tir.BufferStore(a, tir.FloatImm("float16", 1.0), [i]).script() == (
        'A = T.Buffer((8,), "float16")\ni = T.int32()\nA[i] = T.float16(1.0)'
    )
    x = tir.Var("x", "int32")
    assert (x + 1).script(verbose_expr=True) == "x = T.int32()\nx + 1"


def test_names_are_made_unique() -> None:
    a, b = tir.Var("x", "int32"), tir.Var("x", "int32")
    assert (a + b).script() == "x + x_1"


def test_int_dtype_option() -> None:
    value = tir.IntImm("int64", 3)
    assert value.script(int_dtype="int64") == "3"
    assert tir.IntImm("int32", 3).script(int_dtype="int64") == "T.int32(3)"


def test_loop_kinds() -> None:
    @T.prim_func
    def loops(A: T.Buffer((8,), "int32")):
        for i in T.parallel(8):
            A[i] = 0
        for i in T.vectorized(2, 8):
            A[i] = 1
        for i in T.serial(8, annotations={"key": "value"}):
            A[i] = 2
        for i in T.thread_binding(8, thread="threadIdx.x"):
            A[i] = 3
        for i in range(1, 8):
            A[i] = 4

    text = loops.script()
    for line in (
        "for i in T.parallel(8):",
        "for i in T.vectorized(2, 8):",
        'for i in T.serial(8, annotations={"key": "value"}):',
        'for i in T.thread_binding(8, thread="threadIdx.x"):',
        "for i in range(1, 8):",
    ):
        assert line in text


def test_module_text() -> None:
    @I.ir_module
    class Module:
        @T.prim_func
        def zeta(A: T.Buffer((4,), "float32")):
            T.evaluate(0)

        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            Module.zeta(A.data)

    assert (
        Module.script()
        == """\
# from relaxish.script import ir as I
# from relaxish.script import tir as T

@I.ir_module
class Module:
    @T.prim_func
    def zeta(A: T.Buffer((4,), "float32")):
        T.evaluate(0)

    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        Module.zeta(A.data)"""
    )


def test_underline_by_path_and_object() -> None:
    store = matmul.body.block.body.body.body.body.block.body
    text = matmul.script(obj_to_underline=[store])
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "C[vi, vj] + A" in line)
    assert lines[at + 1].strip() == "^" * len(lines[at].strip())
    by_path = tir.Var("x", "int32") + 1
    assert by_path.script(path_to_underline=[ObjectPath.root().attr("b")]) == "x + 1\n    ^"


def test_annotate_object() -> None:
    loop = matmul.body.block.body
    text = matmul.script(obj_to_annotate={loop: "here"})
    assert "# here\n    for i, j, k" in text


def test_context_lines() -> None:
    store = matmul.body.block.body.body.body.body.block.body
    text = matmul.script(obj_to_underline=[store], num_context_lines=1)
    assert "lines skipped" in text


def test_range_and_index_map() -> None:
    assert Range(0, 10).script() == "I.Range(0, 10)"
    text = tir.IndexMap.from_func(lambda i, j: [i // 4, j], index_dtype="int32").script()
    assert text == "T.index_map(lambda i, j: (i // 4, j))"


def test_names_that_python_could_not_read_are_changed():
    names = [tir.Var(name, "int32") for name in ("for", "1st", "a b", "T")]
    total = names[0] + names[1] + names[2] + names[3]
    func = tir.PrimFunc(names, tir.Evaluate(total))
    text = func.script()
    assert "def main(for_1: T.int32, _1st: T.int32, a_b: T.int32, T_1: T.int32):" in text
    assert_structural_equal(func, script.from_source(text))
