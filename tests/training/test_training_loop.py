"""Losses, optimizers and a whole training loop against torch."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.ir import assert_structural_equal
from relaxish.relax.training import AppendLoss, SetupTrainer, Trainer, loss, optimizer
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import TVMError

INFO = relax.TensorStructInfo((3, 5), "float32")


def test_l1_loss():
    @R.function
    def l1_loss(predictions: R.Tensor((3, 5), "float32"), targets: R.Tensor((3, 5), "float32")):
        with R.dataflow():
            lv = R.subtract(predictions, targets)
            lv1 = R.abs(lv)
            gv = R.mean(lv1)
            R.output(gv)
        return gv

    assert_structural_equal(loss.L1Loss()(INFO, INFO), l1_loss)


def test_mse_loss():
    @R.function
    def mse_loss(predictions: R.Tensor((3, 5), "float32"), targets: R.Tensor((3, 5), "float32")):
        with R.dataflow():
            lv = R.subtract(predictions, targets)
            lv1 = R.multiply(lv, lv)
            gv = R.sum(lv1)
            R.output(gv)
        return gv

    assert_structural_equal(loss.MSELoss("sum")(INFO, INFO), mse_loss)


def test_cross_entropy_loss():
    @R.function
    def cross_entropy_loss(
        predictions: R.Tensor((3, 5), "float32"), targets: R.Tensor((3,), "int64"), weights: R.Tensor((5,), "float32")
    ):
        with R.dataflow():
            lv = R.nn.log_softmax(predictions, axis=-1)
            gv = R.nn.nll_loss(lv, targets, weights, reduction="mean", ignore_index=-100)
            R.output(gv)
        return gv

    made = loss.CrossEntropyLoss()(INFO, relax.TensorStructInfo((3,), "int64"), relax.TensorStructInfo((5,), "float32"))
    assert_structural_equal(made, cross_entropy_loss)


def test_bad_reduction():
    with pytest.raises(ValueError, match="Reduction"):
        loss.L1Loss("median")


def test_sgd():
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    made = optimizer.SGD(0.01).init(x).get_function()

    @R.function
    def SGD(
        params: R.Tuple(R.Tensor((3,), "float32")),
        gradients: R.Tuple(R.Tensor((3,), "float32")),
        optim_states: R.Tuple(R.Tensor((), "int64")),
    ):
        with R.dataflow():
            num_steps = optim_states[0]
            num_steps_new = R.add(num_steps, R.const(1, "int64"))
            x = params[0]
            x_grad = gradients[0]
            lv = R.multiply(R.const(0.01, "float32"), x_grad)
            x_new = R.subtract(x, lv)
            params_new = (x_new,)
            optim_states_new = (num_steps_new,)
            R.output(params_new, optim_states_new)
        return (params_new, optim_states_new)

    assert_structural_equal(made, SGD)


def test_optimizer_errors():
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    half = relax.Var("h", relax.TensorStructInfo((3,), "float16"))
    whole = relax.Var("i", relax.TensorStructInfo((3,), "int32"))
    with pytest.raises(RuntimeError, match="init"):
        optimizer.Adam(0.1).get_function()
    for bad in ([x, half], [x, x], [whole], [relax.const(1.0)]):
        with pytest.raises(ValueError):
            optimizer.SGD(0.1).init(bad)


def test_optimizer_parameters_that_are_no_variables():
    with pytest.raises(ValueError, match="is not a Var"):
        optimizer.SGD(0.1).init(relax.const(1.0))
    with pytest.raises(ValueError, match="is not a Var"):
        optimizer.SGD(0.1).init([relax.const(1.0)])
    assert optimizer.SGD(0.1).init([]).param_list == []


@pytest.mark.parametrize("make", ["sgd", "momentum", "adam"])
def test_optimizers_against_torch(make):
    torch = pytest.importorskip("torch")
    ours = {
        "sgd": lambda: optimizer.SGD(0.1, 0.02),
        "momentum": lambda: optimizer.MomentumSGD(0.1, 0.9, 0.0, 0.02, True),
        "adam": lambda: optimizer.Adam(0.1, (0.8, 0.9), 1e-8, 0.02),
    }[make]()
    rng = np.random.default_rng(0)
    start = rng.standard_normal((4, 3)).astype("float32")
    theirs = torch.nn.Parameter(torch.tensor(start.copy()))
    judge = {
        "sgd": lambda: torch.optim.SGD([theirs], 0.1, weight_decay=0.02),
        "momentum": lambda: torch.optim.SGD([theirs], 0.1, 0.9, 0, 0.02, True),
        "adam": lambda: torch.optim.Adam([theirs], 0.1, (0.8, 0.9), 1e-8, 0.02),
    }[make]()
    p = relax.Var("p", relax.TensorStructInfo((4, 3), "float32"))
    func = ours.init(p).get_function()
    mod = relax.transform.LegalizeOps()(relaxish.IRModule({func.attrs["global_symbol"]: func}))
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    params, states = (relaxish.nd.array(start),), ours.state
    for _ in range(3):
        grad = rng.standard_normal((4, 3)).astype("float32")
        params, states = vm[func.attrs["global_symbol"]](tuple(params), (relaxish.nd.array(grad),), tuple(states))
        theirs.grad = torch.tensor(grad)
        judge.step()
    np.testing.assert_allclose(params[0].numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


@I.ir_module
class Backbone:
    I.module_attrs({"param_num": 2, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((8, 5), "float32"), w: R.Tensor((5, 3), "float32"), b: R.Tensor((3,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            out = R.add(lv, b)
            R.output(out)
        return out


def test_append_loss():
    @R.function
    def l2(out: R.Tensor((8, 3), "float32"), label: R.Tensor((8, 3), "float32")):
        with R.dataflow():
            d = R.subtract(out, label)
            gv = R.sum(d)
            R.output(gv)
        return gv

    @R.function
    def backbone_loss(
        x: R.Tensor((8, 5), "float32"),
        w: R.Tensor((5, 3), "float32"),
        b: R.Tensor((3,), "float32"),
        label: R.Tensor((8, 3), "float32"),
    ):
        with R.dataflow():
            lv = R.matmul(x, w)
            out = R.add(lv, b)
            d = R.subtract(out, label)
            gv = R.sum(d)
            R.output(gv)
        return gv

    assert_structural_equal(AppendLoss("backbone", l2)(Backbone)["backbone_loss"], backbone_loss)

    @R.function
    def vector(out: R.Tensor((8, 3), "float32"), label: R.Tensor((8, 3), "float32")):
        with R.dataflow():
            gv = R.subtract(out, label)
            R.output(gv)
        return gv

    with pytest.raises(TVMError, match="scalar"):
        AppendLoss("backbone", vector)(Backbone)


def test_trainer_against_torch():
    torch = pytest.importorskip("torch")
    infos = [relax.TensorStructInfo((8, 3), "float32"), relax.TensorStructInfo((8,), "int64")]
    setup = SetupTrainer(loss.CrossEntropyLoss(), optimizer.SGD(0.2), infos)
    mod = setup(Backbone)
    assert {v.name_hint for v in mod.functions} >= {"backbone", "backbone_loss", "backbone_loss_adjoint", "optimizer"}
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    trainer = Trainer(mod, vm, relaxish.cpu())
    rng = np.random.default_rng(0)
    w0, b0 = rng.standard_normal((5, 3)).astype("float32"), np.zeros(3, "float32")
    trainer.load_params({"w": w0, "b": b0})
    w, b = (torch.nn.Parameter(torch.tensor(v)) for v in (w0, b0))
    judge = torch.optim.SGD([w, b], 0.2)
    x = rng.standard_normal((8, 5)).astype("float32")
    label = rng.integers(0, 3, 8)
    for _ in range(5):
        judge.zero_grad()
        expected = torch.nn.functional.cross_entropy(torch.tensor(x) @ w + b, torch.tensor(label))
        expected.backward()
        judge.step()
        got = trainer.update(x, label)
        assert abs(float(got.numpy()) - float(expected.detach())) < 1e-4
    np.testing.assert_allclose(trainer.export_params()["w"].numpy(), w.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        trainer.predict(x).numpy(), (torch.tensor(x) @ w + b).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(ValueError):
        trainer.load_params({"nope": w0})


def test_setup_checks_the_backbone():
    bare = Backbone.without_attr("param_num")
    setup = SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [relax.TensorStructInfo((8, 3), "float32")] * 2)
    with pytest.raises(ValueError, match="param_num"):
        setup(bare)
