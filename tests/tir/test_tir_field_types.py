"""Arguments of the wrong class are refused where a node is made, as type errors that are internal errors too."""

from __future__ import annotations

import pytest

import relaxish
from relaxish import tir
from relaxish.ir import Range

x, done = tir.Var("x", "int32"), tir.Evaluate(0)
A = tir.decl_buffer((4, 4), name="A")

WRONG = {
    "loop variable": lambda: tir.For(3, 0, 8, 0, done),
    "loop body": lambda: tir.For(x, 0, 8, 0, 3),
    "no loop body": lambda: tir.For(x, 0, 8, 0, None),
    "store": lambda: tir.BufferStore(3, 1, [0]),
    "load": lambda: tir.BufferLoad(x, [0]),
    "branch": lambda: tir.IfThenElse(x < 3, 3),
    "block body": lambda: tir.Block([], [], [], "b", 3),
    "block axis": lambda: tir.Block([x], [], [], "b", done),
    "block read": lambda: tir.Block([], [A], [], "b", done),
    "realize": lambda: tir.BlockRealize([], True, done),
    "let statement": lambda: tir.LetStmt(3, 1, done),
    "let": lambda: tir.Let(3, 1, x),
    "assertion": lambda: tir.AssertStmt(x < 3, "m", 4),
    "allocation": lambda: tir.Allocate(3, "float32", [1], True, done),
    "declaration": lambda: tir.DeclBuffer(x, done),
    "region": lambda: tir.BufferRegion(x, [Range(0, 1)]),
    "axis": lambda: tir.IterVar((0, 3), 3, 0),
    "parameter": lambda: tir.PrimFunc([3], done),
    "function body": lambda: tir.PrimFunc([x], 3),
    "buffer map": lambda: tir.PrimFunc([x], done, buffer_map={x: 3}),
    "evaluated": lambda: tir.Evaluate(None),
    "program of a pass": lambda: tir.transform.Simplify()(3),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_wrong_class(case):
    with pytest.raises(TypeError) as caught:
        WRONG[case]()
    assert isinstance(caught.value, relaxish.TVMError)


def test_unknown_dtype():
    with pytest.raises(relaxish.TVMError, match="unknown data type 'foo'"):
        tir.Var("x", "foo")


def test_maps_take_as_many_indices_as_they_have():
    halves = tir.IndexMap.from_func(lambda i: [i // 4, i % 4], index_dtype="int32")
    for call in (halves.map_indices, halves.map_shape):
        with pytest.raises(relaxish.TVMError, match="the map takes 1 indices, got 2"):
            call([1, 2])
