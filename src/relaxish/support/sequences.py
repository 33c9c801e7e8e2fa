"""One or several: what may be given alone or as a sequence, and the elements of one class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["as_list", "of_kind"]

_T = TypeVar("_T")


def as_list(value: _T | Sequence[_T]) -> list[_T]:
    """The elements of a list or tuple; anything else, a text too, is the one element.

    >>> as_list((1, 2)), as_list("ab")
    ([1, 2], ['ab'])
    """
    return list(value) if isinstance(value, (list, tuple)) else [value]  # type: ignore[list-item]


def of_kind(items: Iterable[object], kind: type[_T]) -> Iterator[_T]:
    """The elements that are instances of ``kind``, in order.

    >>> list(of_kind([1, "a", 2], int))
    [1, 2]
    """
    return (item for item in items if isinstance(item, kind))
