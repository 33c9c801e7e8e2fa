"""Layouts suggested for blocks and inputs from layouts of outputs; a suggestion is tested by applying it."""

from __future__ import annotations

import pytest

from relaxish import relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.script import tir as T
from relaxish.support.errors import TVMError


def applied(func, maps):
    schedule = tir.Schedule(func)
    for block, suggested in relax.analysis.suggest_layout_transforms(func, maps).items():
        name = schedule.get_block(block.name_hint)
        for item, index_map in suggested.items():
            if isinstance(item, tir.Block):
                schedule.transform_block_layout(block.name_hint, index_map)
            else:
                schedule.transform_layout(name, item, index_map)
    return schedule.mod["main"]


@T.prim_func(private=True)
def relu(a: T.Buffer((8, 16, 6, 6), "float32"), b: T.Buffer((8, 16, 6, 6), "float32")):
    for i, j, k, l in T.grid(8, 16, 6, 6):
        with T.block("relu"):
            n, c, h, w = T.axis.remap("SSSS", [i, j, k, l])
            b[n, c, h, w] = T.max(a[n, c, h, w], T.float32(0))


def test_elementwise():
    @T.prim_func(private=True)
    def expected(a: T.Buffer((8, 6, 6, 16), "float32"), b: T.Buffer((8, 6, 6, 16), "float32")):
        for i, j, k, l in T.grid(8, 6, 6, 16):
            with T.block("relu"):
                n, h, w, c = T.axis.remap("SSSS", [i, j, k, l])
                b[n, h, w, c] = T.max(a[n, h, w, c], T.float32(0))

    assert_structural_equal(applied(relu, [lambda n, c, h, w: (n, h, w, c)]), expected)


def test_reduction_keeps_reduced_axes_whole():
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 16, 6, 6), "float32"), b: T.Buffer((8, 16), "float32")):
        for i, j, k, l in T.grid(8, 16, 6, 6):
            with T.block("sum"):
                n, c, h, w = T.axis.remap("SSRR", [i, j, k, l])
                with T.init():
                    b[n, c] = T.float32(0)
                b[n, c] = b[n, c] + a[n, c, h, w]

    (suggested,) = relax.analysis.suggest_layout_transforms(before, [lambda n, c: (n, c // 4, c % 4)]).values()
    maps = {getattr(k, "name_hint", getattr(k, "name", None)): v for k, v in suggested.items()}
    assert [int(d) for d in maps["a"].map_shape([8, 16, 6, 6])] == [8, 4, 6, 6, 4]
    assert [int(d) for d in maps["sum"].map_shape([8, 16, 6, 6])] == [8, 4, 6, 6, 4]
    assert [int(d) for d in maps["b"].map_shape([8, 16])] == [8, 4, 4]


def test_windows():
    @T.prim_func(private=True)
    def pool(a: T.Buffer((8, 16, 6, 6), "float32"), b: T.Buffer((8, 16, 3, 3), "float32")):
        for i, j, k, l, p, q in T.grid(8, 16, 3, 3, 2, 2):
            with T.block("pool"):
                n, c, h, w, y, x = T.axis.remap("SSSSRR", [i, j, k, l, p, q])
                with T.init():
                    b[n, c, h, w] = T.float32(0)
                b[n, c, h, w] = T.max(b[n, c, h, w], a[n, c, h * 2 + y, w * 2 + x])

    out = applied(pool, [lambda n, c, h, w: (n, h, w, c)])
    assert [[int(d) for d in out.buffer_map[p].shape] for p in out.params] == [[8, 6, 6, 16], [8, 3, 3, 16]]


def test_through_two_blocks():
    @T.prim_func(private=True)
    def before(a: T.Buffer((8, 16), "float32"), c: T.Buffer((8, 16), "float32")):
        b = T.alloc_buffer((8, 16), "float32")
        for i, j in T.grid(8, 16):
            with T.block("first"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] + T.float32(1)
        for i, j in T.grid(8, 16):
            with T.block("second"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = b[vi, vj] * T.float32(2)

    out = applied(before, [lambda i, j: (j, i)])
    assert [[int(d) for d in out.buffer_map[p].shape] for p in out.params] == [[16, 8], [16, 8]]


def test_no_suggestion():
    suggest = relax.analysis.suggest_layout_transforms
    assert suggest(relu, []) == {}

    @T.prim_func(private=True)
    def packed(a: T.Buffer((32,), "float32"), b: T.Buffer((8, 4), "float32")):
        for i in range(32):
            with T.block("pack"):
                v = T.axis.spatial(32, i)
                b[v // 4, v % 4] = a[v]

    assert suggest(packed, [lambda i, j: (j, i)]) == {}
    assert suggest(relu, [lambda n, c, h, w: (n, c // 5, h, w, c % 5)]) == {}  # would need padding


def test_errors():
    with pytest.raises(TVMError):
        relax.analysis.suggest_layout_transforms(relu, [lambda i: (i,)] * 3)
    with pytest.raises(TVMError):
        relax.analysis.suggest_layout_transforms(relu, [lambda i: (i,)])
