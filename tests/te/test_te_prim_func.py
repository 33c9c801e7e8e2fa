"""Compute definitions become TensorIR."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import TVMError, script, te, tir, topi
from relaxish.driver import build_tir
from relaxish.ir import assert_structural_equal
from relaxish.runtime.ndarray import array


def test_matmul_form_and_result() -> None:
    a, b = te.placeholder((16, 8), "float32", "A"), te.placeholder((8, 4), "float32", "B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((16, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    func = te.create_prim_func([a, b, c])
    block = func.body.block.body.body.body.body.block
    assert block.name_hint == "C"
    assert [v.var.name for v in block.iter_vars] == ["v_i", "v_j", "v_k"]
    assert [r.buffer.name for r in block.reads] == ["A", "B"]
    x, y = (np.random.default_rng(0).random(s).astype("float32") for s in ((16, 8), (8, 4)))
    out = array(np.zeros((16, 4), "float32"))
    build_tir(func)["main"](array(x), array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-5)


def test_index_dtype_override() -> None:
    a = te.placeholder((4, 4), "float32", "A")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[0, i], name="row")], "int64")
    loop = func.body.block.body
    assert str(loop.loop_var.dtype) == "int64"
    assert str(func.buffer_map[func.params[0]].shape[0].dtype) == "int64"


def test_placeholder_must_be_an_argument() -> None:
    a = te.placeholder((4,), "float32", "A")
    with pytest.raises(ValueError, match="does not appear"):
        te.create_prim_func([te.compute((4,), lambda i: a[i] + 1.0)])


def test_axes_that_depend_on_axes_are_nested() -> None:
    data = te.placeholder([tir.const(v, "int64") for v in (1, 2, 7, 5)], "float32", "data")
    func = te.create_prim_func([data, topi.nn.adaptive_pool(data, (3, 2), "avg")], "int64")
    outer = func.body.block.body.seq[0].body.body.body.body.block
    assert outer.init is None
    assert len(outer.iter_vars) == 4


def test_simplifying_an_index_keeps_the_buffer() -> None:
    from relaxish import arith

    n, i = tir.Var("n", "int64"), tir.Var("i", "int64")
    buffer = tir.decl_buffer((tir.floordiv(n + 2 - 3, 2) + 1,), "float32", "b")
    load = arith.Analyzer().simplify(buffer[i + 1 - 1] * 2.0).a
    assert load.buffer is buffer and load.indices[0] is i


def test_symbolic_extents_are_one_buffer_in_all_stages() -> None:
    n = tir.Var("n", "int64")
    data = te.placeholder((1, 2, n), "float32", "data")
    func = te.create_prim_func([data, topi.nn.pool1d(data, [3], [2], [1], [1, 1], "avg")])
    allocated = {b.name: b for b in func.body.block.alloc_buffers}
    average = func.body.block.body.seq[2].body.body.body.block
    assert average.reads[0].buffer is allocated["pool_sum"]
    assert average.body.value.a.buffer is allocated["pool_sum"]


def test_renewing_a_function_keeps_products_of_symbols_together() -> None:
    from relaxish.tir.stmt_functor import renew_defs

    s, t = tir.Var("s", "int64"), tir.Var("t", "int64")
    flat, square = te.placeholder((s * t,), "float32", "flat"), te.placeholder((s, t), "float32", "square")
    total = te.compute((s, t), lambda i, j: flat[i * t + j] + square[i, j], "total")
    func = renew_defs(te.create_prim_func([flat, square, total]))
    first, second, _ = (func.buffer_map[p] for p in func.params)
    assert first.shape[0].a is second.shape[0] and first.shape[0].b is second.shape[1]


@pytest.mark.parametrize("make", [topi.sort, topi.argsort, lambda a: topi.topk(a, 3)[0]])
def test_sorting_is_well_formed_and_parses_back(make) -> None:
    a = te.placeholder((4, 8), name="A")
    func = te.create_prim_func([a, make(a)])
    assert tir.analysis.verify_well_formed(func)
    assert_structural_equal(func, script.from_source(func.script()))


def test_only_unit_dimensions_are_squeezed() -> None:
    with pytest.raises(TVMError, match="cannot be squeezed"):
        topi.squeeze(te.placeholder((4, 8), name="A"), 0)
