"""Inputs that the caller chose for tuning."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

__all__ = ["get_autotune_inputs", "set_autotune_inputs"]

_INPUTS: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar("tile_autotune_inputs", default=None)


@contextlib.contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:
    """Within this scope kernels are tuned on these inputs: ``with set_autotune_inputs(a, b):``, or a list of them."""
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    token = _INPUTS.set(given)
    try:
        yield
    finally:
        _INPUTS.reset(token)


def get_autotune_inputs() -> list[Any] | None:
    """The inputs of the innermost scope; None outside of any."""
    return _INPUTS.get()
