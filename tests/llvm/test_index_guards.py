"""Indices from data: where checks stand, what they cost, what the policies do, and how errors leave a kernel."""

from __future__ import annotations

import re
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.backend.llvm.compile import compile_primfuncs, jit_load
from relaxish.ir.module import IRModule
from relaxish.ir.prim import Var
from relaxish.runtime.kernels.kernel import NativeKernel
from relaxish.script import tir as T
from relaxish.support import config
from relaxish.support.errors import IndexBoundsError, MemoryCheckError, RelaxishError
from relaxish.tir import BufferLoad, BufferStore, For, ForKind, PrimFunc, decl_buffer
from relaxish.tir.transform.numerics.guard_indices import guard
from relaxish.tir.transform.pipeline import lower_function_for_cpu
from relaxish.transform import PassContext


@T.prim_func
def lookup(ids: T.Buffer((8,), "int32"), W: T.Buffer((10, 64), "float32"), Y: T.Buffer((8, 64), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "lookup"})
    for i, j in T.grid(8, 64):
        with T.block("T_take"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = W[ids[vi], vj]


@T.prim_func
def rows(ids: T.Buffer((64,), "int64"), W: T.Buffer((50, 33), "float32"), Y: T.Buffer((64, 33), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "rows"})
    for i in T.parallel(64):
        for j in range(33):
            with T.block("T_rows"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = W[ids[vi], vj]


@T.prim_func
def window(b: T.Buffer((1,), "int64"), W: T.Buffer((100,), "float32"), Y: T.Buffer((64,), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "window"})
    for i in range(64):
        with T.block("T_window"):
            vi = T.axis.remap("S", [i])
            Y[vi] = W[b[0] + vi]


@T.prim_func
def window_of(b: T.Buffer((2,), "int64"), W: T.Buffer((100,), "float32"), Y: T.Buffer((64,), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "window_of"})
    for i in range(64):
        with T.block("T_window"):
            vi = T.axis.remap("S", [i])
            T.where(T.Cast("int64", i) < b[1])
            Y[vi] = W[b[0] + vi]


@T.prim_func
def chosen(
    ids: T.Buffer((32,), "int32"),
    m: T.Buffer((32,), "bool"),
    W: T.Buffer((10,), "float32"),
    Y: T.Buffer((32,), "float32"),
):
    T.func_attr({"tir.noalias": True, "global_symbol": "chosen"})
    for i in T.vectorized(32):
        with T.block("T_chosen"):
            vi = T.axis.remap("S", [i])
            Y[vi] = T.Select(m[vi], W[ids[vi]], T.float32(-1))


@T.prim_func
def ragged(ptr: T.Buffer((5,), "int32"), W: T.Buffer((20,), "float32"), Y: T.Buffer((4,), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "ragged"})
    for i in range(4):
        Y[i] = T.float32(0)
        for j in range(ptr[i + 1] - ptr[i]):
            Y[i] = Y[i] + W[ptr[i] + j]


@T.prim_func
def spread(h: T.handle, ids: T.Buffer((16,), "int32"), Y: T.Buffer((16,), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "spread"})
    n = T.int64()
    X = T.match_buffer(h, (n,), "float32")
    tmp = T.alloc_buffer((n,), "float32")
    for i in range(n):
        tmp[i] = X[i] * T.float32(2)
    for i in range(16):
        Y[i] = tmp[ids[i]]


@T.prim_func
def bounded(ids: T.Buffer((8,), "int64"), W: T.Buffer((10,), "float32"), Y: T.Buffer((8, 2), "float32")):
    for i in range(8):
        Y[i, 0] = W[T.max(T.min(ids[i], T.int64(9)), T.int64(0))]
        Y[i, 1] = W[T.floormod(ids[i], T.int64(10))]


@T.prim_func
def staircase(b: T.Buffer((1,), "int64"), W: T.Buffer((64,), "float32"), Y: T.Buffer((20,), "float32")):
    T.func_attr({"tir.noalias": True, "global_symbol": "staircase"})
    for i in range(4):
        for j in range(T.min(6, 20 - i * 6)):
            with T.block("T_rows"):
                Y[i * 6 + j] = W[b[0] + T.Cast("int64", i * 6 + j)]


def _table(rows: int = 10, columns: int = 64) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, columns)).astype("float32")


