"""What tests of attention kernels share: problems with fresh inputs, and NumPy's answer in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from relaxish.backend.cuda.attention.combine import combine_kernel
from relaxish.backend.cuda.attention.kernel import attention_kernel
from relaxish.backend.cuda.attention.problem import AttentionProblem, Bias, Operand
from relaxish.backend.cuda.attention.tiling import Tiling
from relaxish.testing import emulate_cuda

NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def problem(
    batch: int, queries: int, keys: int, heads: int, size: int, value_size: int | None = None, *, group: int = 1,
    bias: tuple[tuple[int, ...], str] | None = None, causal: str | None = None, dtype: str = "float16",
    window: int | None = None,
) -> AttentionProblem:  # fmt: skip
    """Tensors of axes batch, row, head, column."""
    value_size, kv = value_size or size, heads // group
    shapes = [(batch, queries, heads, size), (batch, keys, kv, size), (batch, keys, kv, value_size)]
    q, k, v = (Operand.of_shape(s) for s in shapes)
    out = Operand.of_shape((batch, queries, heads, value_size))
    added = None if bias is None else Bias.of_shape(*bias)
    return AttentionProblem(
        dtype, batch, queries, keys, kv, group, size, value_size, size**-0.5, q, k, v, out, added, causal, None, window
    )  # fmt: skip


def expected(
    q: Any, k: Any, v: Any, scale: float, bias: Any = None, causal: str | None = None, window: int | None = None
) -> np.ndarray:
    """Attention of ``[batch, row, head, column]`` arrays, key heads repeated for their groups."""
    q, k, v = (x.astype("float64") for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) * scale
    if bias is not None:
        scores = scores + bias.astype("float64")
    if causal is not None:
        ahead = 0 if causal == "TopLeft" else abs(q.shape[1] - k.shape[1])
        seen = np.tril(np.ones(scores.shape[-2:], bool), ahead)
        seen = seen if window is None else np.triu(seen, ahead - window + 1)
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out: np.ndarray = np.einsum("bhij,bjhd->bihd", weights, v)
    return out


def inputs(p: AttentionProblem, seed: int = 0) -> list[np.ndarray]:
    """Random queries, keys and values, and a bias if there is one."""
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(o.shape).astype(NUMPY[p.dtype]) for o in (p.q, p.k, p.v)]
    if p.bias is not None:
        made.append(rng.standard_normal(p.bias.shape).astype(NUMPY[p.bias.dtype]))
    return made


def error(p: AttentionProblem, tiling: Tiling, seed: int = 0) -> float:
    """The largest difference from NumPy, with all checks of the emulator on."""
    arrays = inputs(p, seed)
    out = np.full(p.out.shape, np.nan, NUMPY[p.dtype])
    if tiling.parts == 1:
        emulate_cuda(attention_kernel(p, tiling), *arrays, out)
    else:
        lines = (tiling.parts, p.batch, p.kv_heads, p.rows)
        sums, logarithms = np.full((*lines, p.value_size), np.nan, "float32"), np.full(lines, np.nan, "float32")
        emulate_cuda(attention_kernel(p, tiling), *arrays, sums, logarithms)
        emulate_cuda(combine_kernel(p, tiling), sums, logarithms, out)
    right = expected(*arrays[:3], p.scale, arrays[3] if len(arrays) > 3 else None, p.causal, p.window)
    return float(np.abs(out.astype("float64") - right).max())
