"""``T.ret``: what a compiled function returns, from anywhere in it."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.ir import IRModule
from relaxish.runtime.kernels.kernel import KernelSpec
from relaxish.script import tir as T
from relaxish.tir import transform


@pytest.mark.parametrize(
    ("dtype", "a", "b"),
    [
        ("int8", 100, 27), ("uint8", 200, 55), ("int32", -5, 7), ("int64", -(2**40), 2), ("uint64", 2**63, 5),
        ("float16", 1.5, 2.0), ("float32", 1.5, 2.25), ("float64", 1e300, 2.0),
    ],
)  # fmt: skip
def test_sum_of_scalars(dtype, a, b):
    kind = getattr(T, dtype)

    @T.prim_func
    def add(x: kind, y: kind) -> kind:
        T.ret(x + y)

    built = relaxish.build(add, "llvm")
    assert built["add"](a, b) == a + b
    assert KernelSpec.from_json(built.kernels["add"].to_json()) == built.kernels["add"]


def test_returns_leave_loops_and_branches():
    @T.prim_func
    def position(A: T.Buffer((4,), "int32"), wanted: T.int32) -> T.int32:
        for i in range(4):
            if A[i] == wanted:
                T.ret(i)
        T.ret(-1)

    find = relaxish.build(position, "llvm")["position"]
    values = relaxish.nd.array(np.array([3, 4, 5, 6], "int32"))
    assert (find(values, 5), find(values, 9)) == (2, -1)


def test_truth_values_and_shapes():
    @T.prim_func
    def large(a: T.handle) -> T.bool:
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        T.evaluate(A[0])
        T.ret(n > T.int64(5))

    ask = relaxish.build(large, "llvm")["large"]
    assert ask(relaxish.nd.array(np.zeros(7, "float32"))) is True
    assert ask(relaxish.nd.array(np.zeros(3, "float32"))) is False


def test_dead_code_removal_keeps_returns():
    @T.prim_func
    def f(n: T.int32) -> T.int32:
        T.evaluate(n)
        T.ret(n * 2)

    body = transform.RemoveNoOp()(IRModule({"f": f}))["f"].body
    assert body.value.op.name == "tir.ret"


def test_failed_assertions_say_why():
    @T.prim_func
    def f(n: T.int32) -> T.int32:
        assert n > 2, "n is too small"
        assert n < 9, "n is too large"
        T.ret(n)

    run = relaxish.build(f, "llvm")["f"]
    assert run(5) == 5
    with pytest.raises(relaxish.TVMError, match="Assert fail: n is too small"):
        run(1)
    with pytest.raises(relaxish.TVMError, match="Assert fail: n is too large"):
        run(11)
