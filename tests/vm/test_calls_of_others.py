"""Calls of functions that are not compiled here: none is lost with what it writes, and results are what they are said
to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.runtime import ShapeTuple, cpu, load_module, nd, register_func
from relaxish.runtime.bytecode.instructions import Arg
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

pytest.importorskip("llvmlite")


def bump(x):
    x.copyfrom(x.numpy() + 1)
    return x


register_func("test.others.bump", bump, override=True)


@I.ir_module
class Writers:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                a[v] = a[v] + T.float32(1)

    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        _ = R.call_pure_packed("test.others.bump", x, sinfo_args=R.Tensor((4,), "float32"))
        return x

    @R.function(pure=False)
    def impure(x: R.Tensor((4,), "float32")):
        _ = R.call_packed("test.others.bump", x, sinfo_args=R.Tensor((4,), "float32"))
        return R.add(x, x)

    @R.function
    def pure(x: R.Tensor((4,), "float32")):
        _ = R.call_pure_packed("test.others.bump", x, sinfo_args=R.Tensor((4,), "float32"))
        return R.add(x, x)

    @R.function
    def twice(x: R.Tensor((4,), "float32")):
        _ = R.call_pure_packed("test.others.bump", x, sinfo_args=R.Tensor((4,), "float32"))
        _ = R.call_pure_packed("test.others.bump", x, sinfo_args=R.Tensor((4,), "float32"))
        return R.add(x, x)

    @R.function
    def inplace_packed(x: R.Tensor((4,), "float32")):
        _ = R.call_inplace_packed("test.others.bump", x, inplace_indices=[0], sinfo_args=R.Tensor((4,), "float32"))
        return R.add(x, x)

    @R.function
    def inplace_tir(x: R.Tensor((4,), "float32")):
        cls = Writers
        _ = R.call_tir_inplace(cls.kernel, (x,), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32"))
        return R.add(x, x)

    @R.function
    def by_helper(x: R.Tensor((4,), "float32")):
        cls = Writers
        _ = cls.helper(x)
        return R.add(x, x)

    @R.function(pure=False)
    def branch(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        if c:
            _ = R.call_packed("test.others.bump", x, sinfo_args=R.Tensor((4,), "float32"))
            r = R.tuple()
        else:
            r = R.tuple()
        return R.add(x, x)


@pytest.fixture(scope="module", params=["target", "default_build", "zero"])
def machine(request):
    mod = Writers
    if request.param == "zero":
        mod = relax.get_pipeline("zero")(mod)
    executable = relaxish.build(mod, "llvm", relax_pipeline=None if request.param == "target" else "default_build")
    return relax.VirtualMachine(executable, cpu())


@pytest.mark.parametrize("name", ["impure", "pure", "twice", "inplace_packed", "inplace_tir", "by_helper", "branch"])
def test_unused_calls_that_write_are_kept(machine, name):
    x = np.random.default_rng(5).standard_normal(4).astype("float32")
    given = x.copy()
    more = [np.array(True)] if name == "branch" else []
    result = machine[name](given, *more).numpy()
    changed = x + np.float32(2 if name == "twice" else 1)
    np.testing.assert_allclose(given, changed, rtol=1e-6)
    np.testing.assert_allclose(result, 2 * changed, rtol=1e-6)


def test_the_pass_by_itself_takes_the_authors_word():
    cleaned = relax.transform.DeadCodeElimination()(Writers)
    assert not cleaned["pure"].script().count("call_pure_packed")
    assert cleaned["impure"].script().count("call_packed") == 1


# ---- results

GIVEN = [None]
register_func("test.others.give", lambda x: GIVEN[0], override=True)


@I.ir_module
class Results:
    @R.function(pure=False)
    def tensor(x: R.Tensor((4,), "float32")):
        y = R.call_packed("test.others.give", x, sinfo_args=R.Tensor((4,), "float32"))
        return R.add(x, y)

    @R.function
    def symbolic(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_pure_packed("test.others.give", x, sinfo_args=R.Tensor((n,), "float32"))
        return R.add(x, y)

    @R.function
    def fields(x: R.Tensor((4,), "float32")):
        y = R.call_pure_packed("test.others.give", x, sinfo_args=R.Tuple(R.Tensor((4,), "float32"), R.Shape(ndim=2)))
        return y

    @R.function(pure=False)
    def unused(x: R.Tensor((4,), "float32")):
        _ = R.call_packed("test.others.give", x, sinfo_args=R.Tensor((9,), "float32"))
        return R.add(x, x)

    @R.function
    def endless(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Results
        y = cls.endless(x)
        return y


@pytest.fixture(scope="module", params=["built", "loaded"])
def results(request, tmp_path_factory):
    executable = relaxish.build(Results, "llvm")
    if request.param == "loaded":
        path = tmp_path_factory.mktemp("others") / "model.so"
        executable.export_library(str(path))
        executable = load_module(str(path))
    return relax.VirtualMachine(executable, cpu())


X = np.random.default_rng(6).standard_normal(4).astype("float32")


def test_results_that_fit(results):
    for given in (nd.array(X), X, X[::-1][::-1]):
        GIVEN[0] = given
        np.testing.assert_allclose(results["tensor"](X).numpy(), 2 * X, rtol=1e-6)
        np.testing.assert_allclose(results["symbolic"](X).numpy(), 2 * X, rtol=1e-6)
    GIVEN[0] = (nd.array(X), ShapeTuple([2, 3]))
    assert results["fields"](X)[1] == (2, 3)
    GIVEN[0] = "whatever"
    np.testing.assert_allclose(results["unused"](X).numpy(), 2 * X, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("tensor", np.zeros(3, "float32"), ValueError),
        ("tensor", np.zeros(1 << 20, "float32"), ValueError),
        ("tensor", np.zeros(4, "float64"), ValueError),
        ("tensor", np.zeros((2, 2), "float32"), ValueError),
        ("tensor", None, TypeError),
        ("tensor", 3, TypeError),
        ("tensor", (np.zeros(4, "float32"),), TypeError),
        ("symbolic", np.zeros(3, "float32"), ValueError),
        ("symbolic", np.zeros(5, "float32"), ValueError),
        ("symbolic", np.zeros(4, "int32"), ValueError),
        ("fields", (np.zeros(4, "float32"),), ValueError),
        ("fields", (np.zeros(4, "float32"), 3), TypeError),
        ("fields", (np.zeros(3, "float32"), ShapeTuple([1, 2])), ValueError),
        ("fields", (np.zeros(4, "float32"), ShapeTuple([1])), ValueError),
        ("fields", np.zeros(4, "float32"), TypeError),
    ],
)
def test_results_that_do_not_fit(results, name, given, error):
    GIVEN[0] = given
    with pytest.raises(error) as caught:
        results[name](X)
    assert isinstance(caught.value, RuntimeError)


def test_recursion_ends_with_an_error(results):
    with pytest.raises(RecursionError, match="does the recursion end"):
        results["endless"](X)
    GIVEN[0] = X
    np.testing.assert_allclose(results["tensor"](X).numpy(), 2 * X, rtol=1e-6)


def test_bytecode_is_checked_before_it_runs():
    executable = relaxish.build(Results, "llvm")
    info = next(f for f in executable.functions if f.name == "unused")
    calls = [i for i, op in enumerate(info.code) if type(op).__name__ == "CallOp"]
    for change in (
        lambda op: replace(op, func=10_000),
        lambda op: replace(op, args=(*op.args, Arg("r", 10_000))),
        lambda op: replace(op, args=(*op.args, Arg("c", -5))),
        lambda op: replace(op, dst=10_000),
    ):
        kept = list(info.code)
        info.code[calls[0]] = change(kept[calls[0]])
        with pytest.raises(RuntimeError):
            machine = relax.VirtualMachine(executable, cpu(), profile=True)
            machine["unused"](X)
        info.code[:] = kept
