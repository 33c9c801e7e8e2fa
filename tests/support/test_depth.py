"""Programs nested deeper than Python's usual recursion limit."""

from __future__ import annotations

import sys

import numpy as np

import relaxish
from relaxish import tir
from relaxish.ir import IRModule
from relaxish.support.depth import deep_programs
from relaxish.tir import transform


def nested(levels):
    """``B[0] = A[0] + levels``, a let statement for each of the levels."""
    a, b = (tir.decl_buffer((1,), "float32", name) for name in "AB")
    values = [tir.Var(f"v{i}", "float32") for i in range(levels)]
    body = tir.BufferStore(b, values[-1], [0])
    for i in reversed(range(levels)):
        body = tir.LetStmt(values[i], (values[i - 1] if i else a[0]) + tir.const(1, "float32"), body)
    params = [tir.Var(name, "handle") for name in "ab"]
    return tir.PrimFunc(params, body, buffer_map=dict(zip(params, (a, b), strict=True))).with_attr(
        "global_symbol", "main"
    )


def test_deep_nests_go_through_passes_printer_and_code_generation():
    func = nested(600)
    mod = transform.ConvertSSA()(transform.UnrollLoop()(IRModule({"main": func})))
    assert "v599: T.float32" in mod["main"].script()
    out = relaxish.nd.array(np.zeros(1, "float32"))
    relaxish.build(mod, "llvm")["main"](relaxish.nd.array(np.ones(1, "float32")), out)
    assert out.numpy()[0] == 601


def test_the_limit_is_restored():
    before = sys.getrecursionlimit()
    with deep_programs(), deep_programs():
        assert sys.getrecursionlimit() > before
    assert sys.getrecursionlimit() == before
