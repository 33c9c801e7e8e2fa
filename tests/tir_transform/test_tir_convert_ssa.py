"""ConvertSSA: one definition for each variable, over a whole module."""

from __future__ import annotations

from typing import Any

from relaxish import tir
from relaxish.ir import IRModule, Range, assert_structural_equal, post_order_visit
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.tir import transform


def convert(func: Any) -> Any:
    return transform.ConvertSSA()(IRModule({"main": func}))["main"]


def loops(func: Any) -> list[Any]:
    found: list[Any] = []
    post_order_visit(func.body, lambda n: found.append(n) if isinstance(n, tir.For) else None)
    return found


def store(buffer: Any, var: Any) -> Any:
    return tir.BufferStore(buffer, tir.FloatImm("float32", 1.0), [var])


def test_later_definitions_are_renamed() -> None:
    A, i = tir.decl_buffer((8,), "float32", "A"), tir.Var("i", "int32")
    loop = tir.For(i, 0, 8, 0, store(A, i))
    made = convert(tir.PrimFunc([A], tir.SeqStmt([loop, loop])))
    first, second = loops(made)
    assert first is loop and second.loop_var is not i and second.loop_var.name == "i"
    assert second.body.indices[0] is second.loop_var
    assert convert(made) is made


def test_nested_bindings() -> None:
    A, x = tir.decl_buffer((8,), "float32", "A"), tir.Var("x", "int32")
    inner = tir.LetStmt(x, x + 1, store(A, x))
    func = tir.PrimFunc([A], tir.LetStmt(x, 1, tir.SeqStmt([inner, store(A, x)])))

    @T.prim_func(private=True)
    def after(A: T.Buffer((8,), "float32")):
        x: T.int32 = 1
        with T.LetStmt(x + 1) as y:
            A[y] = T.float32(1)
        A[x] = T.float32(1)

    assert_structural_equal(convert(func), after)


def test_allocations_and_their_buffers() -> None:
    A = tir.decl_buffer((8,), "float32", "A")
    nest = tir.Allocate(A.data, "float32", [8], True, tir.DeclBuffer(A, store(A, 0)))
    made = convert(tir.PrimFunc([], tir.SeqStmt([nest, nest])))
    first, second = made.body.seq
    assert first is nest
    assert second.buffer_var is not A.data and second.body.buffer.data is second.buffer_var
    assert second.body.body.buffer is second.body.buffer


def test_functions_do_not_share_parameters() -> None:
    @T.prim_func(private=True)
    def func(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            A[i] = T.float32(0)

    @I.ir_module
    class After:
        @T.prim_func(private=True)
        def one(a: T.handle, n: T.int32):
            A = T.match_buffer(a, (n,), "float32")
            for i in range(n):
                A[i] = T.float32(0)

        @T.prim_func(private=True)
        def two(a: T.handle, n: T.int32):
            A = T.match_buffer(a, (n,), "float32")
            for i in range(n):
                A[i] = T.float32(0)

    made = transform.ConvertSSA()(IRModule({"one": func, "two": func}))
    assert_structural_equal(made, After)
    one, two = made["one"], made["two"]
    assert not any(a is b for a, b in zip(one.params, two.params))
    assert one.buffer_map[one.params[0]].data is not two.buffer_map[two.params[0]].data


def test_thread_axes_are_kept_within_a_function() -> None:
    A, tx = tir.decl_buffer((8,), "float32", "A"), tir.Var("tx", "int32")
    axis = tir.IterVar(Range(0, 8), tx, tir.IterVar.ThreadIndex, "threadIdx.x")
    launch = tir.AttrStmt(axis, "thread_extent", 8, store(A, tx))
    func = tir.PrimFunc([A], tir.SeqStmt([launch, launch]))
    assert convert(func) is func
    made = transform.ConvertSSA()(IRModule({"one": func, "two": func}))
    first, second = made["two"].body.seq
    assert first.node.var is second.node.var and first.node.var is not tx
    assert first.body.indices[0] is first.node.var


def test_attributes_name_the_loop_they_announce() -> None:
    A, i = tir.decl_buffer((8,), "float32", "A"), tir.Var("i", "int32")
    loop = tir.AttrStmt(i, "pragma_parallel_launch_point", 1, tir.For(i, 0, 8, 1, store(A, i)))
    first, second = convert(tir.PrimFunc([A], tir.SeqStmt([loop, loop]))).body.seq
    assert first is loop
    assert second.node is second.body.loop_var and second.node is not i


def test_blocks() -> None:
    A, v, i = tir.decl_buffer((8,), "float32", "A"), tir.Var("v", "int32"), tir.Var("i", "int32")
    region = tir.BufferRegion(A, [Range.from_min_extent(v, 1)])
    axis = tir.IterVar(Range(0, 8), v, tir.IterVar.DataPar)
    loop = tir.For(i, 0, 8, 0, tir.BlockRealize([i], True, tir.Block([axis], [], [region], "b", store(A, v))))
    first, second = convert(tir.PrimFunc([A], tir.SeqStmt([loop, loop]))).body.seq
    block = second.body.block
    assert first is loop and block.iter_vars[0].var is not v
    assert block.writes[0].region[0].min is block.iter_vars[0].var is block.body.indices[0]
