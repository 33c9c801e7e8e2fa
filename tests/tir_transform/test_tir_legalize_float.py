"""Legalization of narrow floats: computing wide, storing as unsigned integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import interp, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import transform
from relaxish.testing import emulate_cuda
from relaxish.tir.transform.numerics.dtype_conversion import convert_float
from relaxish.tir.transform.numerics.exact_float8 import convert_exactly


def apply(a_pass: Any, func: Any) -> Any:
    return a_pass(IRModule({"main": func}))["main"]


def wide(bits: Any) -> Any:
    return T.reinterpret("float32", T.shift_left(T.Cast("uint32", bits), T.uint32(16)))


def narrow(value: Any) -> Any:
    bits = T.reinterpret("uint32", value)
    odd = T.bitwise_and(T.shift_right(bits, T.uint32(16)), T.uint32(1))
    return T.Cast("uint16", T.shift_right(bits + (odd + T.uint32(32767)), T.uint32(16)))


@T.prim_func(private=True)
def narrow_program(a: T.handle("bfloat16"), b: T.handle("bfloat16"), d: T.handle("bfloat16")):
    A = T.decl_buffer((32,), "bfloat16", data=a)
    B = T.decl_buffer((32,), "bfloat16", data=b)
    D = T.decl_buffer((32,), "bfloat16", data=d)
    C = T.decl_buffer((32,), "bfloat16")
    for i in range(32):
        C[i] = A[i] * B[i]
        D[i] = T.sqrt(C[i])


@T.prim_func(private=True)
def computed_program(a: T.handle("bfloat16"), b: T.handle("bfloat16"), d: T.handle("bfloat16")):
    A = T.decl_buffer((32,), "bfloat16", data=a)
    B = T.decl_buffer((32,), "bfloat16", data=b)
    D = T.decl_buffer((32,), "bfloat16", data=d)
    C = T.decl_buffer((32,), "float32")
    for i in range(32):
        C[i] = wide(T.reinterpret("uint16", A[i])) * wide(T.reinterpret("uint16", B[i]))
        D[i] = T.reinterpret("bfloat16", narrow(T.sqrt(C[i])))


@T.prim_func(private=True)
def stored_program(a: T.handle("uint16"), b: T.handle("uint16"), d: T.handle("uint16")):
    A = T.decl_buffer((32,), "uint16", data=a)
    B = T.decl_buffer((32,), "uint16", data=b)
    D = T.decl_buffer((32,), "uint16", data=d)
    C = T.decl_buffer((32,), "float32")
    for i in range(32):
        C[i] = wide(A[i]) * wide(B[i])
        D[i] = narrow(T.sqrt(C[i]))


def test_bf16_compute_promotes_values_and_local_memory() -> None:
    assert_structural_equal(apply(transform.BF16ComputeLegalize(), narrow_program), computed_program)


def test_bf16_storage_becomes_uint16() -> None:
    assert_structural_equal(apply(transform.BF16StorageLegalize(), computed_program), stored_program)


def test_native_devices_keep_bfloat16() -> None:
    func = narrow_program.with_attr("target", Target("cuda -arch=sm_86"))
    assert apply(transform.BF16ComputeLegalize(), func) is func
    assert apply(transform.BF16StorageLegalize(), func) is func
    old = narrow_program.with_attr("target", Target("cuda -arch=sm_75"))
    assert_structural_equal(apply(transform.BF16ComputeLegalize(), old).body, computed_program.body, True)


def test_copies_stay_and_opaque_memory_keeps_its_type() -> None:
    @T.prim_func(private=True)
    def copy(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "bfloat16")):
        for i in range(8):
            B[i] = A[i]

    assert apply(transform.BF16ComputeLegalize(), copy).body is copy.body

    @T.prim_func(private=True)
    def opaque(A: T.Buffer((8,), "bfloat16")):
        C = T.decl_buffer((8,), "bfloat16")
        T.evaluate(T.call_extern("int32", "fill", C.data))
        for i in range(8):
            A[i] = C[i]

    assert apply(transform.BF16ComputeLegalize(), opaque).body is opaque.body


def test_storage_wants_functions_without_buffer_parameters() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((8,), "float8_e5m2")):
        A[0] = A[1]

    with pytest.raises(ValueError, match="after MakePackedAPI"):
        apply(transform.FP8StorageLegalize(), func)


def test_fp8_e4m3_to_float16() -> None:
    @T.prim_func(private=True)
    def before(a: T.handle("float8_e4m3fn"), B: T.handle("float8_e4m3fn")):
        A = T.decl_buffer((8,), "float8_e4m3fn", data=a)
        D = T.decl_buffer((8,), "float8_e4m3fn", data=B)
        D[0] = A[0] + A[1]

    func = apply(transform.FP8StorageLegalize(), apply(transform.FP8ComputeLegalize("float16"), before))
    load = func.body.body.body.value
    assert func.params[0].type_annotation.element_type.dtype == "uint8"
    text = str(load)
    assert "T.uint8(8)" in text and "T.if_then_else" in text and "float8" not in text


# Both kinds of eight bits are promoted to float16 or float32, bfloat16 to float32 alone.
_PROMOTIONS = [(s, t) for s in ("float8_e4m3fn", "float8_e5m2") for t in ("float16", "float32")]


@pytest.mark.parametrize(("source", "target"), [*_PROMOTIONS, ("bfloat16", "float32")])
def test_conversions_keep_values(source: str, target: str) -> None:
    kind = np.dtype(interp.intrinsics.np_dtype(source))
    values = np.array([0.5, 1, -2, 3.5, 1.75, -0.25, 4, 6], dtype=kind)
    a, b = tir.decl_buffer((8,), source, "A"), tir.decl_buffer((8,), target, "B")
    c = tir.decl_buffer((8,), source, "C")
    i = tir.Var("i", "int32")
    body = tir.SeqStmt([
        tir.BufferStore(b, convert_float(a[i], target), [i]), tir.BufferStore(c, convert_float(b[i], source), [i]),
    ])  # fmt: skip
    func = tir.PrimFunc([a, b, c], tir.For(i, 0, 8, 0, body))
    out, back = np.zeros(8, target), np.zeros(8, kind)
    interp.run_prim_func(func, [values, out, back])
    np.testing.assert_array_equal(out, values.astype(target))
    np.testing.assert_array_equal(back.view(f"uint{kind.itemsize * 8}"), values.view(f"uint{kind.itemsize * 8}"))


@pytest.mark.parametrize("source", ["float8_e4m3fn", "float8_e5m2"])
def test_exact_conversions_keep_every_value(source: str) -> None:
    """All 256 values, and numbers beyond and between them, against ml_dtypes."""
    kind = np.dtype(interp.intrinsics.np_dtype(source))
    codes = np.arange(256, dtype="uint8").view(kind)
    rng = np.random.default_rng(3)
    near = rng.standard_normal(2000).astype("float32") * np.exp2(rng.integers(-20, 18, 2000)).astype("float32")
    with np.errstate(all="ignore"):
        every = codes.astype("float32")
        middles = (every[:-1] + every[1:]) / 2  # ties
        numbers = np.concatenate(
            [every, middles, near, np.array([1e-30, -1e-30, 1e-42, 1e30, np.inf, -np.inf], "float32")]
        )
        wanted = numbers.astype(kind)
    a, b = tir.decl_buffer((256,), source, "A"), tir.decl_buffer((256,), "float32", "B")
    c, d = tir.decl_buffer((len(numbers),), "float32", "C"), tir.decl_buffer((len(numbers),), source, "D")
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    body = tir.SeqStmt([
        tir.For(i, 0, 256, 0, tir.BufferStore(b, convert_exactly(a[i], "float32"), [i])),
        tir.For(j, 0, len(numbers), 0, tir.BufferStore(d, convert_exactly(c[j], source), [j])),
    ])  # fmt: skip
    out, back = np.zeros(256, "float32"), np.zeros(len(numbers), kind)
    interp.run_prim_func(tir.PrimFunc([a, b, c, d], body), [codes, out, numbers, back])
    np.testing.assert_array_equal(out, every)
    np.testing.assert_array_equal(np.signbit(out[[0, 128]]), [False, True])
    same = back.view("uint8") == wanted.view("uint8")
    both_nan = np.isnan(back.astype("float32")) & np.isnan(wanted.astype("float32"))
    assert (same | both_nan).all(), numbers[~(same | both_nan)][:8]


def test_devices_without_8_bit_floats_read_zeros_as_zeros() -> None:
    @T.prim_func
    def main(A: T.Buffer((64,), "float8_e4m3fn"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float8_e4m3fn")):
        for tx in T.thread_binding(64, "threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(64, tx)
                B[v] = T.Cast("float32", A[v]) + T.float32(0.25)
                C[v] = A[v] * A[v]

    a = np.arange(64, dtype="uint8").view(interp.intrinsics.np_dtype("float8_e4m3fn"))
    for arch in ("sm_80", "sm_89"):
        out, squares = np.zeros(64, "float32"), a.copy()
        emulate_cuda(main, a, out, squares, target=Target({"kind": "cuda", "arch": arch}), check=True)
        np.testing.assert_array_equal(out, a.astype("float32") + np.float32(0.25))
        wanted = (a.astype("float32") ** 2).astype(a.dtype)
        np.testing.assert_array_equal(squares.view("uint8"), wanted.view("uint8"))


def test_a_vector_copied_into_promoted_memory_keeps_its_values() -> None:
    @T.prim_func(private=True)
    def copied(a: T.handle("bfloat16"), d: T.handle("float32")) -> None:
        A = T.decl_buffer((8,), "bfloat16", data=a)
        D = T.decl_buffer((8,), data=d)
        C = T.decl_buffer((8,), "bfloat16")
        C[T.Ramp(0, 1, 8)] = A[T.Ramp(0, 1, 8)]
        for i in range(8):
            D[i] = T.Cast("float32", C[i]) * T.float32(2)

    made = apply(transform.BF16StorageLegalize(), apply(transform.BF16ComputeLegalize(), copied))
    values = np.array([-3.5, 0.0, 1.0, 2.0, 0.25, -1.0, 1e30, 7.0], "float32")
    bits, out = (values.view("uint32") >> 16).astype("uint16"), np.zeros(8, "float32")
    interp.run_prim_func(made, [bits, out])
    np.testing.assert_allclose(out, values * 2, rtol=1e-2)
