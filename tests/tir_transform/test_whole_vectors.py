"""Vectors under a bound: whole ones at once, single stores at the edge."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import tir
from relaxish.ir import IRModule
from relaxish.ir.functor import all_nodes
from relaxish.ir.structural import assert_structural_equal
from relaxish.script import from_source
from relaxish.script import tir as T
from relaxish.tir.transform import lower_for_cpu
from relaxish.tir.transform.loops.whole_vectors import WholeVectors, whole_vectors


@T.prim_func
def before(A: T.Buffer((1001,), "float32"), C: T.Buffer((1001,), "float32")):
    for i in range(63):
        for v in T.vectorized(16):
            if i * 16 + v < 1001:
                C[i * 16 + v] = A[i * 16 + v] + T.float32(1)


@T.prim_func
def after(A: T.Buffer((1001,), "float32"), C: T.Buffer((1001,), "float32")):
    for i in range(63):
        if i * 16 + 15 < 1001:
            for v in T.vectorized(16):
                C[i * 16 + v] = A[i * 16 + v] + T.float32(1)
        else:
            for v in range(16):
                if i * 16 + v < 1001:
                    C[i * 16 + v] = A[i * 16 + v] + T.float32(1)


def test_the_edge_alone_is_stored_by_element() -> None:
    mod = WholeVectors()(IRModule({"main": before}))
    assert_structural_equal(mod["main"], after.with_attr("global_symbol", "before"))


@pytest.mark.parametrize(
    ("condition", "whole"),
    [
        ("i * 16 + v < 1001", "i * 16 + 15 < 1001"),
        ("1001 > i * 16 + v", "1001 > i * 16 + 15"),
        ("i * 16 - v >= 3", "i * 16 - 15 >= 3"),
        ("3 <= i * 16 + v", "3 <= i * 16 + 0"),
        ("T.likely(i * 16 + v < 77)", "i * 16 + 15 < 77"),
        ("3 <= i * 16 + v and i * 16 + v < 77", "3 <= i * 16 + 0 and i * 16 + 15 < 77"),
    ],
)
def test_the_lane_that_decides(condition: str, whole: str) -> None:
    def program(body: str) -> IRModule:
        head = "@T.prim_func\ndef main(C: T.Buffer((1024,), 'float32')):\n    for i in range(64):\n"
        return IRModule({"main": from_source(head + body)})

    store = "C[i * 16 + v] = T.float32(1)\n"
    source = f"        for v in T.vectorized(16):\n            if {condition}:\n                {store}"
    edge = source.replace("T.vectorized", "range").replace("        for", "            for", 1)
    edge = edge.replace("            if", "                if").replace("                C[", "                    C[")
    inside = f"            for v in T.vectorized(16):\n                {store}"
    expected = f"        if {whole}:\n{inside}        else:\n{edge}"
    got = WholeVectors()(program(source))
    want = tir.transform.Simplify()(program(expected))
    assert_structural_equal(tir.transform.Simplify()(got)["main"], want["main"])


@pytest.mark.parametrize("condition", ["v % 2 == 0", "A[v] < 7", "v * v < 50", "v != 3"])
def test_conditions_that_no_lane_decides_stay(condition: str) -> None:
    source = (
        "@T.prim_func\ndef main(A: T.Buffer((16,), 'int32'), C: T.Buffer((16,), 'float32')):\n"
        f"    for v in T.vectorized(16):\n        if {condition}:\n            C[v] = T.float32(1)\n"
    )
    mod = IRModule({"main": from_source(source)})
    assert_structural_equal(WholeVectors()(mod)["main"], mod["main"])


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_written_behind_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, lanes = int(rng.integers(3, 200)), int(rng.choice([4, 8, 16]))
    first = int(rng.integers(0, min(n, 5)))
    steps = -(-n // lanes)
    source = (
        f"@T.prim_func\ndef main(A: T.Buffer(({n},), 'float32'), C: T.Buffer(({n},), 'float32')):\n"
        f"    for i in range({steps}):\n        for v in T.vectorized({lanes}):\n"
        f"            if i * {lanes} + v < {n} and i * {lanes} + v >= {first}:\n"
        f"                C[i * {lanes} + v] = A[i * {lanes} + v] * T.float32(2)\n"
    )
    a = rng.standard_normal(n).astype("float32")
    got = relaxish.nd.array(np.full(n, 9, "float32"))
    relaxish.build(from_source(source), "llvm")(relaxish.nd.array(a), got)
    want = np.where(np.arange(n) >= first, a * 2, np.float32(9))
    np.testing.assert_array_equal(got.numpy(), want)


def _masked(source: str, bits: int = 32) -> list[tir.BufferStore]:
    func = whole_vectors(from_source(source), bits)
    return [item for item in all_nodes(func.body) if isinstance(item, tir.BufferStore)]


def test_under_a_mask_the_edge_is_a_vector_too_and_only_what_may_not_exist_is_masked() -> None:
    source = (
        "@T.prim_func\n"
        "def main(A: T.Buffer((1001,), 'float32'), B: T.Buffer((1008,), 'float32'), C: T.Buffer((1001,), 'float32')):\n"
        "    for i in range(63):\n        for v in T.vectorized(16):\n            if i * 16 + v < 1001:\n"
        "                C[i * 16 + v] = A[i * 16 + v] + B[i * 16 + v]\n"
    )
    whole, edge = _masked(source)
    assert whole.predicate is None and edge.predicate is not None
    loads = {item.buffer.name: item for item in all_nodes(edge.value) if isinstance(item, tir.BufferLoad)}
    assert loads["A"].predicate is not None and loads["B"].predicate is None


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("int32", "A[v] // A[v]"),
        ("int8", "A[v] + A[v]"),
        ("float32", "A[v * 2]"),
        ("float32", "T.if_then_else(v < 3, A[v], 0)"),
    ],
)
def test_what_masks_do_not_make_safe_or_have_no_bits_for_is_stored_by_element(element: str, value: str) -> None:
    source = (
        f"@T.prim_func\ndef main(A: T.Buffer((21,), '{element}'), C: T.Buffer((11,), '{element}')):\n"
        f"    for v in T.vectorized(16):\n        if v < 11:\n            C[v] = {value}\n"
    )
    assert all(store.predicate is None for store in _masked(source))


@pytest.mark.parametrize(("factor", "masked"), [("A[i * 12 + r]", True), ("D[c]", True), ("D[c + i]", False)])
def test_what_all_lanes_read_exists_where_none_is_stored(factor: str, masked: bool) -> None:
    """A condition that is the same for all lanes guards both ends; an element that it does not prove there is not read."""
    source = (
        "@T.prim_func\ndef main(A: T.Buffer((23,), 'float32'), B: T.Buffer((97,), 'float32'),\n"
        "         C: T.Buffer((2231,), 'float32'), D: T.Buffer((7,), 'float32')):\n"
        "    for i, c in T.grid(2, 7):\n        for r in range(12):\n            for v in T.vectorized(16):\n"
        "                if i * 12 + r < 23 and c * 16 + v < 97:\n"
        f"                    C[(i * 12 + r) * 97 + c * 16 + v] = B[c * 16 + v] * {factor}\n"
    )
    made = whole_vectors(from_source(source), 32)
    outer = next(item for item in all_nodes(made.body) if isinstance(item, tir.IfThenElse))
    assert str(outer.condition) == "i * 12 + r < 23" and outer.else_case is None
    stores = [item for item in all_nodes(outer) if isinstance(item, tir.BufferStore)]
    assert any(store.predicate is not None for store in stores) == masked


@pytest.mark.parametrize("rows, columns", [(3, 23), (9, 87), (11, 39), (16, 5), (5, 101)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_products_of_any_width_end_in_masked_vectors(rows: int, columns: int, dtype: str) -> None:
    """Register tiles over padded columns, of which the output has only some, with a row of its own added."""
    lanes, depth = (8 if dtype == "float64" else 16), 7
    width = -(-columns // lanes) * lanes
    wide = "float32" if dtype == "float16" else dtype
    source = (
        f"@T.prim_func\ndef main(A: T.Buffer(({rows}, {depth}), '{wide}'), B: T.Buffer(({depth}, {width}), '{wide}'),\n"
        f"         R: T.Buffer(({columns},), '{dtype}'), C: T.Buffer(({rows}, {columns}), '{dtype}')):\n"
        f"    for j in range({width // lanes}):\n"
        f"        acc = T.decl_buffer(({rows}, {lanes}), '{wide}')\n"
        f"        for i in T.unroll({rows}):\n            for v in T.vectorized({lanes}):\n"
        f"                acc[i, v] = T.Cast('{wide}', 0)\n"
        f"        for k in range({depth}):\n            for i in T.unroll({rows}):\n"
        f"                for v in T.vectorized({lanes}):\n"
        f"                    acc[i, v] = acc[i, v] + A[i, k] * B[k, j * {lanes} + v]\n"
        f"        for i in T.unroll({rows}):\n            for v in T.vectorized({lanes}):\n"
        f"                if j * {lanes} + v < {columns}:\n"
        f"                    C[i, j * {lanes} + v] = T.Cast('{dtype}', acc[i, v]) + R[j * {lanes} + v]\n"
    )
    rng = np.random.default_rng(rows * columns)
    a, b, r = (
        rng.integers(-9, 9, shape) / (1 if dtype == "int32" else 4)
        for shape in ((rows, depth), (depth, width), columns)
    )
    out = relaxish.nd.array(np.full((rows, columns), 77, dtype))
    relaxish.build(from_source(source), "llvm")(
        *(relaxish.nd.array(x.astype(kind)) for x, kind in ((a, wide), (b, wide), (r, dtype))), out
    )
    np.testing.assert_array_equal(out.numpy(), (a @ b[:, :columns] + r).astype(dtype))


@pytest.mark.parametrize(
    ("target", "masks"), [("llvm -mcpu=skylake-avx512", True), ("c", False), ("llvm -mcpu=nehalem", False)]
)
def test_only_targets_with_masks_get_them(target: str, masks: bool) -> None:
    where = relaxish.Target(target + (" -mtriple=x86_64-unknown-linux-gnu" if target != "c" else ""))
    lowered = lower_for_cpu(IRModule({"main": before}), where)["main"]
    stores = [item for item in all_nodes(lowered.body) if isinstance(item, tir.BufferStore)]
    assert any(store.predicate is not None for store in stores) == masks
