"""Reductions, normalisations, scans, sorting."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .base import Draw, Rng, dtype, floats, lengths, of, size

__all__ = ["REDUCTIONS"]

_MOST = 8e6  # elements of an input


def _shape(rng: Rng, most: float = _MOST) -> list[int]:
    rank = int(rng.integers(2, 5))
    return lengths(rng, [(1, 64)] + [(2, 4000 // 4**r) for r in range(rank - 1)], most)


def reduction(rng: Rng) -> Draw:
    """A sum, mean, extreme, product of squares or position over any axes."""
    shape = _shape(rng)
    kind = dtype(rng) if rng.integers(5) else dtype(rng, (torch.int64, 0.4), (torch.int32, 0.3), (torch.int8, 0.3))
    rank = len(shape)
    count = int(rng.integers(1, rank + 1))
    axes = sorted(int(a) for a in rng.choice(rank, count, replace=False))
    whole = not kind.is_floating_point
    which = str(rng.choice(["sum", "amax", "amin", "argmax"] + ["mean", "norm", "var"] * (not whole)))
    functions: dict[str, Any] = {
        "sum": lambda x: x.sum(axes),
        "mean": lambda x: x.mean(axes),
        "amax": lambda x: x.amax(axes),
        "amin": lambda x: x.amin(axes),
        "norm": lambda x: x.pow(2).sum(axes).sqrt(),
        "var": lambda x: x.var(axes, correction=0),
        "argmax": lambda x: x.argmax(axes[0]),
    }
    terms = 1
    for axis in axes:
        terms *= shape[axis]
    x = torch.from_numpy(rng.integers(-100, 100, shape)).to(kind) if whole else floats(rng, shape, kind)
    # The sum of many numbers of both signs is small beside them: numbers of one sign have a meaningful relative error.
    x = x.abs() if which in ("sum", "mean") and not whole else x
    return Draw(f"{which} of {shape} over {axes} {kind}", of(functions[which]), (x,), terms=terms, rounded=2)


def softmax(rng: Rng) -> Draw:
    """Softmax or its logarithm over any axis."""
    shape, kind = _shape(rng), dtype(rng)
    axis, log = int(rng.integers(len(shape))), bool(rng.integers(2))
    function = F.log_softmax if log else F.softmax
    text = f"{'log_' * log}softmax of {shape} axis {axis} {kind}"
    return Draw(text, of(lambda x: function(x, axis)), (floats(rng, shape, kind),), terms=shape[axis], rounded=2)


def normalisation(rng: Rng) -> Draw:
    """Layer norm, RMS norm, group norm, instance norm."""
    which = str(rng.choice(["layer", "rms", "group", "instance"]))
    kind = dtype(rng)
    if which in ("layer", "rms"):
        shape = lengths(rng, [(1, 16), (1, 1024), (8, 4096)], _MOST)
        weight, bias = floats(rng, shape[-1:], kind), floats(rng, shape[-1:], kind)
        function: Any = (
            (lambda x, w, b: F.layer_norm(x, shape[-1:], w, b))
            if which == "layer"
            else (lambda x, w, b: F.rms_norm(x, shape[-1:], w, 1e-6))
        )
    else:
        groups = size(rng, 1, 32)
        shape = lengths(rng, [(1, 4), (1, 16), (2, 96), (2, 96)], _MOST / groups)
        shape[1] *= groups
        weight, bias = floats(rng, shape[1:2], kind), floats(rng, shape[1:2], kind)
        function = (
            (lambda x, w, b: F.group_norm(x, groups, w, b))
            if which == "group"
            else (lambda x, w, b: F.instance_norm(x, weight=w, bias=b))
        )
    text = f"{which}_norm of {shape} {kind}"
    return Draw(text, of(function, weight, bias), (floats(rng, shape, kind),), terms=shape[-1], rounded=4)


def scan(rng: Rng) -> Draw:
    """Running sums, products and extremes."""
    shape, kind = _shape(rng, 2e6), dtype(rng, (torch.float32, 0.7), (torch.float64, 0.1), (torch.int64, 0.2))
    axis = int(rng.integers(len(shape)))
    x = torch.from_numpy(rng.integers(0, 9, shape)) if kind == torch.int64 else floats(rng, shape, kind).abs()
    which = str(rng.choice(["cumsum", "cumsum", "cumsum", "cumprod"]))
    if which == "cumprod":
        x = x % 2 + 1 if kind == torch.int64 else 1 + x / shape[axis]
    module = of((lambda v: v.cumsum(axis)) if which == "cumsum" else (lambda v: v.cumprod(axis)))
    return Draw(f"{which} of {shape} axis {axis} {kind}", module, (x,), terms=shape[axis] ** 2)


def sorting(rng: Rng) -> Draw:
    """A sort, or the largest or smallest k."""
    rows, columns = lengths(rng, [(1, 256), (4, 60000)], 2e6)
    which = str(rng.choice(["sort", "topk", "topk"]))
    k, largest = min(columns, size(rng, 1, 100)), bool(rng.integers(2))
    kind = dtype(rng, (torch.float32, 0.7), (torch.float16, 0.1), (torch.float64, 0.1), (torch.int64, 0.1))
    x = floats(rng, (rows, columns)).mul(1000).to(kind) if kind == torch.int64 else floats(rng, (rows, columns), kind)
    function: Any = (
        (lambda v: torch.sort(v, descending=largest, stable=True)[0])
        if which == "sort"
        else (lambda v: torch.topk(v, k, largest=largest)[0])
    )
    return Draw(f"{which} {rows}x{columns} k={k} largest={largest} {kind}", of(function), (x,), exact=True)


REDUCTIONS = (reduction, softmax, normalisation, scan, sorting)
