"""Entering operators in the table, and looking up what tests want to know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..relax.op_table import OpRecord, register_op, update_op

__all__ = ["Sample", "define", "gradient", "sample"]

#: NumPy arguments and keyword arguments of one example call.
Sample = tuple[tuple[Any, ...], dict[str, Any]]


def define(name: str, infer: Callable[..., Any], **fields: Any) -> OpRecord:
    """Register operator ``relax.<name>``."""
    return register_op(OpRecord(f"relax.{name}", infer, **fields))


def gradient(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: ``f(orig_var, orig_call, output_grad, builder)`` gives a list of argument gradients."""

    def attach(func: Callable[..., Any]) -> Callable[..., Any]:
        update_op(f"relax.{name}", gradient=func)
        from ..ir.op import Op

        Op.get(f"relax.{name}").set_attr("FPrimalGradient", func)
        return func

    return attach


def sample(*args: Any, **kwargs: Any) -> Sample:
    """One example call."""
    return args, kwargs


def samples(*items: Sample) -> Callable[[], Sequence[Sample]]:
    """Example calls, as a record wants them."""
    return lambda: items
