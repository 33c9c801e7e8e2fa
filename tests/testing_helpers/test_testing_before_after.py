"""CompareBeforeAfter, target parameterisation and value comparisons of ``relaxish.testing``."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
import relaxish.testing
from relaxish import arith, tir
from relaxish.ir.transform import module_pass
from relaxish.script import ir as I
from relaxish.script import tir as T

pytest_plugins = ["relaxish.testing.plugin"]


class TestFoldsSum(relaxish.testing.CompareBeforeAfter):
    transform = tir.transform.Simplify()

    def before(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i * 2 - i

    def expected(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i


class TestMethodsAndPrimFuncs(relaxish.testing.CompareBeforeAfter):
    def transform(self):
        return tir.transform.Simplify()

    def before(self):
        @T.prim_func
        def func(A: T.Buffer((2,), "int32")):
            A[0] = 3 * 4

        return func

    @T.prim_func
    def expected(A: T.Buffer((2,), "int32")):
        A[0] = 12


class TestModules(relaxish.testing.CompareBeforeAfter):
    transform = tir.transform.Simplify()

    class Before:
        def left(A: T.Buffer((1,), "int32")):
            A[0] = 1 + 1

        @T.prim_func
        def right(A: T.Buffer((1,), "int32")):
            A[0] = 2 + 1

    @I.ir_module
    class Expected:
        @T.prim_func
        def left(A: T.Buffer((1,), "int32")):
            A[0] = 2

        @T.prim_func
        def right(A: T.Buffer((1,), "int32")):
            A[0] = 3


class TestExpectedError(relaxish.testing.CompareBeforeAfter):
    @relaxish.testing.fixture
    def transform(self):
        def refuse(mod, ctx):
            raise ValueError("never")

        return module_pass(refuse, opt_level=0, name="refuse")

    def before(A: T.Buffer((4,), "int32")):
        A[0] = 0

    expected = ValueError


def test_two_befores_are_refused():
    with pytest.raises(AssertionError):

        class _Both(relaxish.testing.CompareBeforeAfter):
            def before(A: T.Buffer((4,), "int32")):
                A[0] = 0

            class Before:
                pass


def test_difference_is_reported():
    case = relaxish.testing.CompareBeforeAfter()
    x, y = tir.Evaluate(1), tir.Evaluate(2)
    with pytest.raises(ValueError, match="did not match"):
        case.test_compare(tir.PrimFunc([], x), tir.PrimFunc([], y), lambda func: func)


def test_plugin_gives_target_and_device(target, dev):
    assert (target, dev) in relaxish.testing.enabled_targets()


@relaxish.testing.parametrize_targets("llvm")
def test_chosen_targets(target, dev):
    assert target == "llvm" and dev == relaxish.cpu()


@relaxish.testing.exclude_targets("llvm")
def test_excluded_targets(target):
    assert target != "llvm"


@relaxish.testing.known_failing_targets("llvm")
def test_known_failing(target):
    assert target != "llvm"


@relaxish.testing.requires_package("no_such_package_anywhere")
def test_requires_package():
    raise AssertionError("skipped")


@relaxish.testing.requires_llvm
def test_requires_llvm():
    assert relaxish.testing.requires_llvm.available()
    assert relaxish.testing.requires_cuda.marks(support_required="compile-only")[0].args == (False,)


def test_prim_expr_equal():
    x = tir.Var("x")
    relaxish.testing.assert_prim_expr_equal(x * 2 + x, 3 * x)
    with pytest.raises(ValueError):
        relaxish.testing.assert_prim_expr_equal(x, x + 1)
    assert isinstance(arith.Analyzer(), arith.Analyzer)


def test_bool_expr_over_box():
    x = tir.Var("x")
    box = {x: relaxish.ir.Range(0, 5)}
    relaxish.testing.check_bool_expr_is_true(x < 5, box)
    relaxish.testing.check_bool_expr_is_true(x > 2, box, cond=x > 2)
    with pytest.raises(AssertionError):
        relaxish.testing.check_bool_expr_is_true(x < 4, box)


def test_numerical_grads():
    x = np.array([1.0, 2.0, 3.0])
    relaxish.testing.check_numerical_grads(lambda v: (v * v).sum(), [x], [2 * x])
    with pytest.raises(AssertionError):
        relaxish.testing.check_numerical_grads(lambda v: (v * v).sum(), {"v": x}, {"v": x})


class TestProperties(relaxish.testing.CompareBeforeAfter):
    @property
    def transform(self):
        return tir.transform.Simplify()

    @property
    def before(self):
        n = 3

        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[n] = n + n

        return f

    @property
    def expected(self):
        return self.before_simplified

    @property
    def before_simplified(self):
        @T.prim_func
        def f(A: T.Buffer((4,), "int32")):
            A[3] = 6

        return f


class TestParametersOfAClass(relaxish.testing.CompareBeforeAfter):
    transform = tir.transform.Simplify()
    amount = relaxish.testing.parameter(1, 2)
    dtype = relaxish.testing.parameter("int32", "int64")

    @relaxish.testing.fixture
    def before(self, amount, dtype):
        @T.prim_func
        def f(A: T.Buffer((4,), dtype)):
            A[0] = T.Cast(dtype, amount + 1)

        return f

    @relaxish.testing.fixture
    def expected(self, amount, dtype):
        total = tir.const(amount + 1, dtype)

        @T.prim_func
        def f(A: T.Buffer((4,), dtype)):
            A[0] = total

        return f


low, high = relaxish.testing.parameters((1, 2), (3, 4))


@relaxish.testing.fixture
def area(low, high):
    return low * high


def test_parameters_change_together(low, high, area):
    assert (high, area) == (low + 1, low * high)


def test_each_set_is_used(request):
    """Of what is collected, once for each set: another worker may run them."""
    name = "test_parameters_change_together"
    cases = [item.callspec.params for item in request.session.items if getattr(item, "originalname", "") == name]
    assert [(case["low"].values, case["high"].values) for case in cases] == [((1, 2), (1, 2)), ((3, 4), (3, 4))]
