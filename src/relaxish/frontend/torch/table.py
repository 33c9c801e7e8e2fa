"""The table of converters: from an ATen overload to the function that emits Relax for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...ir import PrimExpr
from ...relax.expr import Expr

__all__ = ["CONVERTERS", "Converter", "Made", "converter", "find", "supported_operators"]

#: The result of a converter: a tensor, a number of the program, or one of these for each output.
Made = Expr | int | float | str | PrimExpr | Sequence[Any] | None
Converter = Callable[..., Made]
_C = TypeVar("_C", bound=Converter)
CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[_C], _C]:
    """Register a converter for operator names such as ``add.Tensor`` (or ``add`` for every overload).

    A converter takes the importer and the operator's positional arguments, already turned into Relax
    expressions and Python values, plus its keyword arguments.
    """

    def register(function: _C) -> _C:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def find(name: str) -> Converter | None:
    """The converter for ``op.overload``; an in-place variant (``add_.Tensor``) is the same in a functional graph."""
    base, _, overload = name.partition(".")
    for candidate in (base, base.removesuffix("_") if not base.startswith("_") else base):
        for key in (f"{candidate}.{overload}", candidate):
            if key in CONVERTERS:
                return CONVERTERS[key]
    return None


def supported_operators() -> list[str]:
    """Names that can be converted, sorted; the package imports the modules that fill the table."""
    return sorted(CONVERTERS)
