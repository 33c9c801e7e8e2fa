"""What computations refuse, and the smallest programs."""

from __future__ import annotations

import pytest

from relaxish import te, tir
from relaxish.script import tir as T

A = te.placeholder((4, 8), name="A")
K = te.reduce_axis((0, 8), name="k")


@pytest.mark.parametrize(
    "rule",
    [
        lambda i: te.sum(A[i, K], axis=K) + 1,
        lambda i: te.sum(te.sum(A[i, K], axis=K), axis=K),
        lambda i: te.max(A[i, K], axis=K, where=te.sum(A[i, K], axis=K) > 0),
        lambda i: (te.sum(A[i, K], axis=K), A[i, 0]),
        lambda i: (te.sum(A[i, K], axis=K), te.sum(A[i, K] + 1, axis=K)),
    ],
)
def test_reductions_stand_at_the_top(rule) -> None:
    with pytest.raises(tir.op.CheckValueError):
        te.compute((4,), rule)


@pytest.mark.parametrize("result", [None, 1, "text"])
def test_extern_bodies_are_statements(result) -> None:
    with pytest.raises(ValueError, match="should return PrimExpr or Stmt"):
        te.extern((4,), [A], lambda ins, outs: result)


def test_extern_needs_a_type() -> None:
    with pytest.raises(ValueError, match="Cannot infer output type"):
        te.extern((4,), [], lambda ins, outs: tir.Evaluate(0))
    with pytest.raises(ValueError, match="expect inputs to be tensor"):
        te.extern((4,), [A.op], lambda ins, outs: tir.Evaluate(0))


def test_constant_elements() -> None:
    assert te.compute((4,), lambda i: 2).dtype == "int32"
    assert te.compute((4,), lambda i: [1.5, i])[1].dtype == "int32"


def test_function_of_inputs_alone() -> None:
    func = te.create_prim_func([A])

    @T.prim_func
    def expected(a: T.Buffer((4, 8), "float32")):
        T.func_attr({"global_symbol": "main", "tir.noalias": T.bool(True)})
        with T.block("root"):
            T.evaluate(0)

    assert isinstance(func.body.block.body, tir.Evaluate)
    assert func.body.block.name_hint == "root" and len(func.params) == 1
