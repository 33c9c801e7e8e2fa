"""Compiled logarithms of ``1 + x`` keep the digits of small numbers."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.driver import build_tir
from relaxish.runtime import nd
from relaxish.script import from_source
from relaxish.tir.schedule import Schedule


def _small(dtype: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    least = {"float16": -5, "float32": -12, "float64": -25}[dtype]
    values = rng.choice([-1, 1], count) * 10.0 ** rng.uniform(least, -0.1, count)
    values[:5] = [0.0, -0.0, np.inf, np.nan, -2.0]
    return values.astype(dtype)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("form", ["A[v] + T.{0}(1)", "T.{0}(1) + A[v]"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_small_numbers_keep_their_digits(dtype, form, vector):
    func = from_source(f"""@T.prim_func
def main(A: T.Buffer((256,), "{dtype}"), B: T.Buffer((256,), "{dtype}")):
    for i in range(256):
        with T.block("B"):
            v = T.axis.spatial(256, i)
            B[v] = T.log({form.format(dtype)})
""")
    sch = Schedule(func)
    if vector:
        sch.vectorize(sch.split(sch.get_loops("B")[0], [None, 16])[1])
    given = _small(dtype, 256)
    made = nd.array(np.zeros(256, dtype))
    build_tir(sch.mod["main"], "llvm")(nd.array(given), made)
    with np.errstate(all="ignore"):
        wanted = np.log1p(given.astype("float64"))
    rounding = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(
        made.numpy().astype("float64"), wanted, rtol=rounding, atol=1e-7 if dtype == "float16" else 0
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_log1p_of_torch(dtype):
    torch = pytest.importorskip("torch")
    from relaxish.driver import build
    from relaxish.frontend.torch import from_exported_program
    from relaxish.runtime import VirtualMachine, cpu

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.log1p(x) * 2

    given = _small(dtype, 64)[5:]
    program = torch.export.export(Model(), (torch.from_numpy(given),))
    machine = VirtualMachine(build(from_exported_program(program), "llvm"), cpu())
    found = machine["main"](nd.array(given))
    found = found[0] if isinstance(found, (list, tuple)) or not hasattr(found, "numpy") else found
    wanted = 2 * np.log1p(given.astype("float64"))
    rounding = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(
        found.numpy().astype("float64"), wanted, rtol=rounding, atol=2e-7 if dtype == "float16" else 0
    )
