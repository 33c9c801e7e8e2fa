"""PointerValueTypeRewrite: registers that an intrinsic takes by pointer and offset."""

from __future__ import annotations

from relaxish.ir import IRModule
from relaxish.script import tir as T
from relaxish.tir import Allocate, transform
from relaxish.tir.stmt_functor import post_order_visit


def element_types(func) -> list[str]:
    """What the allocations of a function hold afterwards."""
    made = transform.PointerValueTypeRewrite()(IRModule({"main": func.with_attr("global_symbol", "main")}))["main"]
    found: list[str] = []
    post_order_visit(made.body, lambda node: found.append(node.dtype) if isinstance(node, Allocate) else None)
    return found


def test_offsets_into_them_keep_counting_elements():
    @T.prim_func(private=True)
    def alone(a: T.Buffer((16,), "float16")):
        weights = T.decl_buffer((16,), "float16", scope="local")
        for i in range(8):
            weights[i * 2 : i * 2 + 2] = a[i * 2 : i * 2 + 2]

    @T.prim_func(private=True)
    def handed_on(a: T.Buffer((16,), "float16")):
        weights = T.decl_buffer((16,), "float16", scope="local")
        for i in range(8):
            weights[i * 2 : i * 2 + 2] = a[i * 2 : i * 2 + 2]
        T.mma_fill(8, weights.data, 8, dtype="float16")

    assert element_types(alone) == ["float16x2"]
    assert element_types(handed_on) == ["float16"]
