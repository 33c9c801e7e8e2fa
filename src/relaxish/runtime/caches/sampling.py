"""Choosing the next token: penalties, softmax with a temperature, top-p and multinomial sampling.

The functions are the ``vm.builtin`` ones of the same names. Those called ``apply_...`` change their argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...support.errors import IndexBoundsError
from ..kernels.kernel import ArgumentError
from ..arrays.ndarray import NDArray, from_numpy
from ..registry import register_func

__all__ = [
    "apply_presence_and_frequency_penalty",
    "apply_repetition_penalty",
    "apply_softmax_with_temperature",
    "multinomial_from_uniform",
    "sample_top_p_from_logits",
    "sample_top_p_from_prob",
]

_COLD = 1e-6


def _builtin(func: Callable[..., Any]) -> Callable[..., Any]:
    register_func("vm.builtin." + func.__name__, func, override=True)
    return func


def _row(values: NDArray, what: str) -> np.ndarray[Any, Any]:
    """One row of float32 values, which may have leading dimensions of one."""
    if values.dtype != "float32":
        raise ArgumentError(f"{what} must be float32, got {values.dtype}")
    if any(d != 1 for d in values.shape[:-1]):
        raise ArgumentError(f"the leading dimensions of {what} must be 1, got shape {tuple(values.shape)}")
    return np.asarray(values).reshape(-1)


def _tokens(token_ids: NDArray, row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Token numbers, each one of the row's. Raises IndexBoundsError for others."""
    tokens = np.asarray(token_ids).reshape(-1)
    wrong = tokens[(tokens < 0) | (tokens >= len(row))]
    if len(wrong):
        raise IndexBoundsError(f"token {int(wrong[0])} is out of bounds for logits of {len(row)} tokens")
    return tokens


def _sample_sorted(
    probabilities: np.ndarray[Any, Any], order: np.ndarray[Any, Any], top_p: float, uniform_sample: float
) -> int:
    """Sample among the likeliest tokens whose probabilities add up to ``top_p``."""
    running = np.cumsum(probabilities, dtype=np.float32)
    before = np.concatenate([np.zeros(1, np.float32), running[:-1]])
    kept = np.float32(probabilities[before < top_p].sum(dtype=np.float32))
    chosen = np.flatnonzero(np.float32(uniform_sample) < running / kept)
    return int(order[chosen[0] if len(chosen) else 0])


@_builtin
def sample_top_p_from_logits(logits: NDArray, temperature: float, top_p: float, uniform_sample: float) -> int:
    """A token by its logits. A temperature near zero means the likeliest one.

    >>> from relaxish import runtime
    >>> logits = runtime.nd.array(np.array([[0.0, 3.0, 1.0]], "float32"))
    >>> sample_top_p_from_logits(logits, 0.0, 0.9, 0.5)
    1
    """
    row = _row(logits, "logits")
    order = np.argsort(-row, kind="stable")
    if temperature < _COLD:
        return int(order[0])
    weights = np.exp((row[order] - row[order[0]]) * np.float32(1.0 / temperature))
    return _sample_sorted(weights / weights.sum(dtype=np.float32), order, top_p, uniform_sample)


@_builtin
def sample_top_p_from_prob(prob: NDArray, top_p: float, uniform_sample: float) -> int:
    """A token by its probability."""
    row = _row(prob, "prob")
    order = np.argsort(-row, kind="stable")
    return _sample_sorted(row[order], order, top_p, uniform_sample)


@_builtin
def multinomial_from_uniform(prob: NDArray, uniform_sample: NDArray) -> NDArray:
    """For each row of ``prob`` (n, vocabulary) the first token where the running sum exceeds the row's sample (n, 1)."""
    if len(prob.shape) != 2 or len(uniform_sample.shape) != 2:
        raise ArgumentError("multinomial_from_uniform expects matrices of probabilities and samples")
    running = np.cumsum(np.asarray(prob), axis=1, dtype=np.float32)
    above = running > np.asarray(uniform_sample).reshape(-1, 1)
    above[:, -1] = True
    return from_numpy(np.argmax(above, axis=1).astype(np.int64).reshape(-1, 1))


@_builtin
def apply_repetition_penalty(logits: NDArray, token_ids: NDArray, penalty: float) -> None:
    """Make tokens that were generated already less likely."""
    row = _row(logits, "logits")
    tokens = _tokens(token_ids, row)
    old = row[tokens]
    row[tokens] = np.where(old <= 0, old * np.float32(penalty), old / np.float32(penalty))


@_builtin
def apply_presence_and_frequency_penalty(
    logits: NDArray, token_ids: NDArray, token_freqs: NDArray, presence_penalty: float, frequency_penalty: float
) -> None:
    """Subtract a penalty from each token that occurred, and one for each time it did."""
    row = _row(logits, "logits")
    tokens = _tokens(token_ids, row)
    counts = np.asarray(token_freqs).reshape(-1).astype(np.float32)
    if len(counts) != len(tokens):
        raise ArgumentError(f"there are {len(tokens)} tokens, but {len(counts)} frequencies")
    row[tokens] -= counts * np.float32(frequency_penalty) + np.float32(presence_penalty)


@_builtin
def apply_softmax_with_temperature(logits: NDArray, temperature: float) -> None:
    """Turn logits into probabilities."""
    row = _row(logits, "logits")
    weights = np.exp((row - row.max()) * np.float32(1.0 / temperature))
    row[...] = weights / weights.sum(dtype=np.float32)
