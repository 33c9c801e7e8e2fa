"""Reading layout strings, and reordering dimensions between layouts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ...relax.expr import Call
from ...tir import BijectiveLayout, Layout, layout
from ..inference import fail

__all__ = ["check_rank", "layout_attr", "reorder"]


def layout_attr(call: Call, name: str, text: str, reference: str) -> tuple[Layout, Any]:
    """A layout attribute and its conversion to the reference layout. Raises if there is none."""
    made, convert = None, None
    with contextlib.suppress(ValueError, RuntimeError, TypeError):
        made = layout(text)
        convert = BijectiveLayout(made, reference)
    if made is None or not convert:
        raise fail(call, f"requires the given {name} layout to be convertible from {reference} layout, but got {text}")
    return made, convert


def check_rank(call: Call, what: str, ndim: int, made: Layout) -> None:
    """A tensor must have as many dimensions as its layout."""
    if ndim >= 0 and ndim != len(made):
        raise fail(call, f"the {what} layout {made.name} does not fit a tensor of {ndim} dimensions")


def reorder(convert: BijectiveLayout, dims: Sequence[Any]) -> list[Any]:
    """Dimensions in the reference layout."""
    return list(convert.forward_shape(list(dims)))
