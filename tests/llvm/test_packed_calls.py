"""Compiled kernels call registered functions: T.call_packed, tir.trace."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import relaxish as rx
from relaxish import te, tir
from relaxish.runtime.registry import remove_global_func
from relaxish.script import tir as T


@pytest.fixture
def registered() -> Iterator[Callable[[str, Callable[..., Any]], None]]:
    names: list[str] = []

    def add(name: str, function: Callable[..., Any]) -> None:
        rx.register_func(name, function, override=True)
        names.append(name)

    yield add
    for name in names:
        remove_global_func(name)


def _built(func: tir.PrimFunc) -> Any:
    return rx.tir.build(func.with_attr("global_symbol", "main"), target="llvm")["main"]


def test_a_statement_passes_scalars_text_and_arrays(registered: Callable[..., None]) -> None:
    seen: list[Any] = []
    registered("tests.note", lambda *args: seen.append(args))
    registered("tests.double", lambda a: a.copyfrom(2 * a.numpy()))

    @T.prim_func
    def main(A: T.Buffer((2, 3), "float32"), n: T.int32):
        for i in range(n):
            T.call_packed("tests.note", i, "at", A[i, 1], A[i, 0] > T.float32(0))
        T.call_packed("tests.double", A)

    values = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    given = rx.nd.array(values)
    _built(main)(given, 2)
    assert seen == [(i, "at", float(values[i, 1]), bool(values[i, 0] > 0)) for i in range(2)]
    assert type(seen[0][3]) is bool
    np.testing.assert_array_equal(given.numpy(), 2 * values)


def test_what_the_function_writes_is_read_afterwards(registered: Callable[..., None]) -> None:
    registered("tests.fill", lambda a: a.copyfrom(np.full(a.shape, 7, "int32")))

    @T.prim_func
    def main(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        T.func_attr({"tir.noalias": True})
        B[0] = A[0]
        T.call_packed("tests.fill", A)
        B[1] = A[0]
        for i in T.parallel(2):
            B[i + 2] = A[i]

    b = rx.nd.array(np.zeros(4, "int32"))
    _built(main)(rx.nd.array(np.array([1, 2, 3, 4], "int32")), b)
    assert b.numpy().tolist() == [1, 7, 7, 7]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8", "bool"])
def test_a_trace_may_replace_the_value(registered: Callable[..., None], dtype: str) -> None:
    seen: list[tuple[Any, ...]] = []

    def action(*args: Any) -> Any:
        seen.append(args)
        return args[-1] if args[1] % 2 else 1

    registered("tests.trace", action)
    x = te.placeholder((5,), dtype, "x")
    y = te.compute((5,), lambda i: tir.trace(["x", i, x[i]], "tests.trace"), "y")
    values = np.array([3, 0, 2, 5, 0]).astype(dtype)
    out = rx.nd.empty((5,), dtype)
    _built(te.create_prim_func([x, y]))(rx.nd.array(values), out)
    assert sorted(seen) == [("x", i, v) for i, v in enumerate(values.tolist())]
    np.testing.assert_array_equal(out.numpy(), np.where(np.arange(5) % 2, values, np.ones((), dtype)))


def test_the_default_action_shows_and_keeps(capfd: pytest.CaptureFixture[str]) -> None:
    x = te.placeholder((2,), "int32", "x")
    y = te.compute((2,), lambda i: tir.trace([x[i]]) + 1, "y")
    out = rx.nd.empty((2,), "int32")
    _built(te.create_prim_func([x, y]))(rx.nd.array(np.array([8, 9], "int32")), out)
    assert out.numpy().tolist() == [9, 10]
    assert sorted(capfd.readouterr().out.split()) == ["8", "9"]


def test_an_exception_ends_the_kernel_and_arrives(registered: Callable[..., None]) -> None:
    def fail(i: int) -> None:
        if i == 3:
            raise LookupError(f"at {i}")

    registered("tests.fail", fail)

    @T.prim_func
    def main(A: T.Buffer((8,), "int32")):
        for i in range(8):
            T.call_packed("tests.fail", i)
            A[i] = 1

    a = rx.nd.array(np.zeros(8, "int32"))
    kernel = _built(main)
    with pytest.raises(LookupError, match="at 3"):
        kernel(a)
    assert a.numpy().tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_an_unknown_function_is_named() -> None:
    @T.prim_func
    def main(A: T.Buffer((1,), "int32")):
        T.call_packed("tests.nobody", A[0])

    with pytest.raises(rx.support.errors.RelaxishError, match="tests.nobody"):
        _built(main)(rx.nd.array(np.zeros(1, "int32")))


def test_calls_from_parallel_loops(registered: Callable[..., None]) -> None:
    seen: list[int] = []
    registered("tests.each", seen.append)

    @T.prim_func
    def main(A: T.Buffer((64,), "int32")):
        for i in T.parallel(64):
            T.call_packed("tests.each", i)
            A[i] = i

    a = rx.nd.array(np.zeros(64, "int32"))
    _built(main)(a)
    assert sorted(seen) == list(range(64))
    np.testing.assert_array_equal(a.numpy(), np.arange(64))


def test_a_static_handle_keeps_what_is_put_there(registered: Callable[..., None]) -> None:
    def count(handle: ctypes.c_void_p, a: Any) -> None:
        cell = ctypes.cast(handle, ctypes.POINTER(ctypes.c_int64))
        cell[0] += 1
        a.copyfrom(np.array([cell[0]], "int64"))

    registered("tests.count", count)
    buffer = tir.decl_buffer((1,), "int64", "A")
    handle = tir.call_intrin("handle", "tir.tvm_static_handle")
    kernel = _built(tir.PrimFunc([buffer], tir.Evaluate(tir.call_packed("tests.count", handle, buffer))))
    a = rx.nd.array(np.zeros(1, "int64"))
    for expected in (1, 2, 3):
        kernel(a)
        assert a.numpy()[0] == expected


def test_exported_libraries_call_back(registered: Callable[..., None], tmp_path: Any) -> None:
    registered("tests.negate", lambda a: a.copyfrom(-a.numpy()))

    @T.prim_func
    def main(A: T.Buffer((3,), "float64")):
        T.func_attr({"global_symbol": "main"})
        T.call_packed("tests.negate", A)

    rx.tir.build(main, target="llvm").export_library(str(tmp_path / "lib.so"))
    values = np.random.default_rng(1).standard_normal(3)
    a = rx.nd.array(values)
    rx.runtime.load_module(str(tmp_path / "lib.so"))["main"](a)
    np.testing.assert_array_equal(a.numpy(), -values)


def test_functions_that_are_nowhere_matter_when_called() -> None:
    @T.prim_func
    def main(A: T.Buffer((1,), "int32")):
        T.evaluate(T.call_extern("void", "tests_function_that_is_nowhere", A.data))

    kernel = rx.tir.build(main.with_attr("global_symbol", "main"), target="llvm")
    assert "tests_function_that_is_nowhere" in kernel.get_source("ll")
    with pytest.raises(rx.support.errors.RelaxishError, match="cannot be called here"):
        kernel["main"](rx.nd.array(np.zeros(1, "int32")))


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_a_scope_that_is_run_once(kind: str) -> None:
    buffer, count = tir.decl_buffer((10,), "int64"), tir.decl_buffer((1,), "int64")
    ib = tir.ir_builder.create()
    numbers, calls = ib.buffer_ptr(buffer), ib.buffer_ptr(count)
    with ib.new_scope():
        ib.scope_attr(te.thread_axis((0, 1), "cop"), "coproc_uop_scope", tir.StringImm("TVMBackendRunOnce"))
        with ib.for_range(0, 10, "i", kind=kind) as i:
            numbers[i] = numbers[i] + i + 1
    calls[0] = calls[0] + 1
    func = tir.PrimFunc([buffer, count], ib.get())
    start = np.random.default_rng(0).integers(-50, 50, 10)
    for _ in range(2):  # a second build of the same program runs it, too
        built = _built(func)
        a, b = rx.nd.array(start), rx.nd.array(np.zeros(1, "int64"))
        for _ in range(3):
            built(a, b)
        np.testing.assert_array_equal(a.numpy(), start + np.arange(1, 11))
        assert b.numpy()[0] == 3


def test_other_scopes_of_coprocessors_are_refused() -> None:
    ib = tir.ir_builder.create()
    buffer = tir.decl_buffer((4,), "int64")
    numbers = ib.buffer_ptr(buffer)
    ib.scope_attr(te.thread_axis((0, 1), "cop"), "coproc_uop_scope", tir.StringImm("VTAPushALUOp"))
    numbers[0] = tir.const(1, "int64")
    with pytest.raises(rx.TVMError, match="TVMBackendRunOnce"):
        _built(tir.PrimFunc([buffer], ib.get()))
