"""Small models for devices, with what NumPy and torch say they compute."""

from __future__ import annotations

import numpy as np

from relaxish.script import ir as I
from relaxish.script import relax as R


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@I.ir_module
class MLP:
    """Any number of rows."""

    @R.function
    def main(
        x: R.Tensor(("n", 20), "float32"),
        w1: R.Tensor((20, 48), "float32"),
        b1: R.Tensor((48,), "float32"),
        w2: R.Tensor((48, 10), "float32"),
    ) -> R.Tensor(("n", 10), "float32"):
        with R.dataflow():
            hidden = R.matmul(x, w1)
            biased = R.add(hidden, b1)
            active = R.nn.gelu(biased)
            logits = R.matmul(active, w2)
            out = R.nn.softmax(logits, axis=-1)
            R.output(out)
        return out


def mlp_inputs(rng, rows=7):
    return [rng.standard_normal(s).astype("float32") for s in ((rows, 20), (20, 48), (48,), (48, 10))]


def mlp_result(x, w1, b1, w2):
    from math import erf

    h = x @ w1 + b1
    return softmax((0.5 * h * (1 + np.vectorize(erf)(h / np.sqrt(2)))) @ w2)


@I.ir_module
class CNN:
    @R.function
    def main(
        x: R.Tensor((2, 3, 14, 14), "float32"),
        w1: R.Tensor((8, 3, 3, 3), "float32"),
        w2: R.Tensor((16, 8, 1, 1), "float32"),
        w3: R.Tensor((16, 10), "float32"),
    ) -> R.Tensor((2, 10), "float32"):
        with R.dataflow():
            c1 = R.nn.conv2d(x, w1, padding=1)
            r1 = R.nn.relu(c1)
            p1 = R.nn.max_pool2d(r1, pool_size=2, strides=2)
            c2 = R.nn.conv2d(p1, w2)
            r2 = R.nn.relu(c2)
            mean = R.mean(r2, axis=[2, 3])
            out = R.matmul(mean, w3)
            R.output(out)
        return out


def cnn_inputs(rng):
    shapes = ((2, 3, 14, 14), (8, 3, 3, 3), (16, 8, 1, 1), (16, 10))
    return [rng.standard_normal(s).astype("float32") for s in shapes]


def cnn_result(x, w1, w2, w3):
    import torch
    import torch.nn.functional as F

    x, w1, w2, w3 = (torch.from_numpy(a) for a in (x, w1, w2, w3))
    h = F.max_pool2d(F.relu(F.conv2d(x, w1, padding=1)), 2)
    return (F.relu(F.conv2d(h, w2)).mean((2, 3)) @ w3).numpy()


@I.ir_module
class Attention:
    """Any length."""

    @R.function
    def main(
        q: R.Tensor((2, "s", 16), "float32"),
        k: R.Tensor((2, "s", 16), "float32"),
        v: R.Tensor((2, "s", 16), "float32"),
        g: R.Tensor((16,), "float32"),
        b: R.Tensor((16,), "float32"),
    ) -> R.Tensor((2, "s", 16), "float32"):
        with R.dataflow():
            kt = R.permute_dims(k, [0, 2, 1])
            scores = R.matmul(q, kt)
            scaled = R.multiply(scores, R.const(0.25, "float32"))
            probabilities = R.nn.softmax(scaled, axis=-1)
            mixed = R.matmul(probabilities, v)
            residual = R.add(mixed, q)
            out = R.nn.layer_norm(residual, g, b, axes=[-1])
            R.output(out)
        return out


def attention_inputs(rng, length=5):
    return [rng.standard_normal(s).astype("float32") for s in ((2, length, 16),) * 3 + ((16,), (16,))]


def attention_result(q, k, v, g, b):
    h = softmax(q @ k.transpose(0, 2, 1) * 0.25) @ v + q
    return (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5) * g + b


MODELS = {
    "mlp": (MLP, mlp_inputs, mlp_result),
    "cnn": (CNN, cnn_inputs, cnn_result),
    "attention": (Attention, attention_inputs, attention_result),
}
