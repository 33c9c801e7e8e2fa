"""Matrix times vector for targets that do not say how much shared memory a block has."""

from __future__ import annotations

import pytest

from relaxish import dlight
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import Block
from relaxish.tir.stmt_functor import post_order_visit


def product(columns: int):
    @T.prim_func(private=True)
    def func(a: T.Buffer((64, columns), "float32"), x: T.Buffer((columns,), "float32"), y: T.Buffer((64,), "float32")):
        for i, k in T.grid(64, columns):
            with T.block("product"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    y[v_i] = T.float32(0)
                y[v_i] = y[v_i] + x[v_k] * a[v_i, v_k]

    return func


def scopes(target, columns):
    made = dlight.gpu.GEMV().apply(product(columns), Target(target), False)
    found = set()

    def look(node):
        if isinstance(node, Block):
            found.update(buffer.scope() for buffer in node.alloc_buffers)

    post_order_visit(made.mod["main"].body, look)
    return found


@pytest.mark.parametrize(("kind", "fits", "does_not"), [("cuda", 4096, 16384), ("vulkan", 1024, 8192)])
def test_the_least_of_the_kind_counts(kind, fits, does_not):
    assert "max_shared_memory_per_block" not in Target(kind).attrs
    assert "shared" in scopes(kind, fits)
    assert "shared" not in scopes(kind, does_not)


def test_what_the_target_says_counts():
    assert "shared" not in scopes({"kind": "cuda", "max_shared_memory_per_block": 1024}, 4096)
