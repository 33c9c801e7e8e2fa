"""The syntax node classes that the parser reads: Python's own, in the one form that all supported versions share."""

from __future__ import annotations

import ast as _ast
from ast import *  # noqa: F403

__all__ = [
    name
    for name in dir(_ast)
    if name[0] != "_" and isinstance(getattr(_ast, name), type) and issubclass(getattr(_ast, name), _ast.AST)
]
