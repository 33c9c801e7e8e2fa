"""Statistics of searches: ranks, tests of whether one is better than another, how good a cost model's order is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["friedman", "holm", "mean_ranks", "ranks", "spearman", "top_k_recall", "wilcoxon"]

Array = np.ndarray[Any, Any]
# Up to so many pairs the distribution of the signed ranks is counted exactly.
_EXACT = 25


def ranks(values: Sequence[float] | Array) -> Array:
    """Ranks from 1, the least first; equal values share the mean of their ranks.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    data = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(data, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: Array = (last - (counts - 1) / 2.0)[inverse.reshape(-1)]
    return found


def spearman(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """Rank correlation; NaN where one of them does not vary or there are fewer than two values."""
    if len(first) < 2:
        return math.nan
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else math.nan


def top_k_recall(scores: Sequence[float] | Array, truth: Sequence[float] | Array, k: int) -> float:
    """The share of the ``k`` highest of ``truth`` that is among the ``k`` highest of ``scores``."""
    k = min(k, len(scores))
    if not k:
        return math.nan
    best = set(np.argsort(-np.asarray(truth), kind="stable")[:k].tolist())
    found = set(np.argsort(-np.asarray(scores), kind="stable")[:k].tolist())
    return len(best & found) / k


def wilcoxon(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """The probability of differences so one-sided if two paired samples were alike (signed ranks, two-sided).

    Exact for up to 25 pairs without ties among the differences, else by the normal approximation with corrections for ties
    and continuity. Pairs without a difference are left out; 1 where all are.
    """
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    differences = differences[differences != 0]
    count = len(differences)
    if not count:
        return 1.0
    order = ranks(np.abs(differences))
    positive = float(order[differences > 0].sum())
    least = min(positive, count * (count + 1) / 2 - positive)
    _, sizes = np.unique(order, return_counts=True)
    if count <= _EXACT and (sizes == 1).all():
        ways = np.zeros(count * (count + 1) // 2 + 1)
        ways[0] = 1.0
        for rank in range(1, count + 1):
            ways[rank:] += ways[:-rank].copy()
        return float(min(1.0, 2 * ways[: int(least) + 1].sum() / 2.0**count))
    mean = count * (count + 1) / 4
    variance = count * (count + 1) * (2 * count + 1) / 24 - float((sizes**3 - sizes).sum()) / 48
    if variance <= 0:
        return 1.0
    z = (abs(positive - mean) - 0.5) / math.sqrt(variance)
    return float(min(1.0, math.erfc(max(z, 0.0) / math.sqrt(2))))


def mean_ranks(table: Sequence[Sequence[float]] | Array) -> Array:
    """``[columns]``: the mean rank of each column over the rows of a table, 1 for the least value."""
    found: Array = np.mean([ranks(row) for row in np.asarray(table, dtype=np.float64)], axis=0)
    return found


def friedman(table: Sequence[Sequence[float]] | Array) -> tuple[float, float]:
    """Friedman's statistic, corrected for ties, and its probability if all columns were alike; (0, 1) if they are."""
    data = np.asarray(table, dtype=np.float64)
    rows, columns = data.shape
    if rows < 1 or columns < 2:
        return 0.0, 1.0
    order = np.array([ranks(row) for row in data])
    ties = sum(float((n**3 - n).sum()) for n in (np.unique(row, return_counts=True)[1] for row in order))
    scale = 1.0 - ties / (rows * columns * (columns**2 - 1))
    if scale <= 0:
        return 0.0, 1.0
    sums = order.sum(axis=0)
    value = 12.0 / (rows * columns * (columns + 1)) * float((sums**2).sum()) - 3.0 * rows * (columns + 1)
    value /= scale
    return value, _chi_square_tail(value, columns - 1)


def _chi_square_tail(value: float, freedom: int) -> float:
    """The probability of a larger value: the regularised upper incomplete gamma function."""
    a, x = freedom / 2.0, value / 2.0
    if x <= 0:
        return 1.0
    front = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1.0 / a
        for n in itertools.count(1):
            term *= x / (a + n)
            total += term
            if term < total * 1e-15:
                return max(0.0, 1.0 - front * total)
    b = x + 1.0 - a
    c, d = 1e300, 1.0 / b
    value = d
    for n in range(1, 500):
        step = -n * (n - a)
        b += 2.0
        d = 1.0 / (step * d + b)
        c = b + step / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value


def holm(probabilities: Sequence[float]) -> list[float]:
    """Probabilities of several tests, corrected so that one false finding among all is as unlikely as each says.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(probabilities)), key=lambda i: probabilities[i])
    out, so_far = [0.0] * len(probabilities), 0.0
    for place, i in enumerate(order):
        so_far = max(so_far, min(1.0, probabilities[i] * (len(probabilities) - place)))
        out[i] = so_far
    return out
