"""CommonSubexprElimTIR: which expressions are shared, where, and under which names."""

from __future__ import annotations

from typing import Any

from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.script import tir as T
from relaxish.tir import transform
from relaxish.tir.transform.simplify import common_subexpr


def check(before: Any, after: Any, **options: Any) -> None:
    made = transform.CommonSubexprElimTIR(**options)(IRModule({"main": before}))["main"]
    assert_structural_equal(made, after)


def test_larger_expressions_are_shared_first() -> None:
    @T.prim_func(private=True)
    def before(B: T.Buffer((50,), "int32"), p: T.int32, x: T.int32, y: T.int32, z: T.int32):
        B[p] = x + y
        B[p + 1] = x + y + z
        B[p + 2] = x + y + z

    @T.prim_func(private=True)
    def after(B: T.Buffer((50,), "int32"), p: T.int32, x: T.int32, y: T.int32, z: T.int32):
        second: T.int32 = x + y
        first: T.int32 = second + z
        B[p] = second
        B[p + 1] = first
        B[p + 2] = first

    check(before, after)
    names = [v.name for v in _lets(before)]
    assert names == ["cse_var_2", "cse_var_1"]


def _lets(func: Any) -> list[Any]:
    body = transform.CommonSubexprElimTIR()(IRModule({"main": func}))["main"].body
    out = []
    while isinstance(body, tir.LetStmt):
        out.append(body.var)
        body = body.body
    return out


def test_names_in_use_are_skipped() -> None:
    @T.prim_func(private=True)
    def func(B: T.Buffer((50,), "int32"), cse_var_1: T.int32, y: T.int32):
        B[cse_var_1 * y] = cse_var_1 * y

    assert [v.name for v in _lets(func)] == ["cse_var_2"]


def test_what_only_a_loop_computes_stays_inside() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((50,), "int32"), B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        for j in range(5):
            B[j] = (x + y) * j
            A[j * 4 + 1] = j * 4 + 1 + (x + y)

    @T.prim_func(private=True)
    def after(A: T.Buffer((50,), "int32"), B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        for j in range(5):
            common: T.int32 = x + y
            inner: T.int32 = j * 4 + 1
            B[j] = common * j
            A[inner] = inner + common

    check(before, after)


def test_both_branches_share() -> None:
    @T.prim_func(private=True)
    def before(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        if x > 3:
            B[0] = x * y
        else:
            B[1] = x - y
            B[2] = x - y
            B[3] = x * y

    @T.prim_func(private=True)
    def after(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        product: T.int32 = x * y
        if x > 3:
            B[0] = product
        else:
            difference: T.int32 = x - y
            B[1] = difference
            B[2] = difference
            B[3] = product

    check(before, after)


def test_a_condition_alone_shares_in_an_expression() -> None:
    x, y, v = (tir.Var(n, "int32") for n in ("x", "y", "v"))
    B = tir.decl_buffer((8,), "int32", "B")
    store = tir.BufferStore(B, 1, [0])
    before = tir.PrimFunc([B, x, y], tir.IfThenElse((x + y) * 2 + (x + y) > 3, store))
    after = tir.PrimFunc([B, x, y], tir.IfThenElse(tir.Let(v, x + y, v * 2 + v > 3), store))
    check(before, after)


def test_existing_bindings_are_used() -> None:
    @T.prim_func(private=True)
    def before(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        known: T.int32 = x + y
        B[0] = known * 2 + (x + y)

    @T.prim_func(private=True)
    def after(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        known: T.int32 = x + y
        B[0] = known * 2 + known

    # The binding and its use are two computations, so a new variable serves both.
    @T.prim_func(private=True)
    def after_all(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        shared: T.int32 = x + y
        known: T.int32 = shared
        B[0] = known * 2 + shared

    check(before, after_all)
    check(after, after)


def test_thread_axes_loads_and_calls_are_not_shared() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        B[tx * 4 + 1] = A[tx * 4 + 1] + T.exp(A[0]) + T.exp(A[0])

    check(func, func)


def test_equivalent_terms() -> None:
    @T.prim_func(private=True)
    def before(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32, z: T.int32):
        B[0] = x * (y + z)
        B[1] = x * y + x * z

    @T.prim_func(private=True)
    def after(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32, z: T.int32):
        shared: T.int32 = x * (y + z)
        B[0] = shared
        B[1] = shared

    check(before, after, identify_equiv_terms=True)
    check(before, before)
    check(after, after, enable_cse_tir=False)
    with PassContext(config={"tir.disable_cse_tir": True}):
        check(before, before, identify_equiv_terms=True)


def test_a_variable_may_hold_what_depends_on_a_thread() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4096,), "int32")):
        tx = T.launch_thread("threadIdx.x", 32)
        place: T.int32 = tx * 4
        A[tx * 4] = 0
        A[tx * 4 + 1] = tx * 4

    @T.prim_func(private=True)
    def after(A: T.Buffer((4096,), "int32")):
        tx = T.launch_thread("threadIdx.x", 32)
        place: T.int32 = tx * 4
        A[place] = 0
        A[place + 1] = place

    check(before, after)


def test_expressions_of_threads_are_left_but_not_their_parts() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4096,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        A[tx * 4 + n * 3] = n
        A[tx * 2 + n * 3 + 1] = n

    @T.prim_func(private=True)
    def after(A: T.Buffer((4096,), "int32"), n: T.int32):
        shared: T.int32 = n * 3
        tx = T.launch_thread("threadIdx.x", 32)
        A[tx * 4 + shared] = n
        A[tx * 2 + shared + 1] = n

    check(before, after)


def test_more_can_be_shared_where_more_is_known() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4096,), "int32"), n: T.int32):
        A[0] = n
        given: T.int32 = A[n]
        A[given * n] = 1
        for i in range(4):
            A[given * n + i * 2] = i * 2

    @T.prim_func(private=True)
    def after(A: T.Buffer((4096,), "int32"), n: T.int32):
        A[0] = n
        given: T.int32 = A[n]
        A[given * n] = 1
        for i in range(4):
            shared: T.int32 = i * 2
            A[given * n + shared] = shared

    check(before, after)


def test_statements_without_loops_are_looked_at_once(monkeypatch: Any) -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((4096,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 32)
        for i in T.unroll(64):
            A[tx * 64 + i] = A[tx * 64 + i + n] + i

    flat = transform.UnrollLoop()(transform.FlattenBuffer()(IRModule({"main": func})))
    rounds = []
    once = common_subexpr._Eliminate._round
    monkeypatch.setattr(common_subexpr._Eliminate, "_round", lambda *args: (rounds.append(1), once(*args))[1])
    transform.CommonSubexprElimTIR()(flat)
    assert len(rounds) < 8