def test_one_check_a_row_before_vectors() -> None:
    text = relaxish.build(lookup, target="llvm -mattr=+avx512f").sources["ll"]
    assert text.count("call i32 @rx_kernel_failed(") == 1
    blocks = re.split(r"\n(?=\w+:\n)", text)
    copying = [b for b in blocks if re.search(r"store <\d+ x float>", b)]
    assert copying and not any("icmp uge" in b for b in copying)


@pytest.mark.parametrize("value", [10, -1, -7, 10**8, -(2**31), 2**31 - 1])
def test_an_error_names_operator_value_and_size(value: int) -> None:
    run = relaxish.build(lookup, target="llvm")
    ids, table, out = np.arange(8, dtype="int32"), _table(), np.zeros((8, 64), "float32")
    run(ids, table, out)
    np.testing.assert_array_equal(out, table[ids])
    ids[6] = value
    with pytest.raises(IndexBoundsError) as caught:
        run(ids, table, out)
    assert str(caught.value) == (
        f"lookup: index {value} is out of bounds for axis 0 of W, whose size there is 10 (block T_take)"
    )
    assert isinstance(caught.value, IndexError) and isinstance(caught.value, RelaxishError)


def test_a_window_is_checked_once_and_stays_a_vector() -> None:
    built = relaxish.build(window, target="llvm -mattr=+avx512f")
    text = built.sources["ll"]
    assert text.count("call i32 @rx_kernel_failed(") == 1 and re.search(r"load <\d+ x float>", text)
    table, out = _table(1, 100)[0], np.zeros(64, "float32")
    for begin in (0, 17, 36):
        built(np.array([begin]), table, out)
        np.testing.assert_array_equal(out, table[begin : begin + 64])
    for begin in (37, -1, 2**63 - 1, -(2**63), 2**62, 2**63 - 10, -(2**63) + 5):
        with pytest.raises(IndexBoundsError, match="W, whose size there is 100"):
            built(np.array([begin]), table, out)


def test_what_a_condition_leaves_out_is_not_checked() -> None:
    built = relaxish.build(window_of, target="llvm")
    table = _table(1, 100)[0]
    for begin, count in ((90, 10), (40, 60), (500, 0), (-5, 0)):
        out = np.zeros(64, "float32")
        built(np.array([begin, count]), table, out)
        np.testing.assert_array_equal(out[:count], table[begin : begin + count] if count else [])
        assert not out[count:].any()
    with pytest.raises(IndexBoundsError):
        built(np.array([90, 11]), table, np.zeros(64, "float32"))


def test_loops_that_bound_each_other_are_checked_as_far_as_they_go() -> None:
    built = relaxish.build(staircase, target="llvm")
    table, out = _table(1, 64)[0], np.zeros(20, "float32")
    for begin in (0, 44):
        built(np.array([begin]), table, out)
        np.testing.assert_array_equal(out, table[begin : begin + 20])
    for begin in (45, -1, 2**62):
        with pytest.raises(IndexBoundsError):
            built(np.array([begin]), table, out)


def test_what_a_select_throws_away_is_not_read() -> None:
    built = relaxish.build(chosen, target="llvm")
    rng = np.random.default_rng(1)
    ids, mask = rng.integers(0, 10, 32).astype("int32"), rng.random(32) < 0.5
    mask[3], mask[9] = False, True
    ids[3] = 2**31 - 1
    table, out = rng.standard_normal(10).astype("float32"), np.zeros(32, "float32")
    built(ids, mask, table, out)
    np.testing.assert_array_equal(out, np.where(mask, table[np.where(mask, ids, 0)], -1))
    ids[9] = 10
    with pytest.raises(IndexBoundsError, match="index 10 "):
        built(ids, mask, table, out)


def test_loops_whose_bounds_are_data() -> None:
    built = relaxish.build(ragged, target="llvm")
    table, out = _table(1, 20)[0], np.zeros(4, "float32")
    pointers = np.array([0, 5, 5, 12, 20], "int32")
    built(pointers, table, out)
    np.testing.assert_allclose(out, [table[a:b].sum() for a, b in zip(pointers, pointers[1:], strict=False)], rtol=1e-5)
    for bad in ([0, 5, 5, 12, 21], [-1, 5, 5, 12, 20], [0, 5, 5, 12, 10**8], [2**31 - 9, 2**31 - 1, 0, 0, 0]):
        with pytest.raises(IndexBoundsError):
            built(np.array(bad, "int32"), table, out)


