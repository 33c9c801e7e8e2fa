"""Metrics of a ranking of candidates: whether it found the fast ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["average_recall", "cover_curve", "get_rank", "max_curve", "mean_curve", "recall_curve"]

Array = np.ndarray[Any, Any]


def max_curve(trial_scores: Sequence[float] | Array) -> Array:
    """The best score after each trial."""
    return np.maximum.accumulate(np.asarray(trial_scores, dtype=np.float64))


def mean_curve(trial_scores: Sequence[float] | Array) -> Array:
    """The mean score after each trial."""
    scores = np.asarray(trial_scores, dtype=np.float64)
    return np.cumsum(scores) / np.arange(1, len(scores) + 1)


def recall_curve(trial_ranks: Array, top: int | None = None) -> Array:
    """After each trial ``n``: which share of the best ``n`` (or ``top``) has been tried. Ranks begin at 1 (best)."""
    ranks = np.asarray(trial_ranks)
    if not isinstance(trial_ranks, np.ndarray):
        ranks = np.array(trial_ranks)
    if top is not None:
        hits = np.cumsum(ranks <= top)
        return hits / np.minimum(np.arange(1, len(ranks) + 1), top) if top else np.zeros(len(ranks))
    return np.array([np.mean(ranks[:n] <= n) for n in range(1, len(ranks) + 1)])


def cover_curve(trial_ranks: Array) -> Array:
    """After each trial ``n``: how many of the very best without a gap have been tried, over ``n``."""
    ranks = np.asarray(trial_ranks)
    out = np.empty(len(ranks))
    seen: set[int] = set()
    best = 1
    for i, rank in enumerate(ranks):
        seen.add(int(rank))
        while best in seen:
            best += 1
        out[i] = (best - 1) / (i + 1)
    return out


def average_recall(preds: Sequence[float] | Array, labels: Sequence[float] | Array, N: int) -> float:
    """The mean of the first ``N`` values of the recall curve of predictions."""
    order = np.argsort(np.asarray(preds))[::-1]
    ranks = get_rank(np.asarray(labels)[order])[:N]
    return float(np.mean(recall_curve(ranks)[:N]))


def get_rank(values: Sequence[float] | Array) -> Array:
    """The rank of each value, 1 for the greatest."""
    order = np.argsort(-np.asarray(values), kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks
