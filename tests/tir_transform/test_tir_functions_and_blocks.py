"""Passes over whole functions and blocks: targets, entries, flat buffers, opaque blocks, swizzled memory, hoisting."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import transform
from relaxish.tir.transform import HoistedConditionals


def apply(a_pass: Any, func: Any) -> Any:
    return a_pass(IRModule({"main": func}))["main"]


@I.ir_module
class TwoFunctions:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32")):
        A[0] = T.float32(0)

    @T.prim_func(private=True)
    def helper(A: T.Buffer((8,), "float32")):
        A[0] = T.float32(1)


def test_bind_target() -> None:
    target = Target("cuda", host="llvm")
    made = transform.BindTarget(target)(TwoFunctions)
    assert str(made["main"].attrs["target"]) == str(target)
    assert str(made["helper"].attrs["target"]) == str(target.without_host())
    own = TwoFunctions["main"].with_attr("target", Target("cuda -arch=sm_75"))
    kept = apply(transform.BindTarget(target), own).attrs["target"]
    assert kept.host.kind.name == "llvm" and kept.attrs["arch"] == "sm_75"
    host = TwoFunctions["helper"].with_attr("tir.is_host_func", True)
    attrs = apply(transform.BindTarget(target), host).attrs
    assert attrs["target"].kind.name == attrs["target"].host.kind.name == "llvm"
    assert "tir.is_host_func" not in attrs


def test_annotate_entry() -> None:
    made = transform.AnnotateEntryFunc()(TwoFunctions)
    assert made["main"].attrs["tir.is_entry_func"]
    assert "tir.is_entry_func" not in (made["helper"].attrs or {})
    alone = transform.AnnotateEntryFunc()(IRModule({"helper": TwoFunctions["helper"]}))
    assert alone["helper"].attrs["tir.is_entry_func"]
    public = {n: TwoFunctions["main"].with_attr("global_symbol", n) for n in ("one", "two")}
    both = transform.AnnotateEntryFunc()(IRModule(public))
    assert all("tir.is_entry_func" not in f.attrs for f in both.functions.values())


def test_block_variables_are_unknown_outside() -> None:
    @T.prim_func(private=True, check_well_formed=False)
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.where(vi < 6)
                A[vi] = T.float32(1)

    with pytest.raises(ValueError, match="Variable vi occurs in the predicate"):
        apply(transform.ConvertBlocksToOpaque(), func)


def test_flatten_separates_axes_and_keeps_truth_in_bytes() -> None:
    @T.prim_func(private=True)
    def before(C: T.Buffer((16, 8), "bool"), d: T.handle):
        D = T.match_buffer(d, (16, 8, 4), "float32", axis_separators=[1])
        for i, j in T.grid(16, 8):
            E = T.decl_buffer((2, 3), "bool")
            E[1, 2] = C[i, j]
            C[i, j] = E[1, 2] and D[i, j, 1] > T.float32(0)

    @T.prim_func(private=True)
    def after(C: T.Buffer((16, 8), "bool"), d: T.handle):
        D = T.match_buffer(d, (16, 8, 4), "float32", axis_separators=[1])
        C1 = T.Buffer((128,), "int8", data=C.data)
        D1 = T.Buffer((16, 32), "float32", data=D.data, axis_separators=[1])
        for i, j in T.grid(16, 8):
            E = T.decl_buffer((6,), "int8")
            E[5] = T.Cast("int8", T.Cast("bool", C1[i * 8 + j]))
            C1[i * 8 + j] = T.Cast("int8", T.Cast("bool", E[5]) and D1[i, j * 4 + 1] > T.float32(0))

    assert_structural_equal(apply(transform.FlattenBuffer(), before), after)


def test_flatten_normalizes_indices_as_maps_of_the_loops() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 8), "float32"), W: T.Buffer((18, 10), "float32")):
        for f in range(128):
            A[f // 8, f % 8] = W[f // 8, f % 8]
        for i0, i1 in T.grid(3, 50):
            if i0 * 50 + i1 < 128:
                A[(i0 * 50 + i1) // 8, (i0 * 50 + i1) % 8] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16, 8), "float32"), W: T.Buffer((18, 10), "float32")):
        A1 = T.Buffer((128,), "float32", data=A.data)
        W1 = T.Buffer((180,), "float32", data=W.data)
        for f in range(128):
            A1[f] = W1[f // 8 * 10 + f % 8]
        for i0, i1 in T.grid(3, 50):
            if i0 * 50 + i1 < 128:
                A1[i0 * 50 + i1] = T.float32(1)

    assert_structural_equal(apply(transform.FlattenBuffer(), before), after)


@pytest.mark.parametrize(("mark", "width", "turn"), [("g2s_A", 64, 1), (1, 64, 1), (True, 32, 2)])
def test_permuted_layout(mark: Any, width: int, turn: int) -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64, width), "float16")):
        with T.block("root"):
            S = T.alloc_buffer((64, width), "float16", scope="shared")
            for i, j, v in T.grid(64, width // 8, 8):
                with T.block("copy"):
                    T.reads(A[i, j * 8 + v])
                    T.writes(S[i, j * 8 + v])
                    T.block_attr({"permuted_layout": mark})
                    S[i, j * 8 + v] = A[i, j * 8 + v]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64, width), "float16")):
        with T.block("root"):
            S = T.alloc_buffer((64, width), "float16", scope="shared")
            for i, j, v in T.grid(64, width // 8, 8):
                with T.block("copy"):
                    T.reads(A[i, j * 8 + v])
                    T.writes(S[i, j * 8 + v])
                    S[i, T.bitwise_xor(j, i % 8 // turn if turn > 1 else i % 8) * 8 + v] = A[i, j * 8 + v]

    assert_structural_equal(apply(transform.InjectPermutedLayout(), before), after)


@pytest.mark.parametrize(("mark", "width", "message"), [([1], 64, "Invalid permuted"), (1, 48, "divisible by 32")])
def test_permuted_layout_errors(mark: Any, width: int, message: str) -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((64, width), "float16", scope="shared")):
        with T.block("b"):
            T.block_attr({"permuted_layout": mark})
            A[0, 0] = T.float16(0)

    with pytest.raises(ValueError, match=message):
        apply(transform.InjectPermutedLayout(), func)


def test_permuted_layout_off() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((64, 64), "float16", scope="shared")):
        with T.block("b"):
            T.block_attr({"permuted_layout": ""})
            A[0, 0] = T.float16(0)

    assert apply(transform.InjectPermutedLayout(), func) is func


def test_hoisting_out_of_thread_axes() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", 16)
        for _ in range(4):
            if n > 3:
                A[bx] = T.float32(1)

    @T.prim_func(private=True)
    def inside(A: T.Buffer((16,), "float32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", 16)
        if 3 < n:
            for _ in range(4):
                A[bx] = T.float32(1)

    assert_structural_equal(apply(transform.HoistIfThenElse(), before), inside)
    with PassContext(config={"tir.HoistIfThenElse": {"support_block_scope_hosting": True}}):
        outside = apply(transform.HoistIfThenElse(), before)
        assert isinstance(outside.body, tir.IfThenElse)
        assert_structural_equal(apply(transform.HoistIfThenElse("basic"), before), inside)


@pytest.mark.parametrize("on_threads", [False, True])
def test_hoisting_conditions_on_thread_axes(on_threads: bool) -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 4), "float32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 4)
        for i in range(4):
            if bx * 4 + tx < n:
                A[bx * 4 + tx, i] = T.float32(1)

    @T.prim_func(private=True)
    def hoisted(A: T.Buffer((16, 4), "float32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 4)
        if bx * 4 + tx < n:
            for i in range(4):
                A[bx * 4 + tx, i] = T.float32(1)

    chosen = HoistedConditionals.IfElseStmt | (HoistedConditionals.UsingBlockVar if on_threads else 0)
    settings = {
        "tir.HoistIfThenElse": {"support_block_scope_hosting": on_threads},
        "tir.HoistExpression": {"hoisted_conditionals": int(chosen)},
    }
    expected = hoisted if on_threads else before
    with PassContext(config=settings):
        for made in (transform.HoistIfThenElse(), transform.HoistExpression()):
            assert_structural_equal(apply(made, before), expected)
        assert_structural_equal(apply(transform.HoistIfThenElse("basic"), before), before)
    assert_structural_equal(apply(transform.HoistExpression(), before), before)


def test_bound_checks_compare_as_64_bits() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "float32"), i: T.int32):
        with T.attr(A.data, "buffer_bound", T.tvm_tuple(16)):
            A[i] = B[i]

    made = apply(transform.InstrumentBoundCheckers(), before)
    guard = made.body.body
    assert str(guard.condition) == ('T.Cast("int64", i) >= T.int64(0) and T.Cast("int64", i) < T.Cast("int64", 16)')
    assert isinstance(guard.else_case.body, tir.Evaluate) and guard.else_case.message.value == "OUT OF THE BOUNDS"


def test_virtual_threads_write_parts_of_their_own() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((2,), "int32")):
        v = T.env_thread("vthread")
        with T.launch_thread(v, 2):
            B_data = T.allocate([4], "int32", "shared")
            B = T.Buffer((4,), "int32", data=B_data, scope="shared")
            B[0:4] = A[v * 4 : v * 4 + 4]
            C[v] = B[3]

    @T.prim_func(private=True)
    def after(A: T.Buffer((8,), "int32"), C: T.Buffer((2,), "int32")):
        B_data = T.allocate([8], "int32", "shared")
        B = T.Buffer((16,), "int32", data=B_data, scope="shared")
        B[T.Mul(0, 4) : T.Mul(0, 4) + 4] = A[T.Mul(0, 4) : T.Mul(0, 4) + 4]
        B[T.Mul(1, 4) : T.Mul(1, 4) + 4] = A[T.Mul(1, 4) : T.Mul(1, 4) + 4]
        C[0] = B[T.Add(T.Mul(0, 4), 3)]
        C[1] = B[T.Add(T.Mul(1, 4), 3)]

    assert_structural_equal(apply(transform.InjectVirtualThread(), before), after)


def test_predicated_32_bit_loads() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int32):
        L = T.decl_buffer((4,), "float32", scope="local")
        for i in range(4):
            L[i] = T.if_then_else(i < n, A[i * 4], T.float32(0))

    made = apply(transform.InjectPTXLDG32(), before)
    assert [made.body.dtype, made.body.body.dtype, made.body.body.body.dtype] == ["bool", "int32", "float32"]
    stores = made.body.body.body.body.body.body.seq
    assert [str(s.indices[0]) for s in stores[:3]] == ["0", "1", "0"]
    assert [str(s.value) for s in stores[:3]] == ["i * 4", "i", "i < n"]
    value, load = stores[3:]
    assert str(value.value) == "T.float32(0.0)" and isinstance(value.indices[0], tir.BufferLoad)
    assert load.value.op.name == "tir.ptx_ldg32" and load.value.args[3].indices[0].value == 1
    assert apply(transform.InjectPTXLDG32(False), before) is before
