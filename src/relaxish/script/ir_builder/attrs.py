"""Attributes of functions and modules as script gives them."""

from __future__ import annotations

from typing import Any

from ...ir.prim import FloatImm, IntImm, StringImm

__all__ = ["add_func_attrs", "plain_attr"]


def plain_attr(value: object) -> object:
    """Attribute values in their one form: constants of script as Python numbers where those print the same."""
    match value:
        case dict():
            return {k: plain_attr(v) for k, v in value.items()}
        case list() | tuple():
            return tuple(plain_attr(v) for v in value)
        case IntImm(dtype="bool"):
            return bool(value.value)
        case IntImm(dtype="int32") | FloatImm(dtype="float32") | StringImm():
            return value.value
    return value


def add_func_attrs(func: Any, attrs: dict[str, Any], what: str) -> None:
    """Add to a function frame's attributes. Raises ValueError for one that is there already."""
    if func.is_private and "global_symbol" in attrs:
        raise ValueError(
            'A private function may not have the kGlobalSymbol ("global_symbol") attribute.  However, a private '
            f"function specified the global symbol as {attrs['global_symbol']}"
        )
    for key, value in attrs.items():
        if key in func.attrs:
            raise ValueError(
                f'Duplicate {what} for key = "{key}".  Previous value was {func.attrs[key]}, with later definition '
                f"as {value}"
            )
        func.attrs[key] = plain_attr(value)
