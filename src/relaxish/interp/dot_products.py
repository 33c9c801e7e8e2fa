"""Dot-product instructions of AArch64, Hexagon and AMD GPUs: products of narrow neighbours, summed into wide lanes."""

from __future__ import annotations


import numpy as np
from collections.abc import Callable

from .intrinsics import Array, EXTERN

__all__: list[str] = []


def _dots(left: np.typing.ArrayLike, right: np.typing.ArrayLike, kinds: tuple[str, str], depth: int) -> Array:
    """The sums of ``depth`` neighbouring products; operands are seen as elements of ``kinds``."""
    a, b = (
        np.ascontiguousarray(np.atleast_1d(x)).view(kind).astype(np.int64).reshape(-1, depth)
        for x, kind in zip((left, right), kinds, strict=True)
    )
    return (a * b).sum(axis=1)


def _summing(kinds: tuple[str, str], depth: int) -> Callable[..., Array]:
    """An instruction ``(sum, left, right)``."""

    def run(total: np.typing.ArrayLike, left: np.typing.ArrayLike, right: np.typing.ArrayLike) -> Array:
        start = np.asarray(total)
        return (start.astype(np.int64) + _dots(left, right, kinds, depth)).astype(start.dtype)

    return run


def _by_word(total: np.typing.ArrayLike, rows: Array, word: int) -> Array:
    """``vrmpyub``: every lane takes the same four values."""
    return _summing(("uint8", "uint8"), 4)(total, np.full(len(rows), word, np.int32), rows)


def _widening_product(left: np.typing.ArrayLike, right: np.typing.ArrayLike) -> Array:
    return np.asarray(left, np.int16) * np.asarray(right, np.int16)


def _pairs(*values: np.typing.ArrayLike) -> Array:
    """Sums of neighbours, of several vectors one after the other."""
    return np.concatenate([np.asarray(v, np.int32).reshape(-1, 2).sum(axis=1, dtype=np.int32) for v in values])


def _saturating_pairs(total: np.typing.ArrayLike, left: np.typing.ArrayLike, right: np.typing.ArrayLike) -> Array:
    """``vdmpyhvsat``: two 16-bit products, added with saturation."""
    made = np.asarray(total, np.int64) + _dots(left, right, ("int16", "int16"), 2)
    return np.clip(made, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def _word_dot(left: np.typing.ArrayLike, right: np.typing.ArrayLike, total: int, _clamp: np.typing.ArrayLike) -> int:
    """``v_dot4_i32_i8`` of two words."""
    a, b = (np.array([x], np.int64).astype(np.int32) for x in (left, right))
    return int(total) + int(_dots(a, b, ("int8", "int8"), 4)[0])


EXTERN["llvm.aarch64.neon.sdot.v4i32.v16i8"] = _summing(("int8", "int8"), 4)
EXTERN["llvm.aarch64.neon.udot.v4i32.v16i8"] = _summing(("uint8", "uint8"), 4)
EXTERN["llvm.aarch64.neon.smull.v8i16"] = _widening_product
EXTERN["llvm.aarch64.neon.saddlp.v4i32.v8i16"] = EXTERN["llvm.aarch64.neon.addp.v4i32"] = _pairs
EXTERN["llvm.hexagon.V6.vrmpyub.acc.128B"] = _by_word
EXTERN["llvm.hexagon.V6.vrmpybusv.acc.128B"] = _summing(("uint8", "int8"), 4)
EXTERN["llvm.hexagon.V6.vdmpyhvsat.acc.128B"] = _saturating_pairs
EXTERN["llvm.amdgcn.sdot4"] = _word_dot
