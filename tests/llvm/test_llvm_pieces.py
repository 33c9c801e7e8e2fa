"""Loops taken apart at their conditions, transposing loops in tiles, several reductions in one loop."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from test_llvm_loops import call, compiled_func

from relaxish import tir
from relaxish.backend.common.native_compile import native_compiler
from relaxish.backend.llvm.dynamic_tiles import split_ragged
from relaxish.backend.llvm.index_set_splitting import split_loop
from relaxish.backend.llvm.sizes import Sizes
from relaxish.ir.functor import all_nodes
from relaxish.script import tir as T
from relaxish.tir import BufferLoad, BufferStore, For, ForKind, IfThenElse, IntImm, LetStmt, SeqStmt, Var, decl_buffer


def loop(var: Any, extent: Any, body: Any) -> For:
    return For(var, IntImm("int64", 0), IntImm("int64", extent), ForKind.SERIAL, body)


def padded_row(i: Any, j: Any, a: Any, b: Any, size: int) -> For:
    inside = tir.And(tir.And(i >= 1, j >= 1), j < size + 1)
    value = tir.if_then_else(inside, BufferLoad(a, [i * size + j - size - 1]), tir.const(0.0, "float32"))
    return loop(j, size + 2, BufferStore(b, value, [i * (size + 2) + j]))


def test_padding_is_three_pieces_and_one_branch() -> None:
    a, b = decl_buffer((900,), "float32", "A"), decl_buffer((1024,), "float32", "B")
    i, j = Var("i", "int64"), Var("j", "int64")
    pieces = split_loop(padded_row(i, j, a, b, 30), {}, frozenset(), id)
    assert pieces is not None
    assert [(p.min.value, p.extent.value) for p in pieces] == [(0, 1), (1, 30), (31, 1)]
    assert "if_then_else" not in str(pieces[0])
    middle = split_loop(pieces[1], {}, frozenset(), id)
    assert middle is not None and isinstance(middle[0], IfThenElse)
    assert "if_then_else" not in str(middle[0])


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("factor", [1, -1, 3])
def test_pieces_at_every_comparison(op: str, factor: int) -> None:
    j = Var("j", "int64")
    b = decl_buffer((40,), "int32", "B")
    left, right = j * factor, IntImm("int64", 12 * factor)
    cond = {
        "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
        "==": tir.EQ(left, right), "!=": tir.NE(left, right),
    }[op]  # fmt: skip
    value = tir.Select(cond, IntImm("int32", 1), IntImm("int32", 2))
    body = loop(j, 40, BufferStore(b, value, [j]))
    out = np.zeros(40, "int32")
    call(compiled_func([b], body), out)
    x = np.arange(40) * factor
    want = np.where(eval(f"x {op} {12 * factor}"), 1, 2)
    np.testing.assert_array_equal(out, want)
    pieces = split_loop(body, {}, frozenset(), id)
    assert pieces is not None and "Select" not in str(pieces)


def test_padding_runs() -> None:
    size = 30
    a, b = decl_buffer((size * size,), "float32", "A"), decl_buffer(((size + 1) * (size + 2),), "float32", "B")
    i, j = Var("i", "int64"), Var("j", "int64")
    body = loop(i, size + 1, padded_row(i, j, a, b, size))
    x, out = np.random.rand(size * size).astype("float32"), np.zeros((size + 1) * (size + 2), "float32")
    compiled = compiled_func([a, b], body)
    call(compiled, x, out)
    want = np.pad(x.reshape(size, size), ((1, 0), (1, 1)))
    np.testing.assert_array_equal(out.reshape(size + 1, size + 2), want)
    assert " x float>" in compiled.llvm_text


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (64, 48), (37, 21), (16, 100), (5, 64), (7, 9), (3, 40)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "int8", "uint16"])
def test_transpose(rows: int, columns: int, dtype: str) -> None:
    a, b = decl_buffer((rows * columns,), dtype, "A"), decl_buffer((rows * columns,), dtype, "B")
    i, j = Var("i", "int64"), Var("j", "int64")
    store = BufferStore(b, BufferLoad(a, [j * columns + i]), [i * rows + j])
    compiled = compiled_func([a, b], loop(i, columns, loop(j, rows, store)))
    x = np.random.default_rng(rows).integers(-128, 128, rows * columns).astype(dtype)
    out = np.zeros_like(x)
    call(compiled, x, out)
    np.testing.assert_array_equal(out.reshape(columns, rows), x.reshape(rows, columns).T)
    assert ("shufflevector" in compiled.llvm_text) == (min(rows, columns) >= 4)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (15, 40), (16, 16), (33, 5), (50, 37)])
def test_transpose_of_sizes_known_at_run_time(rows: int, columns: int) -> None:
    m, n = Var("m", "int64"), Var("n", "int64")
    a, b = decl_buffer((m, n), "float32", "A"), decl_buffer((n, m), "float32", "B")
    # Programs are lowered to flat memory.
    flat_a, flat_b = (decl_buffer((m * n,), "float32", buffer.name, data=buffer.data) for buffer in (a, b))
    i, j = Var("i", "int64"), Var("j", "int64")
    store = BufferStore(flat_b, BufferLoad(flat_a, [j * n + i]), [i * m + j])
    inner = For(j, IntImm("int64", 0), m, ForKind.SERIAL, store)
    compiled = compiled_func([a, b], For(i, IntImm("int64", 0), n, ForKind.SERIAL, inner))
    x, out = np.random.rand(rows, columns).astype("float32"), np.zeros((columns, rows), "float32")
    call(compiled, x, out)
    np.testing.assert_array_equal(out, x.T)
    assert "shufflevector" in compiled.llvm_text


def test_two_sums_in_one_loop() -> None:
    a = decl_buffer((100,), "float32", "A")
    s, q = decl_buffer((1,), "float32", "S"), decl_buffer((1,), "float32", "Q")
    j, x, y = Var("j", "int64"), Var("x", "float32"), Var("y", "float32")
    item, zero = BufferLoad(a, [j]), IntImm("int64", 0)
    stores = SeqStmt([BufferStore(s, x, [zero]), BufferStore(q, y, [zero])])
    body = LetStmt(x, BufferLoad(s, [zero]) + item, LetStmt(y, BufferLoad(q, [zero]) + item * item, stores))
    compiled = compiled_func([a, s, q], loop(j, 100, body))
    data, first, second = np.random.rand(100).astype("float32"), np.ones(1, "float32"), np.zeros(1, "float32")
    call(compiled, data, first, second)
    np.testing.assert_allclose(first, 1 + data.sum(), rtol=1e-5)
    np.testing.assert_allclose(second, (data * data).sum(), rtol=1e-5)
    assert "x float> @llvm.fma" in compiled.llvm_text


def test_swap_through_let_keeps_old_values() -> None:
    a, b = decl_buffer((32,), "float32", "A"), decl_buffer((32,), "float32", "B")
    j, x, y = Var("j", "int64"), Var("x", "float32"), Var("y", "float32")
    stores = SeqStmt([BufferStore(a, y, [j]), BufferStore(b, x, [j])])
    body = LetStmt(x, BufferLoad(a, [j]), LetStmt(y, BufferLoad(b, [j]), stores))
    left, right = np.arange(32, dtype="float32"), -np.arange(32, dtype="float32")
    want = right.copy(), left.copy()
    call(compiled_func([a, b], loop(j, 32, body)), left, right)
    np.testing.assert_array_equal(left, want[0])
    np.testing.assert_array_equal(right, want[1])


def test_nested_reduction_keeps_vectors() -> None:
    a, s = decl_buffer((20 * 70,), "float32", "A"), decl_buffer((1,), "float32", "S")
    i, j = Var("i", "int64"), Var("j", "int64")
    zero = IntImm("int64", 0)
    store = BufferStore(s, BufferLoad(s, [zero]) + BufferLoad(a, [i * 70 + j]), [zero])
    compiled = compiled_func([a, s], loop(i, 20, loop(j, 70, store)))
    data, out = np.random.rand(1400).astype("float32"), np.zeros(1, "float32")
    call(compiled, data, out)
    np.testing.assert_allclose(out, data.sum(), rtol=1e-5)
    assert " x float>" in compiled.llvm_text


def padded_image(h: Any, w: Any, a: Any, b: Any) -> tuple[For, For]:
    """Three columns of nothing on the left, one on the right, two rows above; the loop over columns, and all loops."""
    y, x, c = Var("y", "int64"), Var("x", "int64"), Var("c", "int64")
    inside = tir.And(tir.And(y >= 2, x >= 3), x < w + 3)
    value = tir.if_then_else(inside, BufferLoad(a, [((y - 2) * w + x - 3) * 8 + c]), tir.const(7.0, "float32"))
    store = BufferStore(b, value, [(y * (w + 4) + x) * 8 + c])
    # The loop is longer than the row is.
    columns = loop(x, 50, IfThenElse(x < w + 4, loop(c, 8, store)))
    return columns, For(y, IntImm("int64", 0), h + 2, ForKind.SERIAL, columns)


def test_padding_of_a_size_known_at_run_time() -> None:
    h, w = Var("h", "int64"), Var("w", "int64")
    a, b = decl_buffer((h, w, 8), "float32", "A"), decl_buffer((h + 2, w + 4, 8), "float32", "B")
    flat_a = decl_buffer((h * w * 8,), "float32", "A", data=a.data)
    flat_b = decl_buffer(((h + 2) * (w + 4) * 8,), "float32", "B", data=b.data)
    columns, whole = padded_image(h, w, flat_a, flat_b)
    pieces = split_loop(columns, {}, frozenset(), id, Sizes({h, w}))
    # Left border, row, right border, and what of the loop is too much.
    assert pieces is not None and len(pieces) == 4
    assert not any(isinstance(node, IfThenElse) for piece in pieces[:3] for node in all_nodes(piece))
    compiled = compiled_func([a, b], whole)
    for rows, width in [(1, 1), (4, 2), (3, 17), (2, 46)]:
        image = np.random.rand(rows, width, 8).astype("float32")
        out = np.zeros((rows + 2, width + 4, 8), "float32")
        call(compiled, image, out)
        np.testing.assert_array_equal(out, np.pad(image, [(2, 0), (3, 1), (0, 0)], constant_values=7))


@pytest.mark.parametrize("runs", [0, 1, 7, 40])
def test_limits_in_any_order(runs: int) -> None:
    """Where nothing is known of two limits, the loop is right whichever is the larger."""
    m, n, k = (Var(name, "int64") for name in "mnk")
    shapes = [decl_buffer((size,), "float32", name) for size, name in ((m, "M"), (n, "N"), (k, "B"))]
    j = Var("j", "int64")
    value = tir.if_then_else(tir.And(j >= m, j < n), tir.const(1.0, "float32"), tir.const(2.0, "float32"))
    body = For(j, IntImm("int64", 0), k, ForKind.SERIAL, BufferStore(shapes[2], value, [j]))
    pieces = split_loop(body, {}, frozenset(), id, Sizes({m, n, k}))
    assert pieces is not None and len(pieces) == 3
    compiled = compiled_func(shapes, body)
    at = np.arange(runs)
    for first, second in [(0, 0), (3, 20), (20, 3), (5, 5), (1, 60), (60, 1), (6, 7)]:
        out = np.zeros(runs, "float32")
        call(compiled, np.zeros(first, "float32"), np.zeros(second, "float32"), out)
        np.testing.assert_array_equal(out, np.where((at >= first) & (at < second), 1, 2))


@pytest.mark.parametrize("rows", [1, 5, 6, 13, 48, 49, 100])
def test_ragged_tiles_of_tasks(rows: int) -> None:
    """Eight tiles of six rows a task; the last task, and the last tile of it, may be partial."""
    m = Var("m", "int64")
    a, b = decl_buffer((m, 8), "float32", "A"), decl_buffer((m,), "float32", "B")
    flat = decl_buffer((m * 8,), "float32", "A", data=a.data)
    task, io, k = Var("task", "int64"), Var("io", "int64"), Var("k", "int64")

    def tiled(value: Any) -> For:
        ii = Var("ii", "int64")
        at = task * 48 + io * 6 + ii
        store = BufferStore(b, value(at), [at])
        return For(ii, IntImm("int64", 0), IntImm("int64", 6), ForKind.UNROLLED, IfThenElse(at < m, store))

    start = tiled(lambda at: tir.const(0.0, "float32"))
    update = loop(k, 8, tiled(lambda at: BufferLoad(b, [at]) + BufferLoad(flat, [at * 8 + k])))
    tiles = loop(io, 8, SeqStmt([start, update]))
    pieces = split_ragged(tiles)
    assert pieces is not None and len(pieces) == 4
    assert all("if " not in str(piece) for piece in pieces)
    x, out = np.random.rand(rows, 8).astype("float32"), np.zeros(rows, "float32")
    whole = For(task, IntImm("int64", 0), tir.floordiv(m + 47, 48), ForKind.SERIAL, tiles)
    call(compiled_func([a, b], whole), x, out)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 5, 6, 13, 48])
def test_ragged_tiles(rows: int) -> None:
    m = Var("m", "int64")
    a, b = decl_buffer((m, 8), "float32", "A"), decl_buffer((m,), "float32", "B")
    io, k = Var("io", "int64"), Var("k", "int64")

    def tiled(value: Any) -> For:
        ii = Var("ii", "int64")
        at = io * 6 + ii
        store = BufferStore(b, value(at), [at])
        return For(ii, IntImm("int64", 0), IntImm("int64", 6), ForKind.UNROLLED, IfThenElse(at < m, store))

    start = tiled(lambda at: tir.const(0.0, "float32"))
    update = loop(k, 8, tiled(lambda at: BufferLoad(b, [at]) + BufferLoad(a, [at, k])))
    outer = For(io, IntImm("int64", 0), tir.floordiv(m + 5, 6), ForKind.SERIAL, SeqStmt([start, update]))
    pieces = split_ragged(outer)
    assert pieces is not None and len(pieces) == 4
    assert all("if " not in str(piece) for piece in pieces)
    x, out = np.random.rand(rows, 8).astype("float32"), np.zeros(rows, "float32")
    call(compiled_func([a, b], outer), x, out)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-6)


def test_stores_outside_the_guards_keep_the_loop_whole() -> None:
    m = Var("m", "int64")
    b = decl_buffer((m,), "float32", "B")
    io, ii = Var("io", "int64"), Var("ii", "int64")
    at = io * 6 + ii
    guarded = IfThenElse(at < m, BufferStore(b, tir.const(1.0, "float32"), [at]))
    inner = For(ii, IntImm("int64", 0), IntImm("int64", 6), ForKind.UNROLLED, guarded)
    free = BufferStore(b, BufferLoad(b, [io]) + 1.0, [io])
    outer = For(io, IntImm("int64", 0), tir.floordiv(m + 5, 6), ForKind.SERIAL, SeqStmt([inner, free]))
    assert split_ragged(outer) is None


def test_buffers_of_vectors():
    """Elements that are vectors themselves are as far apart as they are long."""

    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        pairs = T.allocate([4], "float32x2", "local")
        P = T.decl_buffer((4,), "float32x2", data=pairs, scope="local")
        for i in range(4):
            P[i] = A[i * 2 : i * 2 + 2]
        for i in range(4):
            B[i * 2 : i * 2 + 2] = P[3 - i] + P[i]

    a, b = np.arange(8, dtype="float32") ** 2, np.zeros(8, "float32")
    code = native_compiler().compile([("func", func)])
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(code.addresses["func"])
    assert run(a.ctypes.data, b.ctypes.data) == 0
    pairs = a.reshape(4, 2)
    np.testing.assert_array_equal(b, (pairs[::-1] + pairs).ravel())
