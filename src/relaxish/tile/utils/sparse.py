"""Matrices with half of their elements, for ``T.gemm_sp``: what is there, and metadata that says which."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir import dtype as dt
from ...tir.transform.tiles.sparse import Sparsity
from ..jit.calling import is_torch, to_numpy
from ..language.regions import TileError, as_dtype
from ..profiler.supply import as_tensor

__all__ = ["compress", "randn_semi_sparse"]


def compress(
    A: Any,
    meta_dtype: Any = None,
    *,
    transposed: bool = False,
    arch: str | None = None,
    block_k: int | None = None,
) -> tuple[Any, Any]:
    """``(A_sparse, E)`` of a matrix (torch or NumPy) that has at most two elements of each four along the depth.

    ``A_sparse`` has half of the depth. ``E`` holds four bits for each four elements, the first four in the lowest bits of a
    word of ``meta_dtype`` (int16; integers of 8, 16 and 32 bits): the places of the two that are kept, in their order. Of
    elements of 32 bits one of two is kept. ``transposed``: the depth is the first axis of A, and of ``A_sparse``; rows of E
    are rows of the left operand all the same. Metadata lies row by row whatever ``arch`` and ``block_k`` are.

    Raises TileError for other types and sizes, and for a group with more elements than are kept: nothing is dropped.
    """
    if isinstance(meta_dtype, bool):
        transposed, meta_dtype = meta_dtype, None
    del arch, block_k  # other compilers' instructions want metadata in orders of their own
    kind = "int16" if meta_dtype is None else as_dtype(meta_dtype)
    values = to_numpy(A)
    dense = values.T if transposed else values
    sparsity = _sparsity(dense, kind)
    places = _places(dense, sparsity)
    kept = np.take_along_axis(_groups(dense, sparsity), places, axis=2).reshape(dense.shape[0], -1)
    bits = places[..., 0] * 10 + 4 if sparsity.group == 2 else places[..., 0] + 4 * places[..., 1]
    per_word = sparsity.word_bits // 4
    words = bits.astype("uint64").reshape(dense.shape[0], -1, per_word)
    packed = (words << (4 * np.arange(per_word, dtype="uint64"))).sum(axis=2).astype(f"uint{sparsity.word_bits}")
    made = np.ascontiguousarray(kept.T if transposed else kept), packed.view(kind)
    if not is_torch(A):
        return made
    place = A.device
    return tuple(as_tensor(x, None).to(place) for x in made)


def _sparsity(dense: npt.NDArray[Any], kind: str) -> Sparsity:
    if dense.ndim != 2:
        raise TileError(f"compress takes a matrix, not {dense.ndim} dimensions")
    if not (dt.is_int(kind) or dt.is_uint(kind)) or dt.bits(kind) not in (8, 16, 32):
        raise TileError(f"compress(meta_dtype={kind!r}): words have 8, 16 or 32 bits")
    if dense.dtype.itemsize not in (1, 2, 4) or dense.dtype == np.bool_:
        raise TileError(f"compress: elements have 8, 16 or 32 bits, not those of {dense.dtype}")
    sparsity = Sparsity(8 * dense.dtype.itemsize, dt.bits(kind))
    if dense.shape[1] % sparsity.dense_per_word:
        raise TileError(
            f"compress: a depth of {dense.shape[1]} is no multiple of {sparsity.dense_per_word}, which a word of {kind} is about"
        )
    return sparsity


def _groups(dense: npt.NDArray[Any], sparsity: Sparsity) -> npt.NDArray[Any]:
    return dense.reshape(dense.shape[0], -1, sparsity.group)


def _places(dense: npt.NDArray[Any], sparsity: Sparsity) -> npt.NDArray[np.int64]:
    """Places of the elements that are kept in each group: those that are not zero, zeros where these are too few, in order."""
    there = _groups(dense, sparsity) != np.zeros((), dense.dtype)
    half = sparsity.group // 2
    many = np.argwhere(there.sum(axis=2) > half)
    if len(many):
        row, group = (int(v) for v in many[0])
        raise TileError(
            f"compress: row {row} has more than {half} of the {sparsity.group} elements from {group * sparsity.group} on; prune the "
            "matrix first"
        )
    # A stable sort puts what is there first, and keeps the order of the rest.
    first = np.argsort(~there, axis=2, kind="stable")[..., :half]
    return np.sort(first, axis=2)


def randn_semi_sparse(
    M: int, K: int, dtype: Any = "float16", transposed: bool = False, seed: int = 0
) -> npt.NDArray[Any]:
    """A random matrix (K x M where ``transposed``) that :func:`compress` takes, as NumPy array."""
    kind = dt.numpy_dtype(as_dtype(dtype))
    group = 2 if np.dtype(kind).itemsize == 4 else 4
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((M, K // group, group))
    drop = np.argsort(rng.random(values.shape), axis=2)[..., : group // 2]
    np.put_along_axis(values, drop, 0.0, axis=2)
    made = values.reshape(M, K).astype(kind)
    return np.ascontiguousarray(made.T) if transposed else made
