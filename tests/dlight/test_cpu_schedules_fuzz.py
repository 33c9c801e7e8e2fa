"""Default CPU schedules on random shapes, constant and dynamic, against the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxish import interp, te, tir, topi
from relaxish.dlight import ApplyDefaultSchedule, default_cpu_rules
from relaxish.driver import build_tir
from relaxish.ir import IRModule
from relaxish.target import Target

Make = Callable[[np.random.Generator], list[Any]]
TARGETS = ["llvm -num-cores 2", "llvm -num-cores 1"]


def tensor(shape: Any, name: str, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(tuple(shape), dtype, name)


def dims(rng: np.random.Generator, count: int, low: int = 1, high: int = 40) -> list[int]:
    return [int(n) for n in rng.integers(low, high, count)]


def matmul(rng: np.random.Generator) -> list[Any]:
    m, n, k = dims(rng, 3)
    ta, tb = (bool(rng.integers(2)) for _ in range(2))
    a, b = tensor((k, m) if ta else (m, k), "A"), tensor((n, k) if tb else (k, n), "B")
    return [a, b, topi.nn.relu(topi.nn.matmul(a, b, transpose_a=ta, transpose_b=tb))]


def batch_matmul(rng: np.random.Generator) -> list[Any]:
    b, m, n, k = dims(rng, 4, high=20)
    x, y, bias = tensor((b, m, k), "X"), tensor((b, k, n), "Y"), tensor((n,), "bias")
    return [x, y, bias, topi.add(topi.matmul(x, y), bias)]


def conv(rng: np.random.Generator) -> list[Any]:
    size, cin, cout = dims(rng, 3, 5, 20)
    kernel, stride, pad = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(0, 2))
    x, w = tensor((1, size, size + 1, cin), "X"), tensor((kernel, kernel, cin, cout), "W")
    bias = tensor((cout,), "bias")
    out = topi.nn.relu(topi.add(topi.nn.conv2d(x, w, stride, pad, 1, "NHWC", "HWIO"), bias))
    return [x, w, bias, out]


def pool(rng: np.random.Generator) -> list[Any]:
    size, channels = dims(rng, 2, 6, 20)
    x = tensor((1, channels, size, size), "X")
    kind = ["max", "avg"][int(rng.integers(2))]
    return [x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), kind)]


def reduction(rng: np.random.Generator) -> list[Any]:
    rank = int(rng.integers(1, 4))
    x = tensor(dims(rng, rank), "X")
    axes = sorted({int(a) for a in rng.integers(0, rank, rank)})
    op = [topi.sum, topi.max, topi.min][int(rng.integers(3))]
    return [x, topi.multiply(op(x, axes, bool(rng.integers(2))), 0.5)]


def softmax(rng: np.random.Generator) -> list[Any]:
    x = tensor(dims(rng, int(rng.integers(2, 4))), "X")
    return [x, topi.nn.softmax(x, int(rng.integers(0, len(x.shape))))]


def layer_norm(rng: np.random.Generator) -> list[Any]:
    x = tensor(dims(rng, 3), "X")
    gamma, beta = tensor(x.shape[-1:], "gamma"), tensor(x.shape[-1:], "beta")
    return [x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [2], 1e-5)]


def transpose(rng: np.random.Generator) -> list[Any]:
    x = tensor(dims(rng, 3), "X")
    return [x, topi.transpose(x, [int(a) for a in rng.permutation(3)])]


def concat(rng: np.random.Generator) -> list[Any]:
    a, b, c = dims(rng, 3)
    x, y = tensor((a, b), "X"), tensor((a, c), "Y")
    return [x, y, topi.concatenate([x, y], 1)]


def gather(rng: np.random.Generator) -> list[Any]:
    rows, width, count = dims(rng, 3, 2)
    x, at = tensor((rows, width), "X"), tensor((count,), "at", "int32")
    return [x, at, topi.take(x, at, 0, mode="clip")]


def elementwise(rng: np.random.Generator) -> list[Any]:
    shape = dims(rng, int(rng.integers(1, 4)))
    x, y = tensor(shape, "X"), tensor(shape[-1:], "Y")
    return [x, y, topi.tanh(topi.add(topi.exp(topi.minimum(x, 1.0)), y))]


def dynamic_matmul(rng: np.random.Generator) -> list[Any]:
    n, k = dims(rng, 2)
    m = tir.SizeVar("m", "int64")
    a, b = tensor((m, k), "A"), tensor((k, n), "B")
    return [a, b, topi.nn.relu(topi.matmul(a, b))]


def dynamic_softmax(rng: np.random.Generator) -> list[Any]:
    m, n = tir.SizeVar("m", "int64"), tir.SizeVar("n", "int64")
    x = tensor((m, n), "X")
    return [x, topi.nn.softmax(x)]


def dynamic_sum(rng: np.random.Generator) -> list[Any]:
    m, n = tir.SizeVar("m", "int64"), tir.SizeVar("n", "int64")
    x = tensor((m, n), "X")
    return [x, topi.sum(x, int(rng.integers(2)))]


MAKERS: list[Make] = [
    matmul, batch_matmul, conv, pool, reduction, softmax, layer_norm, transpose, concat, gather, elementwise,
    dynamic_matmul, dynamic_softmax, dynamic_sum,
]  # fmt: skip


def arrays_for(tensors: list[Any], rng: np.random.Generator) -> list[np.ndarray]:
    sizes: dict[Any, int] = {}
    found = []
    for item in tensors:
        shape = []
        for extent in item.shape:
            value = getattr(extent, "value", extent)
            shape.append(value if isinstance(value, int) else sizes.setdefault(extent, int(rng.integers(1, 40))))
        if item.dtype == "int32":
            found.append(rng.integers(0, 2, shape).astype("int32"))
        else:
            found.append(rng.standard_normal(shape).astype("float32"))
    return found


def check(make: Make, seed: int, target: str) -> None:
    rng = np.random.default_rng(seed)
    tensors = make(rng)
    func = te.create_prim_func(tensors)
    arrays = arrays_for(tensors, rng)
    want = [a.copy() for a in arrays]
    interp.run_prim_func(func, want)
    with Target(target) as made:
        scheduled = ApplyDefaultSchedule(*default_cpu_rules(made))(IRModule({"main": func}))["main"]
    assert scheduled.attrs["tir.is_scheduled"], f"no rule takes {make.__name__}"
    build_tir(scheduled, target)(*arrays)
    np.testing.assert_allclose(arrays[-1], want[-1], rtol=1e-4, atol=1e-4, err_msg=f"{make.__name__} seed {seed}")


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_results(make: Make) -> None:
    for seed in range(2):
        check(make, seed, TARGETS[seed % 2])


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_many_results(make: Make) -> None:
    for seed in range(2, 20):
        check(make, seed, TARGETS[seed % 2])
