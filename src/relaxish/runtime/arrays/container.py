"""Plain containers of the run time: shapes and strings, and conversion of Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from .ndarray import NDArray, from_numpy

_T = TypeVar("_T")


class ShapeTuple(tuple):  # type: ignore[type-arg]
    """A tuple of integers, the run-time value of a shape expression."""

    __slots__ = ()

    def __new__(cls, shape: Iterable[int] = ()) -> ShapeTuple:
        return super().__new__(cls, (int(d) for d in shape))

    def __eq__(self, other: object) -> bool:
        """Equality with any sequence of the same integers, lists included."""
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"ShapeTuple([{', '.join(str(d) for d in self)}])"


class String(str):
    """Run-time string; a plain ``str`` does as well."""

    __slots__ = ()


class Array(tuple):  # type: ignore[type-arg]
    """A sequence that prints as a list; wherever an array is expected a plain tuple or list does as well."""

    __slots__ = ()
    type_key = "Array"

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Array(found) if isinstance(index, slice) else found

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"


class Map(dict):  # type: ignore[type-arg]
    """A dictionary under its public name."""

    __slots__ = ()
    type_key = "Map"

    def same_as(self, other: object) -> bool:
        """Whether both are the very same object."""
        return self is other


class ADT(tuple):  # type: ignore[type-arg]
    """A tagged tuple of run-time values.

    >>> ADT(1, ["a", "b"]).tag
    1
    """

    tag: int

    def __new__(cls, tag: int, fields: Iterable[Any] = ()) -> ADT:
        made = super().__new__(cls, (convert(f) for f in fields))
        made.tag = tag
        return made

    @classmethod
    def of_tuple(cls, fields: Iterable[Any]) -> ADT:
        """The untagged kind."""
        return cls(0, fields)


def tuple_object(fields: Iterable[Any] = ()) -> ADT:
    """A tuple as a run-time value."""
    return ADT.of_tuple(fields)


def getitem_helper(
    obj: Sequence[Any], elem_getter: Callable[[Any, int], _T], length: int, idx: int | slice
) -> _T | list[_T]:
    """Python indexing with slices and negative numbers over a getter of single elements. Raises IndexError."""
    if isinstance(idx, slice):
        return [elem_getter(obj, i) for i in range(*idx.indices(length))]
    if not -length <= idx < length:
        raise IndexError(f"Index out of range. size: {length}, got index {idx}")
    return elem_getter(obj, idx + length if idx < 0 else idx)


def convert(value: object) -> Any:
    """A Python value as a run-time value: NumPy arrays become :class:`NDArray`, lists :class:`Array`, dicts :class:`Map`.

    >>> convert([1, 2, 3])[-2:]
    [2, 3]
    """
    match value:
        case list() | tuple() if not isinstance(value, ShapeTuple | ADT):
            return Array(convert(v) for v in value)
        case dict():
            return Map({k: convert(v) for k, v in value.items()})
        case np.ndarray():
            return from_numpy(value)
    return value


def type_key_of(value: object) -> str:
    """The name by which error messages call the kind of a run-time value.

    >>> type_key_of(ShapeTuple([1])), type_key_of("text")
    ('runtime.ShapeTuple', 'runtime.String')
    """
    for kind, key in _TYPE_KEYS:
        if isinstance(value, kind):
            return key
    if value is None:
        return "None"
    if callable(value):
        return "runtime.PackedFunc"
    return str(getattr(value, "type_key", type(value).__name__))


_TYPE_KEYS: tuple[tuple[type, str], ...] = (
    (NDArray, "runtime.NDArray"),
    (ShapeTuple, "runtime.ShapeTuple"),
    (tuple, "Array"),
    (list, "Array"),
    (dict, "Map"),
    (str, "runtime.String"),
    (bool, "runtime.BoxBool"),
    (int, "runtime.BoxInt"),
    (float, "runtime.BoxFloat"),
)


def flatten(value: object) -> list[NDArray]:
    """All arrays in a nested result, left to right."""
    match value:
        case NDArray():
            return [value]
        case list() | tuple() if not isinstance(value, ShapeTuple):
            return [a for v in value for a in flatten(v)]
    return []
