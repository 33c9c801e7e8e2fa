"""Failed checks of constructors and builders: internal errors of the public API that are bad types or values too."""

from __future__ import annotations

from ..support.errors import InternalError

__all__ = ["CheckDivisionError", "CheckIndexError", "CheckOverflowError", "CheckTypeError", "CheckValueError"]


class CheckTypeError(InternalError, TypeError):
    """An operand of the wrong type."""


class CheckValueError(InternalError, ValueError):
    """An operand of a value that is not allowed."""


class CheckIndexError(InternalError, IndexError):
    """A key or position that does not exist."""


class CheckOverflowError(InternalError, OverflowError):
    """A number that its type cannot hold."""


class CheckDivisionError(InternalError, ZeroDivisionError):
    """An expression that divides by the constant zero."""
