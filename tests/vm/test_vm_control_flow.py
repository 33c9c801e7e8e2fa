"""Control flow through the whole stack: branches, recursion, closures called, passed and returned, nested functions."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.runtime import VirtualMachine, cpu, nd
from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class Flow:
    @R.function
    def branch(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        if c:
            y = R.add(x, x)
        else:
            y = R.multiply(x, x)
        return y

    @R.function
    def nested(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor(
        (2,), "float32"
    ):
        if c:
            if d:
                a = R.add(x, x)
            else:
                a = R.multiply(x, x)
            y = R.negative(a)
        else:
            y = x
        z = R.add(y, x)
        return z

    @R.function
    def total(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        cls = Flow
        stop = R.less(n, R.const(1, "int32"))
        if stop:
            r = n
        else:
            m = R.subtract(n, R.const(1, "int32"))
            s = cls.total(m)
            r = R.add(s, n)
        return r

    @R.function
    def capture(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        w = R.multiply(x, x)

        @R.function
        def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            z = R.add(w, y)
            return z

        o = inner(x)
        p = inner(o)
        return p

    @R.function
    def pure_local(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        @R.function
        def double(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            z = R.add(y, y)
            return z

        o = double(x)
        return o

    @R.function
    def maker(x: R.Tensor((2,), "float32")) -> R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32")):
        @R.function
        def add_x(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            z = R.add(x, y)
            return z

        return add_x

    @R.function
    def uses_maker(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Flow
        f = cls.maker(x)
        o = f(x)
        p = f(o)
        return p


@pytest.fixture(scope="module", params=["bytecode", "compiled", "interpret"])
def machine(request):
    lifted = relax.transform.LambdaLift()(Flow)
    return VirtualMachine(relaxish.build(lifted, "llvm", exec_mode=request.param), cpu())


X = np.array([1.0, 3.0], "float32")


def flag(value):
    return nd.array(np.array(value))


def test_branches(machine):
    np.testing.assert_array_equal(machine["branch"](flag(True), X).numpy(), X + X)
    np.testing.assert_array_equal(machine["branch"](flag(False), X).numpy(), X * X)
    for c in (True, False):
        for d in (True, False):
            want = (-(X + X if d else X * X) if c else X) + X
            np.testing.assert_array_equal(machine["nested"](flag(c), flag(d), X).numpy(), want)


def test_recursion(machine):
    assert int(machine["total"](nd.array(np.array(10, "int32"))).numpy()) == 55


def test_closures(machine):
    np.testing.assert_array_equal(machine["capture"](X).numpy(), X * X + (X * X + X))
    np.testing.assert_array_equal(machine["pure_local"](X).numpy(), X + X)
    np.testing.assert_array_equal(machine["uses_maker"](X).numpy(), 3 * X)


def test_returned_closure_is_invoked_from_python(machine):
    closure = machine["maker"](X)
    np.testing.assert_array_equal(machine.invoke_closure(closure, X).numpy(), X + X)
    with pytest.raises(TypeError, match="closure"):
        machine.invoke_closure(3, X)


def test_recursion_is_not_limited_by_python(machine):
    if machine.executable.python_kernels:
        depth = 300
    else:
        depth = 5000
    assert int(machine["total"](nd.array(np.array(depth, "int32"))).numpy()) == depth * (depth + 1) // 2
