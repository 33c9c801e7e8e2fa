"""Plain Python values of attributes and annotations.

What users read from a public container stays boxed as it is there: ``loop.annotations["pragma_unroll"]`` is an
``IntImm`` where the program was written with a number, an attribute of a call may be one or a plain ``int``. The compiler
reads either with these functions.
"""

from __future__ import annotations

from typing import Any

__all__ = ["plain", "plain_bool", "plain_float", "plain_int", "plain_ints", "plain_str"]


def plain(value: object) -> Any:
    """The number, truth value or text of a constant; whatever holds no ``value`` stands for itself.

    >>> from relaxish import tir
    >>> plain(tir.const(3, "int64")), plain(2.5), plain(tir.StringImm("unroll"))
    (3, 2.5, 'unroll')
    """
    return getattr(value, "value", value)


def plain_int(value: object) -> int:
    """An integer attribute. Raises TypeError or ValueError if it holds none.

    >>> from relaxish import tir
    >>> plain_int(tir.const(3, "int64")), plain_int(True)
    (3, 1)
    """
    return int(plain(value))


def plain_ints(values: Any) -> tuple[int, ...]:
    """A sequence of integer attributes. Raises TypeError or ValueError if an element is none."""
    return tuple([int(plain(value)) for value in values])


def plain_float(value: object) -> float:
    """A number as a float. Raises TypeError or ValueError if it is none."""
    return float(plain(value))


def plain_bool(value: object) -> bool:
    """A truth value: of a constant or of any Python object."""
    return bool(plain(value))


def plain_str(value: object) -> str:
    """A text attribute; other values as Python writes them."""
    return str(plain(value))
