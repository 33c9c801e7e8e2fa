"""Names and type codes of data types that users bring along: ``custom[posites2]32``."""

from __future__ import annotations

import re

FIRST_CODE = 129
"""Codes below belong to the built-in types."""

_CODES: dict[str, int] = {}
_NAMES: dict[int, str] = {}
PATTERN = re.compile(r"^custom\[(\w+)\](\d+)(?:x(\d+))?$")
"""The name, the bits and the lanes of such a type."""


def register(type_name: str, type_code: int) -> None:
    """Give a custom type its code. Raises ValueError for a code of the built-in types."""
    if type_code < FIRST_CODE:
        raise ValueError(f"Please choose a type code >= {FIRST_CODE} for custom types")
    _CODES[type_name] = int(type_code)
    _NAMES[int(type_code)] = type_name


def type_name(type_code: int) -> str:
    """The name registered for a code. Raises ValueError if there is none."""
    if type_code not in _NAMES:
        raise ValueError(f"Type code {type_code} not registered")
    return _NAMES[type_code]


def type_code(name: str) -> int:
    """The code registered for a name. Raises ValueError if there is none."""
    if name not in _CODES:
        raise ValueError(f"Type name {name} not registered")
    return _CODES[name]


def is_registered(code: int) -> bool:
    """Whether a code belongs to a custom type."""
    return code in _NAMES