def test_policies() -> None:
    ids, table = np.array([0, 9, 12, -3, 2**31 - 1, -(2**31), 5, 1], "int32"), _table()
    with PassContext(config={"relaxish.index_bounds": "clamp"}):
        out = np.zeros((8, 64), "float32")
        relaxish.build(lookup, target="llvm")(ids, table, out)
        np.testing.assert_array_equal(out, table[np.clip(ids, 0, 9)])
        near = np.zeros(64, "float32")
        run = relaxish.build(window, target="llvm")
        for begin in (50, -4, 2**62, -(2**62)):
            run(np.array([begin]), table.reshape(-1)[:100], near)
            np.testing.assert_array_equal(near, table.reshape(-1)[np.clip(begin, 0, 36) :][:64])
    with config.INDEX_BOUNDS.override("trust"), config.CHECK.override(1):
        assert "rx_kernel_failed" not in relaxish.build(lookup, target="llvm").sources["ll"]
    with PassContext(config={"relaxish.index_bounds": "perhaps"}), pytest.raises(RelaxishError, match="one of check"):
        relaxish.build(lookup, target="llvm")
    keys = set()
    for policy in config.INDEX_POLICIES:
        with config.INDEX_BOUNDS.override(policy):
            keys.add(config.code_key())
    assert len(keys) == 3


def test_an_index_of_an_argument_of_the_call() -> None:
    a, b = decl_buffer((9,), "float32", "a"), decl_buffer((1,), "float32", "b")
    x, y, n = Var("x", "handle"), Var("y", "handle"), Var("n", "int64")
    body = BufferStore(b, BufferLoad(a, [n - 2]), [0])
    run = relaxish.build(PrimFunc([x, y, n], body, buffer_map={x: a, y: b}), target="llvm")
    data, out = _table(1, 9)[0], np.zeros(1, "float32")
    run(data, out, 10)
    assert out[0] == data[8]
    for value in (1, 11, -(2**63), 2**63 - 1):
        with pytest.raises(IndexBoundsError):
            run(data, out, value)


def test_products_that_overflow_are_caught() -> None:
    a, b = decl_buffer((64,), "float32", "a"), decl_buffer((1,), "float32", "b")
    ids = decl_buffer((2,), "int64", "ids")
    x, y, z = (Var(n, "handle") for n in "xyz")
    index = BufferLoad(ids, [0]) * 8 + BufferLoad(ids, [1])
    func = PrimFunc([x, y, z], BufferStore(b, BufferLoad(a, [index]), [0]), buffer_map={x: a, y: b, z: ids})
    run = relaxish.build(func, target="llvm")
    data, out = _table(1, 64)[0], np.zeros(1, "float32")
    run(data, out, np.array([7, 3]))
    assert out[0] == data[59]
    for values in ([2**61, 0], [2**61, 5], [-(2**61), 3], [2**62, 1], [2**63 - 1, 8], [8, 0], [0, -1]):
        with pytest.raises(IndexBoundsError):
            run(data, out, np.array(values))


