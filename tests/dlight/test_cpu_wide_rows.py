"""Products of 16-bit floats on CPUs: what is broadcast is converted once; results against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import Target, relax, tir
from relaxish.dlight.cpu import Contraction
from relaxish.ir.functor import all_nodes
from relaxish.ir.prim import Cast
from relaxish.relax.struct_info import TensorStructInfo
from relaxish.script import from_source

_TYPES = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def _run(build: Any, arrays: list[np.ndarray[Any, Any]], dtype: str) -> np.ndarray[Any, Any]:
    inputs = [relax.Var(f"x{i}", TensorStructInfo(a.shape, dtype)) for i, a in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(build(*inputs))
        builder.emit_func_output(result)
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    found: np.ndarray[Any, Any] = vm["main"](*map(relaxish.nd.array, arrays)).numpy().astype("float64")
    return found


def _near(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: str) -> None:
    unit = float(ml_dtypes.finfo(_TYPES[dtype]).eps)
    assert np.abs(got - want).max() <= 2 * unit * np.abs(want).max()


@pytest.mark.parametrize("dtype", sorted(_TYPES))
@pytest.mark.parametrize("seed", range(4))
def test_products(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    b, m, n, k = (int(rng.integers(*limits)) for limits in ((1, 5), (1, 40), (30, 130), (3, 70)))
    turned = seed % 2 == 1
    left = rng.standard_normal((b, m, k)).astype(_TYPES[dtype])
    right = rng.standard_normal((b, n, k) if turned else (b, k, n)).astype(_TYPES[dtype])

    def product(x: Any, y: Any) -> Any:
        return relax.op.matmul(x, relax.op.permute_dims(y, [0, 2, 1]) if turned else y)

    want = left.astype("float64") @ (right.swapaxes(1, 2) if turned else right).astype("float64")
    _near(_run(product, [left, right], dtype), want, dtype)


@pytest.mark.parametrize("dtype", sorted(_TYPES))
@pytest.mark.parametrize("seed", range(3))
def test_convolutions(seed: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    batch, inside, outside, size = (int(rng.integers(*s)) for s in ((1, 3), (1, 20), (33, 70), (5, 14)))
    data = rng.standard_normal((batch, inside, size, size + 1)).astype(_TYPES[dtype])
    weight = rng.standard_normal((outside, inside, 3, 3)).astype(_TYPES[dtype])
    stride, padding = 1 + seed % 2, seed % 3
    want = torch.nn.functional.conv2d(
        torch.from_numpy(data.astype("float64")), torch.from_numpy(weight.astype("float64")), None, stride, padding
    ).numpy()
    _near(_run(lambda x: relax.op.nn.conv2d(x, relax.const(weight), stride, padding), [data], dtype), want, dtype)


@pytest.mark.parametrize("turned", [False, True])
def test_a_broadcast_operand_is_converted_outside_of_the_reduction(turned: bool) -> None:
    place = "j, k" if turned else "k, j"
    func = from_source(
        "@T.prim_func\n"
        "def main(A: T.Buffer((24, 40), 'float16'), B: T.Buffer((48, 48), 'float16'), C: T.Buffer((24, 48), 'float32')):\n"
        "    for i0, j0, k0 in T.grid(24, 48, 40):\n        with T.block('C'):\n"
        "            i, j, k = T.axis.remap('SSR', [i0, j0, k0])\n"
        "            with T.init():\n                C[i, j] = T.float32(0)\n"
        f"            C[i, j] += T.Cast('float32', A[i, k]) * T.Cast('float32', B[{place}])\n"
    )
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
    sch = Contraction().apply(func, target, False)
    assert sch is not None
    (update,) = [
        block
        for block in all_nodes(sch.mod["main"].body)
        if isinstance(block, tir.Block) and any(iv.iter_type == tir.IterVar.CommReduce for iv in block.iter_vars)
    ]
    casts = [e.value.buffer.name for e in all_nodes(update.body) if isinstance(e, Cast)]
    assert len(casts) == 1 and casts[0].startswith("B")
