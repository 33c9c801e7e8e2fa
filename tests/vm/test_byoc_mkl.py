"""A real library behind RunCodegen: matrix products by MKL inside a compiled model."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.contrib import mkl
from relaxish.runtime import VirtualMachine, cpu
from relaxish.script import ir as I
from relaxish.script import relax as R

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(not mkl.is_available(), reason="MKL is not installed")


@I.ir_module
class Perceptron:
    @R.function
    def main(
        x: R.Tensor((4, 7, 16), "float32"),
        w1: R.Tensor((16, 32), "float32"),
        b1: R.Tensor((32,), "float32"),
        w2: R.Tensor((32, 5), "float32"),
        ids: R.Tensor((4, 7, 16), "int32"),
    ):
        with R.dataflow():
            a = R.matmul(x, w1)
            b = R.add(a, b1)
            c = R.nn.relu(b)
            d = R.matmul(c, w2)
            e = R.exp(d)
            f = R.matmul(e, R.permute_dims(w2))
            g = R.sum(ids)
            R.output(f, g)
        return (f, g)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(s).astype("float32") * 0.3 for s in ((4, 7, 16), (16, 32), (32,), (32, 5))]
    return [*made, np.ones((4, 7, 16), "int32")]


def reference(x, w1, b1, w2, ids):
    e = np.exp(np.maximum(x @ w1 + b1, 0) @ w2)
    return e @ w2.T, ids.sum()


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_products_run_in_the_library(exec_mode):
    parted = mkl.partition_for_mkl(Perceptron)
    marked = [f for f in parted.functions.values() if "Codegen" in (f.attrs or {})]
    assert len(marked) == 2  # matmul + bias + relu together with the next matmul, and the last one
    made = relax.transform.RunCodegen()(parted)
    assert [type(m).__name__ for m in made.attrs["external_mods"]] == ["MKLModule"]
    executable = relaxish.build(made, "llvm", exec_mode=exec_mode)
    assert not any("matmul" in name for name in executable.kernels)
    machine = VirtualMachine(executable, cpu())
    for seed in range(3):
        inputs = arrays(seed)
        for got, want in zip(machine["main"](*inputs), reference(*inputs)):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_constants_go_into_the_module():
    inputs = arrays()
    bound = relax.transform.BindParams("main", {"w1": inputs[1], "b1": inputs[2], "w2": inputs[3]})(Perceptron)
    made = relax.transform.RunCodegen()(mkl.partition_for_mkl(bound, bind_constants=True))
    machine = VirtualMachine(relaxish.build(made, "llvm"), cpu())
    got = machine["main"](inputs[0], inputs[4])
    np.testing.assert_allclose(got[0].numpy(), reference(*inputs)[0], rtol=1e-5, atol=1e-6)


def test_what_the_library_cannot_do_stays():
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4, 4), "float64"), z: R.Tensor((4, 4), "float64")):
        with R.dataflow():
            a = R.matmul(x, R.astype(y, "float32"))
            b = R.matmul(y, z)
            R.output(a, b)
        return (a, b)

    parted = mkl.partition_for_mkl(relaxish.IRModule({"main": main}))
    assert len(parted.functions) == 1


def test_a_missing_code_generator_is_named():
    parted = relax.transform.FuseOpsByPattern([("nobody.matmul", mkl.patterns()[-1].pattern)], annotate_codegen=True)(
        Perceptron
    )
    with pytest.raises(relaxish.TVMError, match=r"relax\.ext\.nobody"):
        relax.transform.RunCodegen()(parted)
