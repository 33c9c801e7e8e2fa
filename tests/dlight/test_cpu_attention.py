"""Attention as one kernel against NumPy, and its place in the default pipeline."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import op as R
from relaxish.dlight.cpu import FuseAttention
from relaxish.dlight.cpu.attention import AttentionShape, attention_kernel
from relaxish.driver import build_tir
from relaxish.relax import BlockBuilder, TensorStructInfo, Var
from relaxish.target import Target

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None, causal: str | None) -> np.ndarray:
    q, k, v = (x.transpose(0, 2, 1, 3).astype("float64") for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if causal is not None:
        ahead = scores.shape[3] - scores.shape[2] if causal == "BottomRight" else 0
        i, j = np.ogrid[: scores.shape[2], : scores.shape[3]]
        scores = np.where(j <= i + ahead, scores, -1e30)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


CASES = [
    # batch, queries, keys, heads, size, value size, bias, causal
    (1, 16, 16, 2, 32, 32, (1, 2, 16, 16), None),
    (2, 5, 7, 3, 32, 48, (2, 1, 1, 7), None),
    (1, 13, 29, 2, 16, 16, None, "BottomRight"),
    (1, 20, 20, 1, 16, 16, None, "TopLeft"),
    (1, 1, 33, 2, 16, 16, None, None),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("lanes", [4, 16])
def test_kernel(case: tuple, lanes: int) -> None:
    b, s, t, h, d, e, bias_shape, causal = case
    func = attention_kernel(AttentionShape(b, s, t, h, d, e, d**-0.5, bias_shape, causal), lanes)
    q, k, v = data(b, s, h, d), data(b, t, h, d), data(b, t, h, e)
    bias = None if bias_shape is None else data(*bias_shape)
    out = relaxish.nd.empty((b, s, h, e))
    inputs = [q, k, v] if bias is None else [q, k, v, bias]
    build_tir(func, "llvm")(*map(relaxish.nd.array, inputs), out)
    np.testing.assert_allclose(out.numpy(), reference(q, k, v, bias, causal), rtol=1e-4, atol=1e-5)


def model(*shape: int, dtype: str = "float32", **kwargs: object) -> relaxish.IRModule:
    builder = BlockBuilder()
    params = [Var(name, TensorStructInfo(shape, dtype)) for name in "qkv"]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(R.nn.attention(*params, **kwargs))
        builder.emit_func_output(out)
    return builder.finalize()


def test_pass_replaces_attention_and_results_agree() -> None:
    mod = model(1, 19, 2, 16, causal_mask="TopLeft")
    made = FuseAttention(Target("llvm -mattr=+avx512f"))(mod)
    assert "nn.attention" not in made.script()
    assert "T.vectorized(16)" in made.script()
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="compiled"), relaxish.cpu())
    q, k, v = data(1, 19, 2, 16), data(1, 19, 2, 16), data(1, 19, 2, 16)
    got = vm["main"](*map(relaxish.nd.array, (q, k, v))).numpy()
    np.testing.assert_allclose(got, reference(q, k, v, None, "TopLeft"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mod", [model(1, 8, 2, 10), model(1, 8, 2, 16, dtype="float64")], ids=["size", "dtype"])
def test_pass_leaves_what_it_has_no_kernel_for(mod: relaxish.IRModule) -> None:
    assert FuseAttention(Target("llvm -mattr=+avx512f"))(mod) is mod


def test_equal_attentions_share_a_kernel() -> None:
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((1, 8, 2, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.attention(x, x, x))
            out = builder.emit_output(R.nn.attention(y, x, y))
        builder.emit_func_output(out)
    made = FuseAttention(Target("llvm -mattr=+avx512f"))(builder.finalize())
    assert len(made.functions) == 2
