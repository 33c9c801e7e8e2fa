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


def test_pass_leaves_what_it_has_no_kernel_for() -> None:
    mod = model(1, 8, 2, 16, dtype="float64")
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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("seed", range(6))
def test_few_rows_odd_widths_and_permuted_operands(seed: int, dtype: str) -> None:
    """Each operand in either order of positions and heads, and no more rows than a tile has: against float64."""
    rng = np.random.default_rng(seed)
    batch, queries, keys = int(rng.integers(1, 3)), int(rng.integers(1, 9)), int(rng.integers(1, 70))
    heads, group = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    size, value_size = int(rng.integers(3, 50)), int(rng.choice([5, 16, 24, 40]))
    shapes = [
        (batch, queries, heads * group, size), (batch, keys, heads, size), (batch, keys, heads, value_size),
    ]  # fmt: skip
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    exchanged = rng.integers(2, size=3).astype(bool)
    given = [np.ascontiguousarray(a.swapaxes(1, 2)) if e else a for a, e in zip(arrays, exchanged)]
    inputs = [Var(f"x{i}", TensorStructInfo(a.shape, dtype)) for i, a in enumerate(given)]
    builder = BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            q, k, v = (builder.emit(R.permute_dims(x, [0, 2, 1, 3])) if e else x for x, e in zip(inputs, exchanged))
            causal = "BottomRight" if seed % 2 and queries <= keys else None
            y = builder.emit_output(R.nn.attention(q, k, v, causal_mask=causal))
        builder.emit_func_output(y)
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    got = vm["main"](*map(relaxish.nd.array, given)).numpy().astype("float64")

    wide = [a.astype("float64").swapaxes(1, 2) for a in arrays]
    wide[1:] = [a.repeat(group, 1) for a in wide[1:]]
    scores = wide[0] @ wide[1].swapaxes(2, 3) / np.sqrt(size)
    if causal is not None:
        hidden = np.arange(keys)[None, :] > np.arange(queries)[:, None] + keys - queries
        scores[..., hidden] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = (weights / weights.sum(-1, keepdims=True) @ wide[2]).swapaxes(1, 2)
    unit = float(np.finfo(dtype).eps)
    assert np.abs(got - want).max() <= (4 if dtype == "float16" else 32) * unit * np.abs(want).max()
