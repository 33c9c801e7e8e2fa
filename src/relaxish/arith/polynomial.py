"""Integer expressions as sums of products, the normal form that :mod:`~.mixed_radix` divides.

An atom is what a product multiplies: a variable, a quotient, a remainder, or anything else taken as it is. Atoms are
numbers (of the table that made them), a product is a sorted tuple of atoms, and a :data:`Poly` says how often each
product occurs: ``2 * n * w + 3`` is ``{(n, w): 2, (): 3}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Term = TypeVar("Term")
Product = tuple[int, ...]
Poly = dict[Product, int]

__all__ = [
    "Poly", "Product", "add", "common_factor", "divide_exactly", "is_multiple", "minus", "multiply", "number", "scale",
    "split_by", "without",
]  # fmt: skip


def number(value: int) -> Poly:
    """A constant.

    >>> number(3)
    {(): 3}
    """
    return {(): value} if value else {}


def add(a: Mapping[Term, int], b: Mapping[Term, int], times: int = 1) -> dict[Term, int]:
    """``a + times * b``; of sums of anything that is counted, such as a code generator's registers."""
    total = dict(a)
    for term, count in b.items():
        value = total.get(term, 0) + times * count
        if value:
            total[term] = value
        else:
            total.pop(term, None)
    return total


def minus(a: Mapping[Product, int], b: Mapping[Product, int]) -> Poly:
    """``a - b``."""
    return add(a, b, -1)


def scale(a: Mapping[Product, int], product: Product, count: int) -> Poly:
    """``a`` times ``count`` times a product."""
    return {tuple(sorted((*p, *product))): c * count for p, c in a.items()}


def multiply(a: Mapping[Product, int], b: Mapping[Product, int]) -> Poly:
    """``a * b``."""
    total: Poly = {}
    for product, count in b.items():
        total = add(total, scale(a, product, count))
    return total


def without(product: Product, factors: Product) -> Product | None:
    """The product divided by others; None if it does not have them all.

    >>> without((1, 2, 2), (2,)), without((1,), (2,))
    ((1, 2), None)
    """
    left = list(product)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def is_multiple(a: Mapping[Product, int], product: Product, count: int) -> bool:
    """Whether every term of ``a`` is a multiple of ``count`` times a product."""
    return not split_by(a, product, count)[1]


def split_by(a: Mapping[Product, int], product: Product, count: int) -> tuple[Poly, Poly]:
    """``(q, r)`` with ``a == q * count * product + r``, where no term of ``r`` is a multiple of that.

    >>> split_by({(1, 2): 8, (2,): 4, (): 3}, (2,), 4)
    ({(1,): 2, (): 1}, {(): 3})
    """
    quotient: Poly = {}
    rest: Poly = {}
    for term, times in a.items():
        left = without(term, product)
        if left is None or times % count:
            rest[term] = times
        else:
            quotient[left] = times // count
    return quotient, rest


def divide_exactly(a: Mapping[Product, int], product: Product, count: int) -> Poly | None:
    """``a`` divided by ``count`` times a product; None where that leaves a rest."""
    quotient, rest = split_by(a, product, count)
    return None if rest else quotient


def common_factor(products: Mapping[Product, int], other: Product, count: int) -> tuple[Product, int]:
    """The largest divisor that all terms share with ``count`` times ``other``.

    >>> common_factor({(1, 2): 6, (2,): 4}, (2, 3), 8)
    ((2,), 2)
    """
    from math import gcd

    shared = list(other)
    for term, times in products.items():
        count = gcd(count, times)
        left, kept = list(term), []
        for factor in shared:
            if factor in left:
                left.remove(factor)
                kept.append(factor)
        shared = kept
    return tuple(shared), count
