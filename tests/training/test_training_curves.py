"""Loss curves of a small perceptron and a small convolutional network, beside torch's."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax.training import SetupTrainer, Trainer, loss, optimizer
from relaxish.script import ir as I
from relaxish.script import relax as R

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")


@I.ir_module
class Perceptron:
    I.module_attrs({"param_num": 4, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((32, 20), "float32"),
        w0: R.Tensor((20, 48), "float32"),
        b0: R.Tensor((48,), "float32"),
        w1: R.Tensor((48, 5), "float32"),
        b1: R.Tensor((5,), "float32"),
    ):
        with R.dataflow():
            h = R.nn.relu(R.add(R.matmul(x, w0), b0))
            out = R.add(R.matmul(h, w1), b1)
            R.output(out)
        return out


@I.ir_module
class Convolutional:
    I.module_attrs({"param_num": 5, "state_num": 2})

    @R.function
    def backbone(
        x: R.Tensor((16, 3, 10, 10), "float32"),
        k0: R.Tensor((8, 3, 3, 3), "float32"),
        gamma: R.Tensor((8,), "float32"),
        beta: R.Tensor((8,), "float32"),
        w: R.Tensor((128, 4), "float32"),
        b: R.Tensor((4,), "float32"),
        mean: R.Tensor((8,), "float32"),
        var: R.Tensor((8,), "float32"),
    ):
        with R.dataflow():
            c = R.nn.conv2d(x, k0)
            n = R.nn.batch_norm(c, gamma, beta, mean, var, axis=1, epsilon=1e-5, momentum=0.1)
            p = R.nn.max_pool2d(R.nn.relu(n[0]), pool_size=(2, 2), strides=(2, 2))
            f = R.reshape(p, (16, 128))
            out = R.add(R.matmul(f, w), b)
            new_mean = n[1]
            new_var = n[2]
            R.output(out, new_mean, new_var)
        return out, new_mean, new_var


def data(shape, classes, steps):
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((classes, *shape[1:])).astype("float32")
    for _ in range(steps):
        labels = rng.integers(0, classes, shape[0])
        noise = rng.standard_normal(shape).astype("float32")
        yield centers[labels] + noise, labels.astype("int64")


def trainer_of(mod, optim, batch, params, states=None):
    info = mod["backbone"].ret_struct_info
    predictions = info.fields[0] if isinstance(info, relax.TupleStructInfo) else info
    setup = SetupTrainer(loss.CrossEntropyLoss(), optim, [predictions, relax.TensorStructInfo((batch,), "int64")])
    made = setup(mod)
    trainer = Trainer(made, relaxish.VirtualMachine(relaxish.build(made, "llvm"), relaxish.cpu()), relaxish.cpu())
    trainer.load_params(params)
    if states:
        trainer.load_states(states)
    return trainer


def init(shapes, seed):
    rng = np.random.default_rng(seed)
    return {n: (rng.standard_normal(s) / np.sqrt(np.prod(s[:1]) * 4)).astype("float32") for n, s in shapes.items()}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: optimizer.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (lambda: optimizer.MomentumSGD(0.05, 0.9, nesterov=True),
         lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True)),
        (lambda: optimizer.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    ],
    ids=["sgd", "momentum", "adam"],
)  # fmt: skip
def test_perceptron(ours, theirs):
    start = init({"w0": (20, 48), "b0": (48,), "w1": (48, 5), "b1": (5,)}, 1)
    trainer = trainer_of(Perceptron, ours(), 32, start)
    p = {n: torch.nn.Parameter(torch.tensor(v)) for n, v in start.items()}
    judge = theirs(list(p.values()))
    curve, expected = [], []
    for x, label in data((32, 20), 5, 30):
        judge.zero_grad()
        out = torch.relu(torch.tensor(x) @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]
        value = torch.nn.functional.cross_entropy(out, torch.tensor(label))
        value.backward()
        judge.step()
        expected.append(float(value.detach()))
        curve.append(float(trainer.update(x, label).numpy()))
    np.testing.assert_allclose(curve, expected, rtol=2e-3, atol=1e-4)
    assert np.mean(curve[-5:]) < 0.5 * curve[0]
    for name, value in trainer.export_params().items():
        np.testing.assert_allclose(value.numpy(), p[name].detach().numpy(), rtol=1e-2, atol=1e-3)


def test_convolutional_network():
    start = init({"k0": (8, 3, 3, 3), "w": (128, 4), "b": (4,)}, 2)
    start |= {"gamma": np.ones(8, "float32"), "beta": np.zeros(8, "float32")}
    states = {"mean": np.zeros(8, "float32"), "var": np.ones(8, "float32")}
    trainer = trainer_of(Convolutional, optimizer.SGD(0.05), 16, start, states)
    p = {n: torch.nn.Parameter(torch.tensor(v)) for n, v in start.items()}
    judge = torch.optim.SGD(list(p.values()), 0.05)
    f = torch.nn.functional
    curve, expected = [], []
    for x, label in data((16, 3, 10, 10), 4, 15):
        judge.zero_grad()
        n = f.batch_norm(f.conv2d(torch.tensor(x), p["k0"]), None, None, p["gamma"], p["beta"], True, 0.1, 1e-5)
        out = f.max_pool2d(torch.relu(n), 2).reshape(16, 128) @ p["w"] + p["b"]
        value = f.cross_entropy(out, torch.tensor(label))
        value.backward()
        judge.step()
        expected.append(float(value.detach()))
        curve.append(float(trainer.update(x, label).numpy()))
    np.testing.assert_allclose(curve, expected, rtol=5e-3, atol=1e-3)
    assert curve[-1] < 0.5 * curve[0]
    moved = trainer.export_states()["mean"].numpy()
    assert np.abs(moved).max() > 0
