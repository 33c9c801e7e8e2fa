"""Random chains of operators in 16-bit floats, with random shapes, static and dynamic, against PyTorch in float64.

``RELAXISH_FUZZ_CASES`` sets how many; each case is its seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs.one_call import PIPELINES, run

from relaxish import op
from relaxish.relax import const
from relaxish.runtime.arrays.dtype import numpy_dtype

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional
CASES = int(os.environ.get("RELAXISH_FUZZ_CASES", "24"))
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


class Chain:
    """A model as two functions of the same inputs, grown one operator at a time from a value of known shape."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = str(self.rng.choice(list(STEP)))
        self.args: list[Any] = []
        self.steps: list[tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...]]] = []
        self.names: list[str] = []
        rank = int(self.rng.choice([2, 3, 4]))
        self.shape = tuple(int(self.rng.integers(1, 40)) for _ in range(rank - 1)) + (int(self.rng.integers(1, 300)),)
        self.start = self.input(self.shape)

    def input(self, shape: tuple[int, ...], low: float = -1.0) -> int:
        data = self.rng.uniform(low, 1, shape) * float(self.rng.choice([0.1, 1.0, 4.0]))
        self.args.append(data.astype(numpy_dtype(self.dtype)))
        return len(self.args) - 1

    def add(self, name: str, ours: Any, theirs: Any, *extra: int) -> None:
        self.names.append(name)
        self.steps.append((ours, theirs, extra))

    def grow(self) -> None:
        getattr(self, str(self.rng.choice(["product", "reduce", "normalise", "pointwise", "running", "image"])))()

    def product(self) -> None:
        wide = int(self.rng.integers(1, 70))
        kept = self.shape[-1]
        if self.rng.random() < 0.3 and len(self.shape) > 2:
            weight = self.input((*self.shape[:-2], kept, wide), float(self.rng.choice([-1, 0])))
        else:
            weight = self.input((kept, wide), float(self.rng.choice([-1, 0])))
        self.add("matmul", op.matmul, torch.matmul, weight)
        self.shape = (*self.shape[:-1], wide)

    def reduce(self) -> None:
        axis = int(self.rng.integers(len(self.shape)))
        keep = bool(self.rng.random() < 0.5) or len(self.shape) == 1
        kind = str(self.rng.choice(["sum", "mean", "max", "min"]))
        theirs = {"max": torch.amax, "min": torch.amin}.get(kind, getattr(torch, kind))
        ours = getattr(op, kind)
        self.add(kind, lambda x: ours(x, [axis], keep), lambda x: theirs(x, axis, keep))
        changed = (1,) if keep else ()
        self.shape = (*self.shape[:axis], *changed, *self.shape[axis + 1 :])

    def normalise(self) -> None:
        width = self.shape[-1]
        kind = str(self.rng.choice(["softmax", "log_softmax", "layer_norm", "rms_norm"]))
        if kind in ("softmax", "log_softmax"):
            axis = int(self.rng.integers(len(self.shape)))
            self.add(kind, lambda x: getattr(op.nn, kind)(x, axis), lambda x: getattr(torch, kind)(x, axis))
            return
        scale, shift = self.input((width,)), self.input((width,))
        if kind == "layer_norm":
            self.add(
                kind,
                lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1], epsilon=0.05),
                lambda x, g, b: functional.layer_norm(x, (width,), g, b, 0.05),
                scale,
                shift,
            )
        else:
            self.add(
                kind,
                lambda x, g: op.nn.rms_norm(x, g, axes=[-1], epsilon=0.05),
                lambda x, g: functional.rms_norm(x, (width,), g, 0.05),
                scale,
            )

    def pointwise(self) -> None:
        kind = str(self.rng.choice(["relu", "gelu", "tanh", "scale", "bias", "residual", "through float32"]))
        if kind in ("relu", "gelu"):
            self.add(kind, getattr(op.nn, kind), getattr(functional, kind))
        elif kind == "tanh":
            self.add(kind, op.tanh, torch.tanh)
        elif kind == "scale":
            dtype = self.dtype
            self.add(kind, lambda x: op.multiply(x, const(0.5, dtype)), lambda x: x * 0.5)
        elif kind == "through float32":
            dtype = self.dtype
            self.add(
                kind, lambda x: op.astype(op.multiply(op.astype(x, "float32"), const(0.75, "float32")), dtype),
                lambda x: x * 0.75,
            )  # fmt: skip
        else:
            shape = self.shape if kind == "residual" else self.shape[-1:]
            self.add(kind, op.add, torch.add, self.input(shape))

    def running(self) -> None:
        axis = int(self.rng.integers(len(self.shape)))
        self.add("cumsum", lambda x: op.cumsum(x, axis), lambda x: torch.cumsum(x, axis))

    def image(self) -> None:
        if len(self.shape) != 4 or self.shape[2] < 3 or self.shape[3] < 3:
            self.pointwise()
            return
        channels = self.shape[1]
        kind = str(self.rng.choice(["conv", "depthwise", "pool"]))
        if kind == "pool":
            self.add(kind, lambda x: op.nn.avg_pool2d(x, (3, 3)), lambda x: functional.avg_pool2d(x, 3, 1))
            self.shape = (*self.shape[:2], self.shape[2] - 2, self.shape[3] - 2)
            return
        groups = channels if kind == "depthwise" else 1
        out = channels if kind == "depthwise" else int(self.rng.integers(1, 20))
        weight = self.input((out, channels // groups, 3, 3))
        self.add(
            kind,
            lambda x, w: op.nn.conv2d(x, w, padding=1, groups=groups),
            lambda x, w: functional.conv2d(x, w, padding=1, groups=groups),
            weight,
        )
        self.shape = (self.shape[0], out, *self.shape[2:])

    def ours(self, *inputs: Any) -> Any:
        value = inputs[self.start]
        for ours, _, extra in self.steps:
            value = ours(value, *(inputs[i] for i in extra))
        return value

    def theirs(self, inputs: list[Any], *, half: bool) -> Any:
        """In float64; with ``half`` every result is rounded as a chain of separate kernels rounds it."""
        value = inputs[self.start]
        for _, theirs, extra in self.steps:
            value = theirs(value, *(inputs[i] for i in extra))
            if half:
                value = value.to(getattr(torch, self.dtype)).double()
        return value


@pytest.mark.parametrize("seed", range(CASES))
def test_chain(seed: int) -> None:
    chain = Chain(seed)
    for _ in range(int(chain.rng.integers(1, 4))):
        chain.grow()
    tensors = [torch.from_numpy(a.astype("float64")) for a in chain.args]
    exact = chain.theirs(tensors, half=False).numpy()
    stepwise = chain.theirs(tensors, half=True).numpy()
    scale = np.abs(exact).max()
    limit = {"float16": 60000.0, "bfloat16": 1e38}[chain.dtype]
    if not np.isfinite(stepwise).all() or scale > limit:
        pytest.skip("leaves the range of the type")
    bound = 3 * np.abs(stepwise - exact).max() + STEP[chain.dtype] * scale
    symbols = {(chain.start, 0): "n"} if chain.rng.random() < 0.5 else {}
    if symbols:
        same = {i for _, _, extra in chain.steps for i in extra}
        symbols |= {(i, 0): "n" for i in same if chain.args[i].shape == chain.args[chain.start].shape}
        fixed = any(chain.args[i].ndim > 2 and (i, 0) not in symbols for i in same) or "residual" in chain.names
        if fixed or "depthwise" in chain.names:
            symbols = {}
    pipeline = PIPELINES[int(chain.rng.integers(3))]
    got = run(chain.ours, chain.args, pipeline, symbols)
    assert got.shape == exact.shape
    assert np.abs(got - exact).max() <= bound, (chain.names, chain.dtype, chain.shape, pipeline, symbols)
