"""Column form of the postproc RewriteParallelVectorizeUnroll: its effect on one block, for many candidates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.affine import Affine
from .fitting import Environment, Formula
from .program_shape import BlockShape, columns

__all__ = ["Fusion", "fuse_block"]

Array = np.ndarray[Any, Any]


@dataclass
class Fusion:
    """Fusion of a nest: numbers of outer loops fused into one parallel loop and of inner ones fused into one vector
    loop, and the candidates for which the whole nest is fused and cut at the vector length instead (None: for none)."""

    num_parallel: Array
    num_vector: Array
    whole: Array | None = None


def fuse_block(
    shape: BlockShape,
    regions: Sequence[tuple[list[Affine[Formula]], list[Formula]]],
    extents: Sequence[Any],
    env: Environment,
    busy: dict[int, Array],
    parallel: Array,
    vectorize: int,
) -> Fusion:
    """The loops of one block after the postproc; ``regions`` are accesses with the sizes of their buffers, ``busy``
    says which loops other blocks have taken."""
    size, n = env.size, len(shape.loops)
    inner = 0  # loops that may be part of the vector loop whatever the numbers
    while inner < n and shape.data_parallel[n - 1 - inner] and shape.single[n - 1 - inner]:
        inner += 1
    fusible = np.full(size, inner, dtype=np.int8)
    for region, dims in regions:
        np.minimum(fusible, _fusible(_strides(env, region, dims, n, inner), extents[n - inner :], size), out=fusible)
    num_par = _outer(shape, extents, busy, parallel, size)
    num_vec = _inner(shape, extents, busy, vectorize, fusible, inner, size)
    both = (num_par > 0) & (num_vec > 0) & (num_par + num_vec > n)
    whole = None
    if both.any():
        if inner == n and not any(loop in busy for loop in shape.loops):
            whole = both & (fusible == n)
            whole = whole if whole.any() else None
        num_par = np.where(both, np.minimum(num_par, n - num_vec), num_par)
    return Fusion(np.maximum(num_par, 0), np.maximum(num_vec, 0), whole)


def _strides(env: Environment, region: Sequence[Affine[Formula]], dims: list[Formula], n: int, inner: int) -> list[Any]:
    """Element stride of each of the ``inner`` innermost loops in one access, None for none."""
    forms = [columns(form, env) for form in region]
    out: list[Any] = []
    for position in range(n - inner, n):
        stride: Any = None
        buffer_stride: Any = 1.0
        for form, dim in zip(reversed(forms), reversed(dims), strict=True):
            if position in form.positions:
                step = form.coefficient(position) * buffer_stride
                stride = step if stride is None else np.where(stride == 0, step, stride)
                if any(t.var == position and t.rising for t in form.terms):
                    break
            buffer_stride = buffer_stride * dim(env)
        out.append(stride)
    return out


def _fusible(strides: list[Any], extents: Sequence[Any], size: int) -> Array:
    """How many innermost loops walk one access contiguously (see the postproc of the same logic)."""
    count = np.zeros(size, dtype=np.int8)
    alive = np.ones(size, dtype=bool)
    started = np.zeros(size, dtype=bool)
    expected: Any = np.zeros(size, dtype=np.float32)
    for stride, extent in zip(reversed(strides), reversed(extents), strict=True):
        if stride is None:
            count += alive
            continue
        used = np.asarray(stride) != 0
        wrong = np.where(started, stride != expected, (stride != 1) & (count != 0))
        alive = alive & ~(used & wrong)
        count += alive
        started = started | (alive & used)
        expected = np.where(alive & used, stride * extent, expected)
        if not alive.any():
            break
    return count


def _outer(shape: BlockShape, extents: Sequence[Any], busy: dict[int, Array], limit: Array, size: int) -> Array:
    count = np.zeros(size, dtype=np.int8)
    product = np.ones(size, dtype=np.float32)
    alive = np.ones(size, dtype=bool)
    for position, extent in enumerate(extents):
        if not shape.data_parallel[position]:
            break
        taken = busy.get(shape.loops[position])
        if taken is not None:
            alive = alive & ~taken
        count += alive
        product = np.where(alive, product * extent, product)
        alive = alive & (product <= limit)
        if not shape.single[position] or not alive.any():
            break
    return np.where((product == 1) | (limit < 0), np.int8(-1), count)


def _inner(
    shape: BlockShape, extents: Sequence[Any], busy: dict[int, Array], limit: int, fusible: Array, inner: int, size: int
) -> Array:
    count = np.zeros(size, dtype=np.int8)
    product = np.ones(size, dtype=np.float32)
    alive = np.ones(size, dtype=bool)
    n = len(extents)
    for position in range(n - 1, n - 1 - inner, -1):
        taken = busy.get(shape.loops[position])
        if taken is not None:
            alive = alive & ~taken
        grown = product * extents[position]
        alive = alive & (count < fusible) & (grown <= limit)
        count += alive
        product = np.where(alive, grown, product)
        if not alive.any():
            break
    return np.where((product == 1) | (limit < 0), np.int8(-1), count)
