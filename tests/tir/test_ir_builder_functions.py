"""Functions of statements that the imperative builder made: its buffers are parameters."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import te, tir
from relaxish.ir.errors import CheckTypeError


def test_pointers_are_parameters() -> None:
    ib, n = tir.ir_builder.create(), te.var("n")
    source, result = (ib.pointer("float32", name=name) for name in ("A", "B"))
    with ib.for_range(0, n, name="i") as i:
        result[i] = source[i] * 2.0
    func = tir.PrimFunc([source, result, n], ib.get())
    assert [p.dtype for p in func.params] == ["handle", "handle", "int32"]
    assert func.buffer_map[func.params[1]].same_as(result.asobject())
    assert tir.analysis.verify_well_formed(func)


def test_buffers_are_parameters_of_compiled_functions() -> None:
    ib = tir.ir_builder.create()
    source, result = (ib.buffer_ptr(tir.decl_buffer((5,), "float32", name)) for name in ("A", "B"))
    with ib.for_range(0, 5, name="i") as i:
        result[i] = source[4 - i] + 1.0
    func = tir.PrimFunc([source, result], ib.get()).with_attr("global_symbol", "main")
    a = np.random.default_rng(3).standard_normal(5).astype("float32")
    b = relaxish.nd.empty((5,), "float32")
    relaxish.build(func, target="llvm")(relaxish.nd.array(a), b)
    np.testing.assert_array_equal(b.numpy(), a[::-1] + 1)


def test_statements_take_what_stands_for_a_buffer() -> None:
    ib = tir.ir_builder.create()
    memory = ib.allocate("float32", (4,), name="memory")
    store = tir.BufferStore(memory, 1.0, [0])
    assert store.buffer.same_as(memory.asobject())
    with pytest.raises(CheckTypeError, match="Buffer"):
        tir.BufferStore("memory", 1.0, [0])