def test_every_thread_gets_its_own_error() -> None:
    run = relaxish.build(rows, target="llvm -num-cores=2")
    table = _table(50, 33)
    wrong: list[Any] = []

    def call(seed: int) -> None:
        rng = np.random.default_rng(seed)
        out = np.zeros((64, 33), "float32")
        for _ in range(200):
            ids = rng.integers(0, 50, 64)
            value = int(rng.integers(10**6, 10**12))
            bad = rng.random() < 0.5
            if bad:
                ids[rng.integers(64)] = value
            try:
                run(ids, table, out)
                good = not bad and np.array_equal(out, table[ids])
            except IndexBoundsError as err:
                good = bad and f"index {value} " in str(err)
            if not good:
                wrong.append((seed, bad, value))

    threads = [threading.Thread(target=call, args=(s,)) for s in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_exported_library_raises_the_same_error(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.so")
    relaxish.build(rows, target="llvm").export_library(path)
    run = relaxish.runtime.load_module(path)
    ids, table, out = np.arange(64) % 50, _table(50, 33), np.zeros((64, 33), "float32")
    run(ids, table, out)
    np.testing.assert_array_equal(out, table[ids])
    ids[63] = -5
    with pytest.raises(IndexBoundsError, match="rows: index -5 is out of bounds for axis 0 of W"):
        run(ids, table, out)


def test_temporary_memory_is_given_back() -> None:
    run = relaxish.build(spread, target="llvm")
    data, out = np.ones(2**20, "float32"), np.zeros(16, "float32")
    ids = np.arange(16, dtype="int32")
    run(data, ids, out)
    np.testing.assert_array_equal(out, 2 * data[:16])
    ids[2] = 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        with pytest.raises(IndexBoundsError):
            run(data, ids, out)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def _flat(shift: int, loop: ForKind = ForKind.SERIAL, store: bool = False) -> PrimFunc:
    a, b = decl_buffer((64,), "float32", "a"), decl_buffer((64,), "float32", "b")
    x, y, i = Var("x", "handle"), Var("y", "handle"), Var("i", "int32")
    load, place = (i, i + shift) if store else (i + shift, i)
    body = For(i, 0, 64, loop, BufferStore(b, BufferLoad(a, [load]), [place]))
    return PrimFunc([x, y], body, buffer_map={x: a, y: b}).with_attr("global_symbol", "moved")


def _native(func: PrimFunc) -> NativeKernel:
    compiled = compile_primfuncs(IRModule({"moved": func}), "llvm")
    return NativeKernel(compiled.kernels["moved"], jit_load(compiled))


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("loop", [ForKind.SERIAL, ForKind.PARALLEL])
@pytest.mark.parametrize("shift", [1, -1, 10**6])
def test_checked_memory_finds_what_leaves_a_buffer(shift: int, loop: ForKind, store: bool) -> None:
    data, out = _table(1, 64)[0], np.zeros(64, "float32")
    with config.CHECK.override(2):
        _native(_flat(0, loop, store))(data, out)
        np.testing.assert_array_equal(out, data)
        with pytest.raises(MemoryCheckError, match=f"moved: {'store' if store else 'load'} of element.* 64 elements"):
            _native(_flat(shift, loop, store))(data, out)
        # Before buffers are flat, the error names block and axis.
        with pytest.raises(IndexBoundsError, match=f"moved: index .* for {'b' if store else 'a'}, whose size"):
            relaxish.build(_flat(shift, loop, store), target="llvm")(data, out)


def test_checks_of_memory_are_in_cache_keys() -> None:
    with config.CHECK.override(2):
        checked = config.code_key()
        assert "memory" in bytes.fromhex("".join(re.findall(r"\\([0-9A-F]{2})", _text(_flat(0))))).decode("latin1")
    with config.CHECK.override(1):
        assert checked != config.code_key()
        assert "rx_kernel_failed" not in _text(_flat(0))


def _text(func: PrimFunc) -> str:
    return compile_primfuncs(IRModule({"moved": func}), "llvm").llvm_text


def test_the_pass_leaves_alone_what_is_certain() -> None:
    assert guard(bounded, "check") is bounded
    with config.CHECK.override(1):
        assert "check_index" not in lower_function_for_cpu(bounded).script()
        assert "check_index" in lower_function_for_cpu(lookup).script()


@pytest.mark.parametrize("policy", ["check", "clamp"])
def test_a_pipeline_of_the_user_has_the_checks_that_are_in_it(policy: str) -> None:
    passes = relaxish.tir.transform
    pipeline = relaxish.transform.Sequential(
        [
            passes.LowerInitBlock(),
            passes.PlanAndUpdateBufferAllocationLocation(),
            passes.ConvertBlocksToOpaque(),
            passes.CompactBufferAllocation(),
            passes.LowerMatchBuffer(),
            passes.GuardIndices(),
            passes.LowerOpaqueBlock(),
            passes.FlattenBuffer(),
            passes.Simplify(),
        ]
    )
    rng = np.random.default_rng(5)
    table, out = rng.random((10, 64)).astype("float32"), relaxish.nd.array(np.zeros((8, 64), "float32"))
    ids = np.array([3, 9, 0, -1, 5, 10, 2, 2], "int32")
    with PassContext(config={"relaxish.index_bounds": policy}):
        run = relaxish.compile(lookup, "llvm", tir_pipeline=pipeline)
    if policy == "check":
        with pytest.raises(IndexBoundsError, match="index -1 is out of bounds for axis 0 of W"):
            run(relaxish.nd.array(ids), relaxish.nd.array(table), out)
        ids = ids % 10
    run(relaxish.nd.array(ids), relaxish.nd.array(table), out)
    np.testing.assert_array_equal(out.numpy(), table[np.clip(ids, 0, 9)])
