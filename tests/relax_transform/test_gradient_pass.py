"""Gradient: the text of adjoints, errors, checkpoints, and values against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, te, transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.training.utils import register_te_gradient
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import TVMError


def test_simple():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv = R.sum(x)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv = R.sum(x)
                R.output(gv)
            return gv

        @R.function
        def main_adjoint(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv = R.sum(x)
                gv_adjoint = R.ones(R.shape([]), "float32")
                x_adjoint = R.broadcast_to(gv_adjoint, (3, 3))
                x_adjoint_out = x_adjoint
                R.output(gv, x_adjoint_out)
            return (gv, (x_adjoint_out,))

    assert_structural_equal(transform.Gradient("main")(Before), Expected)


def test_uses_add_up_and_unused_is_zero():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                gv = R.sum(a)
                R.output(gv)
            return gv

    @R.function
    def main_adjoint(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            gv = R.sum(a)
            gv_adjoint = R.ones(R.shape([]), "float32")
            a_adjoint = R.broadcast_to(gv_adjoint, (3,))
            x_adjoint = a_adjoint
            x_adjoint1 = R.add(x_adjoint, a_adjoint)
            x_adjoint_out = x_adjoint1
            y_adjoint = R.zeros((3,), "float32")
            y_adjoint_out = y_adjoint
            R.output(gv, x_adjoint_out, y_adjoint_out)
        return (gv, (x_adjoint_out, y_adjoint_out))

    assert_structural_equal(transform.Gradient("main")(Before)["main_adjoint"], main_adjoint)


def test_tuples():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32"))):
            with R.dataflow():
                a = x[0]
                b = x[1]
                c = (a, b)
                d = c[1]
                gv = R.sum(d)
                R.output(gv)
            return gv

    mod = transform.Gradient("main")(Before)
    assert well_formed(mod)
    info = mod["main_adjoint"].ret_struct_info.fields[1].fields[0]
    assert len(info.fields) == 2


def _mlp():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((4, 5), "float32"),
            w: R.Tensor((5, 3), "float32"),
            b: R.Tensor((3,), "float32"),
            label: R.Tensor((4,), "int64"),
        ):
            with R.dataflow():
                a = R.matmul(x, w)
                c = R.add(a, b)
                d = R.nn.relu(c)
                e = R.nn.log_softmax(d)
                loss = R.nn.nll_loss(e, label)
                R.output(loss)
            return loss

    return Module


def test_values_against_finite_differences():
    before = _mlp()
    params = before["main"].params
    mod = transform.Gradient("main", require_grads=[params[1], params[2]])(before)
    assert well_formed(mod)
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float32") for s in ((4, 5), (5, 3), (3,)))
    label = np.array([0, 2, 1, 1])

    def run(w_value):
        args = [relaxish.nd.array(a) for a in (x, w_value, b, label)]
        return vm["main_adjoint"](*args)

    loss, (dw, db) = run(w)
    for index in ((0, 0), (2, 1), (4, 2)):
        eps = np.zeros_like(w)
        eps[index] = 1e-2
        slope = (float(run(w + eps)[0].numpy()) - float(run(w - eps)[0].numpy())) / 2e-2
        assert abs(slope - dw.numpy()[index]) < 2e-3


def test_checkpoints_recompute():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                s = R.grad.start_checkpoint(x)
                a = R.exp(s)
                b = R.sin(a)
                e = R.grad.end_checkpoint(b)
                gv = R.sum(e)
                R.output(gv)
            return gv

    mod = transform.Gradient("main")(Before)
    text = mod["main_adjoint"].script()
    assert "checkpoint" not in text and text.count("R.exp(x)") == 2
    assert well_formed(mod)


def test_te_gradient():
    @register_te_gradient("double_grad_of_test")
    def double_grad(grad, x):
        return te.compute(grad.shape, lambda i: grad[i] * te.const(2, "float32") if False else grad[i] + grad[i], "dx")

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))

    def double(t):
        return te.compute(t.shape, lambda i: t[i] + t[i], "double")

    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(bb.call_te_with_grad(double, x, te_grad_name="double_grad_of_test"))
            gv = bb.emit_output(R.sum(y))
        bb.emit_func_output(gv)
    mod = transform.Gradient("main")(bb.finalize())
    assert "call_tir_with_grad" not in str(mod["main_adjoint"])
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    _, (dx,) = vm["main_adjoint"](relaxish.nd.array(np.ones(4, "float32")))
    np.testing.assert_allclose(dx.numpy(), np.full(4, 2.0))


@I.ir_module
class Bad:
    @R.function
    def not_scalar(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            gv = R.exp(x)
            R.output(gv)
        return gv

    @R.function
    def not_float(x: R.Tensor((), "int64")):
        with R.dataflow():
            gv = R.add(x, x)
            R.output(gv)
        return gv

    @R.function
    def no_dataflow(x: R.Tensor((3,), "float32")):
        gv = R.sum(x)
        return gv

    @R.function
    def cast(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.match_cast(x, R.Tensor((3,), "float32"))
            gv = R.sum(y)
            R.output(gv)
        return gv

    @R.function
    def fine(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            gv = R.sum(x)
            R.output(gv)
        return gv


@pytest.mark.parametrize("name", ["not_scalar", "not_float", "no_dataflow", "cast"])
def test_errors(name):
    with pytest.raises(TVMError):
        transform.Gradient(name)(Bad)


def test_missing_function():
    with pytest.raises(ValueError):
        transform.Gradient("missing")(Bad)


def test_errors_of_arguments():
    with pytest.raises(TVMError):
        transform.Gradient("fine", target_index=1)(Bad)
    x = Bad["fine"].params[0]
    with pytest.raises(TVMError):
        transform.Gradient("fine", require_grads=[x, x])(Bad)
    with pytest.raises(TVMError):
        transform.Gradient("fine", require_grads=relax.Var("y", x.struct_info))(Bad)
