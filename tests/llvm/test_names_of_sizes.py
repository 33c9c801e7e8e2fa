"""Sizes of arguments are told apart although their variables have one name."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.ir.prim import Var
from relaxish.tir import BufferLoad, BufferStore, For, ForKind, PrimFunc, decl_buffer


def test_two_variables_of_one_name() -> None:
    first, second = Var("n", "int64"), Var("n", "int64")
    a, b = decl_buffer((first, second), "float32", "a"), decl_buffer((second,), "float32", "b")
    x, y, i, j = Var("x", "handle"), Var("y", "handle"), Var("i", "int64"), Var("j", "int64")
    row = BufferStore(b, BufferLoad(b, [j]) + BufferLoad(a, [i, j]), [j])
    body = For(i, 0, first, ForKind.SERIAL, For(j, 0, second, ForKind.SERIAL, row))
    run = relaxish.build(PrimFunc([x, y], body, buffer_map={x: a, y: b}), target="llvm")
    data, out = np.random.default_rng(0).random((3, 5), "float32"), np.zeros(5, "float32")
    run(data, out)
    np.testing.assert_allclose(out, data.sum(0), rtol=1e-6)
    with pytest.raises(ValueError, match="expected to be 5, got 3"):
        run(data, np.zeros(3, "float32"))
