"""16-bit models are as exact as PyTorch's: sums in float32, in every pipeline, for static and dynamic shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs.one_call import PIPELINES, run

from relaxish import op
from relaxish.relax import TupleGetItem
from relaxish.runtime.arrays.dtype import numpy_dtype

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional
nn = op.nn
RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """Ours, PyTorch's, the inputs, and which dimensions are dynamic where any are."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: list[Any]
    dynamic: dict[tuple[int, int], str]


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Any:
    return RNG.uniform(low, high, shape)


def first(*args: Any, **kwargs: Any) -> Any:
    return TupleGetItem(nn.batch_norm(*args, **kwargs), 0)


ROWS = {(0, 0): "n"}
WIDE = uniform(8, 1024, low=-500, high=500)
IMAGES = uniform(4, 16, 8, 8, low=-500, high=500)
CHANNELS = [uniform(16, low=-1), uniform(16, low=-1)]
FEATURES = [uniform(1024, low=-1), uniform(1024, low=-1)]
CASES = {
    "matmul": Case(op.matmul, torch.matmul, [uniform(5, 4096), uniform(4096, 33)], ROWS),
    "signed matmul": Case(op.matmul, torch.matmul, [uniform(37, 2048, low=-1), uniform(2048, 40)], ROWS),
    "batched": Case(op.matmul, torch.matmul, [uniform(3, 17, 1024), uniform(3, 1024, 16)], {(0, 0): "n", (1, 0): "n"}),
    "broadcast": Case(op.matmul, torch.matmul, [uniform(2, 1, 7, 512), uniform(3, 512, 9)], {(0, 2): "n"}),
    "matrix vector": Case(op.matmul, torch.matmul, [uniform(64, 3000), uniform(3000)], ROWS),
    "dot": Case(op.matmul, torch.matmul, [uniform(3000), uniform(3000)], {(0, 0): "n", (1, 0): "n"}),
    "linear": Case(
        lambda x, w, b: nn.relu(op.linear(x, w, b)),
        lambda x, w, b: torch.relu(functional.linear(x, w, b)),
        [uniform(9, 1024), uniform(64, 1024), uniform(64)],
        ROWS,
    ),
    "einsum": Case(
        lambda a, b: op.einsum((a, b), "bij,bkj->bik"),
        lambda a, b: torch.einsum("bij,bkj->bik", a, b),
        [uniform(2, 5, 700), uniform(2, 6, 700)],
        {(0, 1): "n"},
    ),
    "conv1d": Case(
        lambda x, w: nn.conv1d(x, w, padding=1),
        lambda x, w: functional.conv1d(x, w, padding=1),
        [uniform(2, 64, 33), uniform(16, 64, 3)],
        ROWS,
    ),
    "conv2d": Case(
        lambda x, w: nn.conv2d(x, w, padding=1, strides=2),
        lambda x, w: functional.conv2d(x, w, padding=1, stride=2),
        [uniform(1, 67, 15, 15), uniform(31, 67, 3, 3)],
        ROWS,
    ),
    "depthwise": Case(
        lambda x, w: nn.conv2d(x, w, padding=3, groups=32),
        lambda x, w: functional.conv2d(x, w, padding=3, groups=32),
        [uniform(1, 32, 20, 20), uniform(32, 1, 7, 7)],
        ROWS,
    ),
    "grouped": Case(
        lambda x, w: nn.conv2d(x, w, padding=1, groups=4),
        lambda x, w: functional.conv2d(x, w, padding=1, groups=4),
        [uniform(1, 128, 9, 9), uniform(32, 32, 3, 3)],
        ROWS,
    ),
    "conv3d": Case(
        lambda x, w: nn.conv3d(x, w, padding=1),
        lambda x, w: functional.conv3d(x, w, padding=1),
        [uniform(1, 32, 5, 6, 7), uniform(8, 32, 3, 3, 3)],
        ROWS,
    ),
    "transposed conv": Case(
        lambda x, w: nn.conv2d_transpose(x, w, strides=2, padding=1),
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1),
        [uniform(1, 128, 7, 7), uniform(128, 16, 4, 4)],
        ROWS,
    ),
    "sum": Case(lambda x: op.sum(x, [1]), lambda x: x.sum(1), [uniform(8, 4096)], {(0, 1): "n"}),
    "sum of columns": Case(lambda x: op.sum(x, [0]), lambda x: x.sum(0), [uniform(4096, 9)], ROWS),
    "sum of all": Case(op.sum, torch.sum, [uniform(64, 64)], ROWS),
    "mean": Case(lambda x: op.mean(x, [1]), lambda x: x.mean(1), [uniform(8, 4096, high=60)], ROWS),
    "mean of many": Case(op.mean, torch.mean, [uniform(3, 70001)], {(0, 0): "n", (0, 1): "m"}),
    "layer norm of 257": Case(
        lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1], epsilon=0.05),
        lambda x, g, b: functional.layer_norm(x, (257,), g, b, 0.05),
        [uniform(8, 257, low=3.9, high=4), uniform(257), uniform(257)],
        ROWS,
    ),
    "variance": Case(lambda x: op.variance(x, [1]), lambda x: x.var(1, False), [uniform(8, 4096, high=300)], ROWS),
    "product": Case(lambda x: op.prod(x, [1]), lambda x: x.prod(1), [uniform(8, 400, low=0.98, high=1.02)], ROWS),
    "running sum": Case(lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1), [uniform(8, 3000)], ROWS),
    "softmax": Case(nn.softmax, lambda x: x.softmax(-1), [uniform(8, 4096, high=3)], {(0, 1): "n"}),
    "log softmax": Case(nn.log_softmax, lambda x: x.log_softmax(-1), [uniform(8, 4096, high=3)], ROWS),
    "layer norm": Case(
        lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1]),
        lambda x, g, b: functional.layer_norm(x, (1024,), g, b),
        [WIDE, *FEATURES],
        ROWS,
    ),
    "rms norm": Case(
        lambda x, g: nn.rms_norm(x, g, axes=[-1]),
        lambda x, g: functional.rms_norm(x, (1024,), g, 1e-5),
        [WIDE, FEATURES[0]],
        ROWS,
    ),
    "group norm": Case(
        lambda x, g, b: nn.group_norm(x, g, b, 4, 1, [2, 3]),
        lambda x, g, b: functional.group_norm(x, 4, g, b),
        [IMAGES, *CHANNELS],
        ROWS,
    ),
    "instance norm": Case(
        lambda x, g, b: nn.instance_norm(x, g, b, 1, [2, 3]),
        lambda x, g, b: functional.instance_norm(x, None, None, g, b),
        [IMAGES, *CHANNELS],
        ROWS,
    ),
    "batch norm": Case(
        lambda x, g, b, m, v: first(x, g, b, m, v, axis=1, training=True),
        lambda x, g, b, m, v: functional.batch_norm(x, m.clone(), v.clone(), g, b, True),
        [IMAGES, *CHANNELS, CHANNELS[0], np.abs(CHANNELS[1]) + 0.1],
        ROWS,
    ),
    "average pool": Case(
        lambda x: nn.avg_pool2d(x, (16, 16)),
        lambda x: functional.avg_pool2d(x, 16, 1),
        [uniform(1, 8, 20, 20, high=50)],
        ROWS,
    ),
    "global pool": Case(
        lambda x: nn.adaptive_avg_pool2d(x, (1, 1)),
        lambda x: functional.adaptive_avg_pool2d(x, 1),
        [uniform(1, 8, 56, 56, high=50)],
        ROWS,
    ),
}
WAYS = list(itertools.product(PIPELINES, (False, True)))


