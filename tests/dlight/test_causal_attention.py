"""Causal attention computes no band of keys that no row of its tiles sees: against torch in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import op as R
from relaxish.dlight.cpu.attention import AttentionShape, attention_kernel
from relaxish.relax import BlockBuilder, TensorStructInfo, Var, const
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")


def reference(q, k, v, corner, bias):
    """Rows of ``(batch, length, heads, size)`` arrays, each over the keys that it sees."""
    q, k, v = (a.astype("float64").transpose(0, 2, 1, 3) for a in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    scores = scores if bias is None else scores + bias
    rows, keys = scores.shape[-2:]
    ahead = abs(keys - rows) if corner == "BottomRight" else 0
    seen = np.arange(keys)[None] <= np.arange(rows)[:, None] + ahead
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


@pytest.mark.parametrize("corner", ["TopLeft", "BottomRight"])
@pytest.mark.parametrize(
    "queries, keys, heads, dtype, biased",
    [
        (1, 70, 2, "float32", False),
        (70, 70, 2, "float32", False),
        (131, 131, 1, "float32", True),
        (100, 257, 2, "float32", False),
        (150, 49, 1, "float32", False),
        (64, 128, 2, "bfloat16", False),
        (37, 300, 1, "float16", True),
    ],
)
def test_causal_attention(queries, keys, heads, dtype, biased, corner):
    rng = np.random.default_rng([queries, keys, heads])
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = [rng.standard_normal((2, n, heads, 32), dtype="float32").astype(kind) for n in (queries, keys, keys)]
    bias = rng.standard_normal((2, heads, queries, keys), dtype="float32").astype(kind) if biased else None
    builder = BlockBuilder()
    params = [Var(n, TensorStructInfo(a.shape, dtype)) for n, a in zip("qkv", arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(
                R.nn.attention(*params, bias=None if bias is None else const(bias), causal_mask=corner)
            )
        builder.emit_func_output(out)
    vm = relaxish.VirtualMachine(relaxish.build(builder.finalize(), TARGET), relaxish.cpu())
    made = vm["main"](*[relaxish.nd.array(a) for a in arrays]).numpy().astype("float64")
    error = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(made, reference(*arrays, corner, bias), atol=error, rtol=error)


def test_hidden_keys_are_not_computed():
    """The exponentials of a causal kernel are little more than half of the others'."""

    def exponentials(causal):
        script = attention_kernel(AttentionShape(1, 256, 256, 1, 64, 64, 0.125, causal=causal), 16).script()
        found, loops = 0, []
        for line in script.split("\n"):
            depth = len(line) - len(line.lstrip())
            loops = [(d, n) for d, n in loops if d < depth]
            text = line.strip()
            if text.startswith("for ") and "range(" in text:
                inside = text.split("range(")[1].rstrip("):")
                loops.append((depth, int(inside) if inside.isdigit() else 1))
            if "T.exp(" in text:
                found += int(np.prod([n for _, n in loops]))
        return found

    assert 0 < exponentials("TopLeft") < 0.65 * exponentials(None)
