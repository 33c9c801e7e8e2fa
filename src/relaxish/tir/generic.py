"""Arithmetic under the names by which operators are overloaded: ``generic.add(a, b)`` is ``a + b`` for scalars."""

from __future__ import annotations

from ..ir.primops import add, cast, divide, floordiv, multiply, subtract

__all__ = ["add", "cast", "divide", "floordiv", "multiply", "subtract"]
