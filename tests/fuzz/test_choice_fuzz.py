"""Nested choices between tensors of one shape and type, by masks of one shape and type, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax import op as R

_ROWS = 3


class Program:
    """A random graph of choices, and the same on NumPy arrays."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        # Default schedules make vectors of some widths and leave others to the code generator.
        self.width = width = (4, 5, 7, 20)[seed % 4]
        self.shapes = ((_ROWS, width), (_ROWS, 1), (1, width), (width,), (1, 1))
        self.vars: dict[tuple, list[tuple[relax.Var, np.ndarray]]] = {}
        self.inputs: list[tuple[relax.Var, np.ndarray]] = []
        for dtype, count in (("bool", 3), ("int32", 2), ("float32", 3)):
            for shape in self.shapes:
                for _ in range(count):
                    self._input(shape, dtype)
        self.indices = self._input((_ROWS,), "int64")

    def _input(self, shape, dtype):
        if dtype == "float32":
            value = self.rng.standard_normal(shape).astype(dtype)
        else:
            low, high = {"bool": (0, 2), "int32": (-3, 4), "int64": (0, _ROWS)}[dtype]
            value = self.rng.integers(low, high, shape).astype(dtype)
        var = relax.Var(f"{dtype}_{len(self.inputs)}", relax.TensorStructInfo(shape, dtype))
        self.inputs.append((var, value))
        self.vars.setdefault((dtype, shape), []).append((var, value))
        return var, value

    def pick(self, dtype):
        """An input of a type, now and then some of its rows in another order."""
        # Masks that stand still along the last axis are taken out of the innermost loop: most are to be of that kind.
        column = self.rng.random() < (0.2 if dtype == "float32" else 0.85)
        found = self.vars[dtype, (_ROWS, 1) if column else self.shapes[self.rng.integers(len(self.shapes))]]
        var, value = found[self.rng.integers(len(found))]
        if value.shape[0] == _ROWS and self.rng.random() < 0.35:
            return R.take(var, self.indices[0], axis=0), value[self.indices[1]]
        return var, value

    def condition(self, depth):
        """A mask: an input, a comparison, or a combination."""
        kind = self.rng.integers(5 if depth else 4)
        if kind < 2:
            return self.pick("bool")
        if kind < 4:
            (a, x), limit = self.pick("int32"), int(self.rng.integers(-2, 3))
            name = ("greater", "less", "equal", "not_equal")[self.rng.integers(4)]
            return getattr(R, name)(a, relax.const(limit, "int32")), getattr(np, name)(x, limit)
        (a, x), (b, y) = self.condition(depth - 1), self.condition(depth - 1)
        if self.rng.random() < 0.5:
            return R.logical_and(a, b), np.logical_and(x, y)
        return R.logical_not(R.logical_or(a, b)), ~np.logical_or(x, y)

    def value(self, depth):
        """A number: an input, a constant, or a choice."""
        if depth == 0 or self.rng.random() < 0.15:
            if self.rng.random() < 0.3:
                number = float(self.rng.integers(-5, 6))
                return relax.const(number, "float32"), np.float32(number)
            return self.pick("float32")
        (c, m), (a, x), (b, y) = self.condition(1), self.value(depth - 1), self.value(depth - 1)
        if self.rng.random() < 0.2:
            return R.add(R.where(c, a, b), b), np.where(m, x, y) + y
        return R.where(c, a, b), np.where(m, x, y)

    def build(self):
        """The module, its arguments, and what it must give: the choice and a mask of its own."""
        root, want = self.value(4)
        builder = relax.BlockBuilder()
        used = [v for v, _ in self.inputs]
        with builder.function("main", used):
            with builder.dataflow():
                full = R.add(root, R.full((_ROWS, self.width), relax.const(0, "float32"), "float32"))
                out = builder.emit_output(builder.normalize(full))
            builder.emit_func_output(out)
        return builder.get(), [v for _, v in self.inputs], np.broadcast_to(want, (_ROWS, self.width))


def check(seed):
    module, arrays, want = Program(seed).build()
    vm = relax.VirtualMachine(relax.build(module, "llvm"), relaxish.cpu())
    out = vm["main"](*[relaxish.nd.array(a) for a in arrays]).numpy()
    np.testing.assert_array_equal(out, want, err_msg=f"program {seed}")


@pytest.mark.parametrize("seed", range(12))
def test_choices(seed):
    check(seed)


@pytest.mark.slow
def test_many_choices():
    for seed in range(1000, 1100):
        check(seed)