def check(case: Case, dtype: str, ways: list[tuple[str | None, bool]]) -> None:
    """At most twice PyTorch's own error, or a quarter of the last place of the largest result."""
    kind = getattr(torch, dtype)
    args = [a.astype(numpy_dtype(dtype)) for a in case.args]
    tensors = [torch.from_numpy(a.astype("float32")).to(kind) for a in args]
    exact = case.theirs(*(t.double() for t in tensors)).numpy()
    error = np.abs(case.theirs(*tensors).double().numpy() - exact).max()
    step = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    bound = 2 * error + 0.25 * step * np.abs(exact).max()
    for pipeline, dynamic in ways:
        got = run(case.ours, args, pipeline, case.dynamic if dynamic else {})
        assert np.abs(got - exact).max() <= bound, (pipeline, dynamic)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(CASES))
def test_as_exact_as_torch(name: str, dtype: str) -> None:
    """By one pipeline, static or dynamic; which one goes round."""
    turn = list(CASES).index(name) + (dtype == "bfloat16") * 3
    check(CASES[name], dtype, [WAYS[turn % len(WAYS)]])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(CASES))
def test_as_exact_as_torch_every_way(name: str, dtype: str) -> None:
    check(CASES[name], dtype, WAYS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_softmax_of_infinities(pipeline: str | None, dtype: str) -> None:
    """The largest element starts from negative infinity although its buffer is wide: hidden rows are NaN, as ever."""
    x = RNG.uniform(-60000, 60000, (4, 40)).astype(numpy_dtype(dtype))
    x[0, 3:], x[1], x[2, 5], x[3] = -np.inf, -np.inf, np.inf, np.nan
    got = run(nn.softmax, [x], pipeline, {})
    wanted = torch.from_numpy(x.astype("float32")).softmax(-1).numpy()
    np.testing.assert_allclose(got, wanted, atol=2.0**-8)
