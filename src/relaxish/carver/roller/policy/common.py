"""Arithmetic that policies share; lengths may be numbers or NumPy columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["coalesced_elements", "coalesced_factor", "factorize", "get_all_factors", "product", "similarity"]


def get_all_factors(n: int) -> list[int]:
    """The divisors of ``n``, ascending.

    >>> get_all_factors(12)
    [1, 2, 3, 4, 6, 12]
    """
    n = int(n)
    small = [i for i in range(1, int(n**0.5) + 1) if n % i == 0]
    return small + [n // i for i in reversed(small) if i * i != n]


def factorize(n: int) -> list[int]:
    """The prime factors of ``n``, ascending.

    >>> factorize(12)
    [2, 2, 3]
    """
    n, found, i = int(n), [], 2
    while n > 1:
        while n % i == 0:
            found.append(i)
            n //= i
        i += 1
        if i * i > n > 1:
            i = n
    return found


def product(lengths: Sequence[Any]) -> Any:
    """The product of lengths."""
    total: Any = 1
    for n in lengths:
        total = total * n
    return total


def coalesced_factor(part: Sequence[Any], whole: Sequence[int]) -> Any:
    """Elements that lie next to each other in memory, of a part of a tensor."""
    run: Any = 1
    if not any(isinstance(n, np.ndarray) for n in part):
        for n, extent in zip(reversed(part), reversed(whole), strict=True):
            run *= n
            if n != extent:
                break
        return run
    go_on: Any = True
    for n, extent in zip(reversed(part), reversed(whole), strict=True):
        run = run * np.where(go_on, n, 1)
        go_on = np.logical_and(go_on, n == extent)
    return run


def coalesced_elements(part: Sequence[Any], whole: Sequence[int], transaction: int) -> np.ndarray[Any, Any]:
    """Elements that are moved for a part of a tensor when memory is accessed ``transaction`` elements at a time."""
    run = coalesced_factor(part, whole)
    return np.where(product(part) == 0, 0, transaction * product(part) / np.maximum(1, np.minimum(transaction, run)))


def similarity(a: float, b: float) -> float:
    """Similarity of two positive numbers: 1 for equal ones.

    >>> similarity(4, 4)
    1.0
    """
    return 2 * a * b / (a * a + b * b)
