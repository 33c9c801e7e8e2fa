"""Definitions and uses: what ``verify_well_formed`` and ``verify_memory`` refuse."""

from __future__ import annotations

import pytest

import relaxish
from relaxish import IRModule, tir
from relaxish.ir import Range
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir.analysis import verify_memory, verify_well_formed

NOP = tir.Evaluate(0)


def loop(var: tir.Var, body: tir.Stmt) -> tir.For:
    return tir.For(var, 0, 4, tir.ForKind.SERIAL, body)


def refused(func: object, text: str) -> None:
    assert not verify_well_formed(func, assert_mode=False)
    with pytest.raises(ValueError, match=text):
        verify_well_formed(func)


def test_undefined_variable() -> None:
    refused(tir.PrimFunc([], tir.Evaluate(tir.Var("x"))), "Invalid use of undefined variable x")


def test_use_after_the_scope_names_the_former_definition() -> None:
    i = tir.Var("i")
    body = tir.SeqStmt([loop(i, tir.Evaluate(i)), tir.Evaluate(i)])
    refused(tir.PrimFunc([], body), "undefined variable i.*previously defined")


def test_definitions_are_unique() -> None:
    i = tir.Var("i")
    refused(tir.PrimFunc([], loop(i, loop(i, NOP))), "multiple nested definitions of variable i")
    refused(tir.PrimFunc([], tir.SeqStmt([loop(i, NOP), loop(i, NOP)])), "multiple definitions of variable i")
    func = tir.PrimFunc([], loop(i, tir.Evaluate(i)))
    assert verify_well_formed(func)
    refused(IRModule({"f": func, "g": func}), "multiple definitions of variable i")


def test_blocks_do_not_look_through_to_loops() -> None:
    @T.prim_func(check_well_formed=False)
    def func(A: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("inner"):
                vi = T.axis.spatial(4, i)
                A[vi, j] = 0.0

    refused(func, 'Loop iterator var j is defined outside of any block.*"inner"')


def test_opaque_blocks_may_use_loops() -> None:
    @T.prim_func
    def func(A: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("opaque"):
                A[i, j] = 0.0

    assert verify_well_formed(func)


def test_shape_variables_are_defined_by_the_first_buffer() -> None:
    @T.prim_func
    def func(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n + 1,), "float32")
        B[0] = A[0]

    assert verify_well_formed(func)
    n = tir.Var("n")
    lonely = tir.decl_buffer((n * 2,), "float32", name="A")
    refused(tir.PrimFunc([lonely], NOP), "undefined variable n")


def test_declared_buffers_use_their_pointer() -> None:
    view = tir.decl_buffer((4,), "float32", name="view")
    refused(tir.PrimFunc([], tir.DeclBuffer(view, NOP)), "undefined variable view")
    owned = tir.Allocate(view.data, "float32", [4], True, tir.DeclBuffer(view, NOP))
    assert verify_well_formed(tir.PrimFunc([], owned))


def launch(var: tir.Var, tag: str, body: tir.Stmt) -> tir.Stmt:
    axis = tir.IterVar(Range(0, 32), var, tir.IterVar.ThreadIndex, tag)
    return tir.AttrStmt(axis, "thread_extent", 32, body)


def test_thread_variables() -> None:
    tx, other = tir.Var("tx"), tir.Var("other")
    again = tir.SeqStmt([launch(tx, "threadIdx.x", tir.Evaluate(tx)), launch(tx, "threadIdx.x", tir.Evaluate(tx))])
    assert verify_well_formed(tir.PrimFunc([], again))
    beside = tir.SeqStmt([launch(tx, "threadIdx.x", NOP), launch(other, "threadIdx.x", NOP)])
    assert verify_well_formed(tir.PrimFunc([], beside))
    inside = launch(tx, "threadIdx.x", launch(other, "threadIdx.x", NOP))
    refused(tir.PrimFunc([], inside), "multiple distinct TIR variables")
    refused(IRModule({"f": tir.PrimFunc([], again), "g": tir.PrimFunc([], again)}), "multiple definitions")


def test_memory_of_devices() -> None:
    @T.prim_func
    def host_store(A: T.Buffer((4,), "float32")):
        A[0] = 0.0

    with pytest.raises(ValueError, match="target"):
        verify_memory(host_store)
    assert verify_memory(host_store.with_attr("target", Target("llvm")))
    on_gpu = host_store.with_attr("target", Target("cuda"))
    assert not verify_memory(on_gpu)
    assert verify_memory(on_gpu.with_attr("calling_conv", 2))
    with pytest.raises(RuntimeError):
        relaxish.tir.transform.VerifyMemory()(IRModule({"f": on_gpu}))
