"""The imperative builders: frames, names, results, misuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxish import relax, tir
from relaxish.interp import run_primfunc
from relaxish.ir import PrimType, Range, assert_structural_equal
from relaxish.script.ir_builder import IRBuilder
from relaxish.script.ir_builder import ir as I
from relaxish.script.ir_builder import relax as R
from relaxish.script.ir_builder import tir as T
from relaxish.support.errors import InternalError
from relaxish.tir import ir_builder as legacy


def built(make: Callable[[], Any]) -> Any:
    """What a builder makes of the calls in ``make``."""
    with IRBuilder() as ib:
        make()
    return ib.get()


def test_empty_function() -> None:
    def make() -> None:
        with T.prim_func():
            T.evaluate(0)

    assert_structural_equal(built(make), tir.PrimFunc([], tir.Evaluate(0), None, None, None))


def test_function_parts() -> None:
    def make() -> None:
        with T.prim_func():
            T.func_name("parts")
            n = T.arg("n", T.int64())
            A = T.arg("A", T.buffer((n, 4), "int8"))
            h = T.arg("h", T.handle())
            T.func_attr({"k": 1})
            T.func_attr({"l": "two"})
            T.func_ret(PrimType("int32"))
            B = T.match_buffer(h, (4,), "int8")
            T.buffer_store(B, A[0, 1], [2])

    func = built(make)
    assert [p.name for p in func.params] == ["n", "A_handle", "h"]
    assert dict(func.attrs) == {"k": 1, "l": "two", "global_symbol": "parts"}
    assert func.ret_type.dtype == "int32"
    assert func.buffer_map[func.params[1]].name == "A"


def test_no_ops_among_statements_vanish() -> None:
    def make() -> None:
        with T.serial(4) as i:
            T.evaluate(0)
            T.evaluate(i)
            T.evaluate(0)

    assert isinstance(built(make).body, tir.Evaluate)


def test_block_notes_what_is_still_to_detect() -> None:
    def make() -> None:
        with T.block("b"):
            T.evaluate(0)

    block = built(make).block
    assert dict(block.annotations) == {"tir.script_parsing_detect_access": 3}


def test_block_annotations_are_given_once() -> None:
    def make() -> None:
        with T.block("b"):
            T.reads()
            T.writes()
            T.block_attr({"a": {"x": 1}, "s": "t"})
            with pytest.raises(ValueError, match="Duplicate block annotations"):
                T.block_attr({"u": 1})

    assert set(built(make).block.annotations) == {"a", "s"}


def test_loops_and_domains() -> None:
    def make() -> None:
        with T.grid(8, T.int64(4)) as (i, j), T.block("b"):
            T.axis.remap("SR", [i, j])
            T.axis.spatial((1, 5), i)
            T.axis.reduce(Range(0, 3), 0)
            T.evaluate(0)

    loop = built(make)
    iters = loop.body.body.block.iter_vars
    assert [iv.var.dtype for iv in iters] == ["int32", "int64", "int32", "int32"]
    assert [iv.iter_type for iv in iters] == [0, 2, 0, 2]
    assert iters[2].dom.min.value == 1
    assert iters[2].dom.extent.value == 4


def test_memory_frames() -> None:
    def make() -> None:
        with T.allocate([4], "bool", "local") as p:
            assert p.type_annotation.element_type.dtype == "bool"
            with T.decl_buffer((4,), "bool") as D:
                T.buffer_store(D, True, [0])

    allocate = built(make)
    assert isinstance(allocate, tir.Allocate)
    assert isinstance(allocate.body, tir.Allocate)
    assert isinstance(allocate.body.body, tir.DeclBuffer)


def test_realize_needs_a_region() -> None:
    buffer = T.buffer((8, 8))

    def make() -> None:
        with T.realize(buffer[0:8, 2:4], "shared"):
            T.evaluate(1)

    attr = built(make)
    assert (attr.attr_key, attr.value.value) == ("realize_scope", "shared")
    with pytest.raises(TypeError, match="region"):
        T.realize(buffer, "shared")


def test_names() -> None:
    with IRBuilder() as ib:
        assert IRBuilder.current() is ib
        assert IRBuilder.is_in_scope()
        buffer = IRBuilder.name("B", T.buffer((4, 4), strides=["s", 1]))
        a, b = IRBuilder.name_many(["a", "b"], [T.int32(), T.float32()])
    assert not IRBuilder.is_in_scope()
    assert (buffer.name, buffer.data.name, buffer.strides[0].name, a.name, b.name) == ("B", "B", "B_s0", "a", "b")
    with pytest.raises(ValueError, match="Do not know how to name"):
        IRBuilder.name("x", tir.IntImm("int32", 3))


def test_misuse_of_the_builder() -> None:
    with pytest.raises(ValueError, match="No builder in current scope"):
        IRBuilder.current()
    with pytest.raises(IndexError):
        IRBuilder().get()
    ib = IRBuilder()
    ib.frames.append(T.serial(3))
    with pytest.raises(ValueError, match="frame"):
        ib.__enter__()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: T.func_name("f"), ValueError),
        (lambda: T.reads(), ValueError),
        (lambda: T.axis.spatial(4, 0), TypeError),
        (lambda: T.env_thread("threadIdx.x"), InternalError),
        (lambda: T.Then().__enter__(), ValueError),
        (lambda: R.func_name("f"), ValueError),
        (lambda: R.emit(relax.const(1)), ValueError),
        (lambda: R.output(), ValueError),
        (lambda: I.decl_function("f", tir.PrimFunc([], tir.Evaluate(0))), ValueError),
    ],
)
def test_calls_outside_of_their_frames(make: Callable[[], Any], error: type[Exception]) -> None:
    with IRBuilder(), pytest.raises(error):
        make()


def test_choice_needs_a_branch() -> None:
    with IRBuilder():
        with pytest.raises(InternalError), T.If(T.int32() > 0):
            pass


def test_duplicate_attributes() -> None:
    with IRBuilder(), T.prim_func(is_private=True):
        T.func_attr({"a": 1})
        with pytest.raises(ValueError, match='for key = "a"'):
            T.func_attr({"a": 2})
        with pytest.raises(ValueError, match="private function"):
            T.func_attr({"global_symbol": "f"})


def test_module_of_both_levels() -> None:
    def make() -> None:
        with I.ir_module():
            I.module_attrs({"n": 1})
            with T.prim_func():
                T.func_name("kernel")
                T.evaluate(0)
            with R.function():
                R.func_name("main")
                x = R.arg("x", relax.TensorStructInfo((4,), "float32"))
                y = IRBuilder.name("y", R.emit(R.add(x, x)))
                R.func_ret_value(y)

    mod = built(make)
    assert sorted(gv.name_hint for gv in mod.functions) == ["kernel", "main"]
    assert mod["main"].body.body.name_hint == "y"


def test_dataflow_and_choice() -> None:
    info = relax.TensorStructInfo((4,), "float32")

    def make() -> None:
        with R.function():
            R.func_name("f")
            x = R.arg("x", info)
            c = R.arg("c", relax.TensorStructInfo((), "bool"))
            with R.dataflow() as flow:
                inner = R.emit(R.add(x, x))
                R.output(inner)
            (inner,) = flow.output_vars
            with R.If(c) as choice:
                with R.Then():
                    IRBuilder.name("w", R.emit(R.add(inner, x)))
                with R.Else():
                    IRBuilder.name("w", R.emit(R.multiply(inner, x)))
            R.func_ret_value(choice.var)

    func = built(make)
    assert isinstance(func.body.blocks[0], relax.DataflowBlock)
    assert not isinstance(func.body.blocks[0].bindings[0].var, relax.DataflowVar)
    assert isinstance(func.body.blocks[1].bindings[0].value, relax.If)


def test_no_choice_in_dataflow() -> None:
    with IRBuilder(), pytest.raises(ValueError, match="inside a dataflow block"), R.function():
        c = R.arg("c", relax.TensorStructInfo((), "bool"))
        with R.dataflow(), R.If(c):
            pass


def test_older_builder() -> None:
    ib = legacy.create()
    A = tir.decl_buffer((8,), "int32", name="A")
    a = ib.buffer_ptr(A)
    with ib.for_range(0, 8) as i:
        with ib.if_scope(ib.likely(i % 2 == 0)):
            a[i] = i * 10
        with ib.else_scope():
            a[i] = a[i - 1] + 1
    total = ib.allocate("int32", (1,), name="total", scope="local")
    total[0] = 0
    with ib.while_loop(total[0] < 3):
        total[0] += 1
    twice = ib.let("twice", total[0] * 2)
    a[0] = twice
    handle = tir.Var("h", "handle")
    func = tir.PrimFunc([handle], ib.get(), buffer_map={handle: A})
    data = np.zeros(8, "int32")
    run_primfunc(func, data)
    assert data.tolist() == [6, 1, 20, 21, 40, 41, 60, 61]


def test_older_builder_by_position() -> None:
    ib = legacy.create()
    grid = ib.allocate("float32", (4, 8), name="grid")
    grid[13] = 1.0
    store = ib.get().body
    assert [i.value for i in store.indices] == [1, 5]
    vector = legacy.create()
    v = vector.pointer("float32x4", name="v")
    v[2] = tir.Broadcast(tir.const(1.0, "float32"), 4)
    assert vector.get().indices[0].value == 2


def test_misuse_of_the_older_builder() -> None:
    ib = legacy.create()
    with pytest.raises(RuntimeError):
        ib.else_scope()
    a = ib.pointer("float32", name="a")
    with pytest.raises(ValueError, match="content type"):
        a[0] = tir.const(1, "int32")
    scope = ib.for_range(0, 3)
    scope.__enter__()
    with pytest.raises(RuntimeError):
        ib.get()
