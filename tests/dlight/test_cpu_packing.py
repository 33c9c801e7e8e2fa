"""Constant weights in strips: which are packed, and that results stay."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxish
from relaxish import op as R
from relaxish.dlight import ApplyDefaultCPUSchedule
from relaxish.dlight.cpu.packing import PACK_ATTR, pack_columns
from relaxish.relax import BlockBuilder, TensorStructInfo, Var, const
from relaxish.target import Target

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def test_pack_columns() -> None:
    weight = np.arange(12, dtype="float32").reshape(2, 6)
    packed = pack_columns(relaxish.nd.array(weight), 3)
    np.testing.assert_array_equal(packed.numpy(), weight.reshape(2, 2, 3).transpose(1, 0, 2))


def mlp(first: np.ndarray, second: np.ndarray, rows: int = 24, given: bool = False) -> relaxish.IRModule:
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((rows, first.shape[0]), "float32"))
    w = Var("w", TensorStructInfo(second.shape, "float32")) if given else const(second)
    with builder.function("main", [x, w] if given else [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.relu(builder.emit(R.matmul(x, const(first)))))
            out = builder.emit_output(R.matmul(y, w))
        builder.emit_func_output(out)
    return builder.finalize()


def scheduled(mod: relaxish.IRModule) -> str:
    with Target("llvm -mattr=+avx512f -num-cores 1") as target:
        mod = relaxish.relax.transform.LegalizeOps()(mod)
        made = ApplyDefaultCPUSchedule()(mod)
    assert target is not None
    text: str = made.script()
    assert PACK_ATTR not in text
    return text


def test_constants_become_strips() -> None:
    text = scheduled(mlp(data(48, 192), data(192, 192)))
    assert re.search(r"T.Buffer\(\(T.int64\(\d+\), T.int64\(192\), T.int64\(\d+\)\)", text)
    assert "T.Buffer((T.int64(192), T.int64(192))" not in text


def test_weights_given_as_parameters_stay() -> None:
    text = scheduled(mlp(data(48, 192), data(192, 192), given=True))
    assert "T.Buffer((T.int64(192), T.int64(192))" in text


def test_a_kernel_shared_with_a_computed_operand_stays() -> None:
    weight = data(96, 96)
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((96, 96), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.matmul(x, const(weight)))
            out = builder.emit_output(R.matmul(y, y))
        builder.emit_func_output(out)
    mod = builder.finalize()
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="compiled"), relaxish.cpu())
    x0 = data(96, 96) / 10
    want = (x0 @ weight) @ (x0 @ weight)
    np.testing.assert_allclose(vm["main"](relaxish.nd.array(x0)).numpy(), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("columns", [96, 64, 72, 10])
@pytest.mark.parametrize("rows", [1, 7, 24])
def test_results(rows: int, columns: int) -> None:
    first, second, x = data(48, 192), data(192, columns), data(rows, 48)
    vm = relaxish.VirtualMachine(relaxish.build(mlp(first, second, rows), "llvm", exec_mode="compiled"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x)).numpy()
    np.testing.assert_allclose(got, np.maximum(x @ first, 0) @ second, rtol=1e-4, atol=1e-3)
