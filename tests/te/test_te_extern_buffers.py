"""Buffers that extern calls make, and tensors whose layout is free."""

from __future__ import annotations

import numpy as np

from relaxish import te, tir
from relaxish.driver import build_tir
from relaxish.runtime.ndarray import array
from relaxish.tir.schedule import Schedule


def _doubled() -> te.Tensor:
    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        i = tir.Var("i", "int32")
        return tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(outs[0], ins[0][i] * 2.0, [i]))

    return te.extern((4,), [te.placeholder((4,), "float32", "A")], body, name="doubled", dtype="float32")


def test_extern_buffers_may_lie_at_an_offset() -> None:
    out = _doubled()
    func = te.create_prim_func([out.op.inputs[0], out])
    for buffer in func.buffer_map.values():
        assert isinstance(buffer.elem_offset, tir.Var)
        assert int(buffer.offset_factor) == 1


def test_the_only_extern_call_is_the_root_and_names_no_regions() -> None:
    out = _doubled()
    func = te.create_prim_func([out.op.inputs[0], out])
    assert not func.body.block.reads and not func.body.block.writes and func.body.block.name_hint == "doubled"
    x, made = np.arange(4, dtype="float32"), array(np.zeros(4, "float32"))
    build_tir(func)["main"](array(x), made)
    np.testing.assert_array_equal(made.numpy(), x * 2)


def test_an_extern_call_beside_other_stages_names_what_it_touches() -> None:
    first = _doubled()
    result = te.compute((4,), lambda i: first[i] + 1.0, name="plus")
    sch = Schedule(te.create_prim_func([first.op.inputs[0], result]))
    block = sch.get(sch.get_block("doubled"))
    assert [r.buffer.name for r in block.reads] == ["A"] and [r.buffer.name for r in block.writes] == ["doubled"]


def test_extern_results_between_stages_lie_at_the_start_of_their_memory() -> None:
    first = _doubled()
    result = te.compute((4,), lambda i: first[i] + 1.0, name="plus")
    func = te.create_prim_func([first.op.inputs[0], result])
    x, out = np.arange(4, dtype="float32"), array(np.zeros(4, "float32"))
    build_tir(func)["main"](array(x), out)
    np.testing.assert_array_equal(out.numpy(), x * 2 + 1)


def test_layout_free_parameters_become_a_function_attribute_and_others_stay_on_the_block() -> None:
    a, w = te.placeholder((4, 4), "float32", "A"), te.placeholder((4, 4), "float32", "W")
    moved = te.compute((4, 4), lambda i, j: w[j, i], name="moved")

    def total(weight: te.Tensor) -> te.Tensor:
        attrs = {"layout_free_placeholders": [weight]}
        return te.compute((4, 4), lambda i, j: a[i, j] + weight[i, j], name="total", attrs=attrs)

    func = te.create_prim_func([a, w, total(w)])
    assert [int(i) for i in func.attrs["layout_free_buffers"]] == [1]
    blocks: list[tir.Block] = []
    inner = te.create_prim_func([a, w, total(moved)])
    tir.stmt_functor.post_order_visit(
        inner.body, lambda n: blocks.append(n) if isinstance(n, tir.Block) and n.name_hint == "total" else None
    )
    (block,) = blocks
    assert [b.name for b in block.annotations["layout_free_placeholders"]] == ["moved"]
    assert "layout_free_buffers" not in inner.attrs
