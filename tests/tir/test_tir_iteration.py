"""What can be subscripted without end must not be iterated over by index: that would not end."""

from __future__ import annotations

import pytest

from relaxish import relax, te, tir
from relaxish.script import from_source
from relaxish.script import tir as T
from relaxish.support.errors import DiagnosticError, RelaxishError
from relaxish.target import Target

_TENSOR = te.placeholder((4, 4), "float32")
_GRAPH = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
ENDLESS = {
    "buffer": tir.decl_buffer((4,)),
    "tensor": _TENSOR,
    "slice of a tensor": _TENSOR[0],
    "buffer proxy": T.Buffer,
    "pointer proxy": T.Ptr,
    "variable of the builder": tir.ir_builder.create().allocate("float32", 4),
    "features": Target("llvm").features,
    "sizes at run time": _GRAPH.shape,
    "graph value": _GRAPH,
    "object": relax.Var("x", relax.ObjectStructInfo()),
    "unknown": relax.Var("x"),
    "call": relax.Call(relax.ExternFunc("f"), []),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_iteration_is_refused(what):
    with pytest.raises((TypeError, RelaxishError)):
        iter(ENDLESS[what])


def test_tuples_are_unpacked():
    info = relax.TensorStructInfo((4,), "float32")
    pair = relax.Var("x", relax.TupleStructInfo([info, relax.ObjectStructInfo()]))
    first, second = pair
    assert (first.index, second.index) == (0, 1) and first.tuple_value.same_as(pair)
    assert not list(relax.Var("x", relax.TupleStructInfo([])))


def test_a_buffer_for_a_shape_in_text():
    text = (
        "@T.prim_func\ndef f(B: T.Buffer((4,), 'float32')):\n    C = T.alloc_buffer(B, 'float32')\n    T.evaluate(0)\n"
    )
    with pytest.raises(DiagnosticError):
        from_source(text)


@pytest.mark.parametrize("text", ["", "x = 1\n", "# nothing\n", "import os\n"])
def test_text_without_a_program(text):
    with pytest.raises(DiagnosticError):
        from_source(text)
