"""Random graphs: machine code, bytecode and the interpreting mode agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.relax import op
from relaxish.runtime import VirtualMachine, cpu

pytest.importorskip("llvmlite")

UNARY = {
    "negative": np.negative, "exp": lambda a: np.exp(a), "tanh": np.tanh, "abs": np.abs, "square": np.square,
    "floor": np.floor, "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
}  # fmt: skip
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


class Graph:
    """A random function of two inputs, in Relax and in NumPy at once."""

    def __init__(self, seed: int, dynamic: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.n, self.k = 3, 5
        rows = tir.Var("n", "int64") if dynamic else self.n
        self.inputs = [self.rng.standard_normal((self.n, self.k)).astype("float32") for _ in range(2)]
        info = relax.TensorStructInfo([rows, self.k], "float32")
        params = [relax.Var(name, info) for name in "xy"]
        self.values = list(zip(params, self.inputs))
        self.builder = relax.BlockBuilder()
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for _ in range(int(self.rng.integers(3, 14))):
                    self.step()
                chosen = [self.values[i] for i in self.rng.choice(len(self.values), 2)]
                chosen.append(self.values[-1])
                self.expected = [v for _, v in chosen]
                out = self.builder.emit_output(
                    relax.Tuple([e for e, _ in chosen[:1]] + [relax.Tuple([e for e, _ in chosen[1:]])])
                )
            self.builder.emit_func_output(out)
        self.mod = self.builder.finalize()

    def pick(self, rank=None):
        found = [v for v in self.values if rank is None or v[1].ndim == rank]
        return found[int(self.rng.integers(len(found)))]

    def add(self, expr, value):
        # Values stay small, so that differences stay meaningful.
        self.values.append((self.builder.emit(expr), np.asarray(value, "float32")))

    def step(self) -> None:
        kind = self.rng.choice(
            ["unary", "binary", "reduce", "transpose", "matmul", "concat", "softmax", "constant", "where", "take"]
        )
        e, v = self.pick(2)
        if kind == "unary":
            name = str(self.rng.choice(sorted(UNARY)))
            squashed, small = self.builder.emit(op.tanh(e)), np.tanh(v)
            self.add(getattr(op, name)(squashed), UNARY[name](small))
        elif kind == "binary":
            name = str(self.rng.choice(sorted(BINARY)))
            others = [w for w in self.values if w[1].shape == v.shape]
            f, w = others[int(self.rng.integers(len(others)))]
            self.add(getattr(op, name)(e, f), BINARY[name](v, w))
        elif kind == "reduce":
            name, axis = str(self.rng.choice(["sum", "max", "mean"])), int(self.rng.integers(2))
            self.add(
                op.subtract(e, getattr(op, name)(e, axis=[axis], keepdims=True)),
                v - getattr(np, name)(v, axis=axis, keepdims=True),
            )
        elif kind == "transpose":
            self.add(op.permute_dims(e, [1, 0]), v.T)
        elif kind == "matmul":
            small, value = op.tanh(e), np.tanh(v)
            self.add(op.matmul(small, op.permute_dims(small, [1, 0])), value @ value.T)
        elif kind == "concat":
            self.add(op.concat([e, e], axis=1), np.concatenate([v, v], 1))
        elif kind == "softmax":
            p = np.exp(v - v.max(-1, keepdims=True))
            self.add(op.nn.softmax(e, axis=-1), p / p.sum(-1, keepdims=True))
        elif kind == "constant":
            c = np.float32(self.rng.standard_normal())
            self.add(op.multiply(e, relax.const(c)), v * c)
        elif kind == "where":
            self.add(
                op.where(op.greater(e, relax.const(np.float32(0.25))), e, op.negative(e)), np.where(v > 0.25, v, -v)
            )
        else:
            order = self.rng.integers(0, 3, 4).astype("int64")
            self.add(op.take(e, relax.const(order), axis=0), v[order])


def flat(result):
    return [result[0], *result[1]]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_all_modes_agree(seed, dynamic):
    graph = Graph(seed, dynamic)
    for mode in ("bytecode", "interpret"):
        machine = VirtualMachine(relaxish.build(graph.mod, "llvm", exec_mode=mode), cpu())
        for got, want in zip(flat(machine["main"](*graph.inputs)), graph.expected):
            np.testing.assert_allclose(got.numpy(), want, rtol=2e-3, atol=2e-4, err_msg=mode)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_more_graphs(seed):
    test_all_modes_agree(seed, bool(seed % 2))
