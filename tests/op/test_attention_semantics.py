"""What attention means in every pipeline: shared heads, masks, rows that see no key, half precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from programs.one_call import PIPELINES, run

import relaxish
from relaxish import op, relax
from relaxish.ir import structural_equal
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def weights(scores: Any) -> Any:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def attention(q: Any, k: Any, v: Any, bias: Any, causal: str | None) -> Any:
    q, k, v = (x.astype("float64") for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[3] ** -0.5
    if bias is not None:
        scores = scores + bias.astype("float64")
    if causal is not None:
        ahead = 0 if causal == "TopLeft" else abs(q.shape[1] - k.shape[1])
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool), ahead), scores, -np.inf)
    return np.einsum("bhij,bjhd->bihd", weights(scores), v)


# batch, queries, keys, heads of queries, keys, values, size, value size, causal, shape of the bias
CASES = [
    (2, 9, 13, 6, 2, 2, 32, 32, None, None),  # grouped queries
    (1, 17, 5, 4, 1, 1, 16, 16, "TopLeft", (1, 4, 17, 5)),  # one head of keys for all
    (2, 7, 11, 8, 4, 2, 64, 32, "BottomRight", (2, 1, 1, 11)),
    (1, 6, 6, 4, 4, 4, 8, 6, "TopLeft", (1, 4, 6, 6)),
    (1, 12, 5, 3, 3, 3, 16, 16, "BottomRight", None),  # more queries than keys
    (1, 16, 16, 3, 1, 3, 48, 80, None, (1, 1, 16, 16)),
]


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: tuple[Any, ...], dtype: str) -> None:
    b, s, t, h, g, e, size, width, causal, bias_shape = case
    rng = np.random.default_rng(CASES.index(case))
    kind = numpy_dtype(dtype)
    args = [rng.uniform(-1, 1, d).astype(kind) for d in ((b, s, h, size), (b, t, g, size), (b, t, e, width))]
    if bias_shape is not None:
        bias = rng.uniform(-1, 1, bias_shape)
        bias[rng.random(bias_shape) < 0.3] = -np.inf
        bias[..., 0, :] = -np.inf  # the first row sees nothing
        args.append(bias.astype(kind))
    want = attention(*args[:3], args[3] if bias_shape else None, causal)
    dynamic = {(i, 0): "n" for i, a in enumerate(args) if a.shape[0] == b and (i < 3 or b > 1)}
    which = (list(TOLERANCE).index(dtype) + CASES.index(case)) % 3
    for pipeline, symbols in ((None, {}), (PIPELINES[which], dynamic), (PIPELINES[(which + 1) % 3], {})):
        got = run(lambda q, k, v, *bias: op.nn.attention(q, k, v, *bias, causal_mask=causal), args, pipeline, symbols)
        assert np.abs(got - want).max() < TOLERANCE[dtype], (pipeline, symbols)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_not_a_number_is_kept(dtype: str) -> None:
    """A row that sees no key is zero, one that sees a NaN is not."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.uniform(-1, 1, (1, 4, 2, 16)).astype(dtype) for _ in range(3))
    bias = np.zeros((1, 2, 4, 4), dtype)
    bias[0, 0, 1], bias[0, 0, 2, 3] = -np.inf, np.nan
    for pipeline in PIPELINES:
        got = run(op.nn.attention, [q, k, v, bias], pipeline, {})
        assert (got[0, 1, 0] == 0).all() and np.isnan(got[0, 2, 0]).all()
        assert np.isfinite(got[0, :, 1]).all()


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    ("causal", "window"), [(None, None), ("TopLeft", None), ("BottomRight", None), ("BottomRight", 3)]
)
def test_sequences_of_different_lengths(causal: str | None, window: int | None, dtype: str) -> None:
    rng = np.random.default_rng(1)
    kind = numpy_dtype(dtype)
    at_q, at_k = np.array([0, 5, 5, 12, 20], "int32"), np.array([0, 3, 7, 16, 24], "int32")
    q, k, v = (rng.uniform(-1, 1, d).astype(kind) for d in ((1, 20, 6, 16), (1, 24, 2, 16), (1, 24, 3, 8)))
    want = np.zeros((1, 20, 6, 8))
    for q0, q1, k0, k1 in zip(at_q, at_q[1:], at_k, at_k[1:]):
        wide = [x.astype("float64") for x in (q[0, q0:q1], k[0, k0:k1], v[0, k0:k1])]
        keys, values = (np.repeat(x, 6 // x.shape[1], 1) for x in wide[1:])
        scores = np.einsum("ihd,jhd->hij", wide[0], keys) / 4
        last = np.arange(q1 - q0)[:, None] + (k1 - k0 - (q1 - q0) if causal == "BottomRight" else 0)
        place = np.arange(k1 - k0)[None]
        seen = (place <= last) if causal else np.ones(scores.shape[1:], bool)
        if window is not None:
            seen = seen & (place > last - window)
        want[0, q0:q1] = np.einsum("hij,jhd->ihd", weights(np.where(seen, scores, -np.inf)), values)
    longest = np.array(9, "int32")

    def model(q: Any, k: Any, v: Any, at_q: Any, at_k: Any, max_q: Any, max_k: Any) -> Any:
        return op.nn.attention_var_len(q, k, v, at_q, max_q, at_k, max_k, causal_mask=causal, window_size=window)

    got = run(model, [q, k, v, at_q, at_k, longest, longest], None, {})
    assert np.abs(got - want).max() < TOLERANCE[dtype]


def test_a_scale_of_attention_may_have_a_name() -> None:
    """A number by another name is the number: attributes of operators are no variables of the program."""

    @I.ir_module
    class Attention:
        @R.function
        def main(
            q: R.Tensor((2, 6, 3, 8), "float32"),
            k: R.Tensor((2, 5, 3, 8), "float32"),
            v: R.Tensor((2, 5, 3, 4), "float32"),
        ) -> R.Tensor((2, 6, 3, 4), "float32"):
            scale = T.FloatImm("float32", 0.1)
            gv = R.nn.attention(q, k, v, scale=scale)
            return gv

    (block,) = Attention["main"].body.blocks
    assert [b.value.op.name for b in block.bindings] == ["relax.nn.attention"]
    assert structural_equal(from_source(Attention.script()), Attention)
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal(s).astype("float32") for s in ((2, 6, 3, 8), (2, 5, 3, 8), (2, 5, 3, 4)))
    vm = relax.VirtualMachine(relax.build(Attention, "llvm"), relaxish.cpu())
    found = vm["main"](*[relaxish.nd.array(x) for x in (q, k, v)]).numpy()
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * 0.1
    np.testing.assert_allclose(found, np.einsum("bhqk,bkhd->bqhd", weights(scores), v), rtol=1e-4, atol=1e-5)
