"""Telling how an operator is lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.op import register_op_attr
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr

__all__ = ["LegalizeFunc", "TEFunc", "register_legalize"]

#: A function of TE tensors and other arguments that gives a TE tensor, or several.
TEFunc = Callable[..., Any]

#: What an operator's call is replaced by.
LegalizeFunc = Callable[[BlockBuilder, Call], Expr]


def register_legalize(op_name: str, legal_func: LegalizeFunc | None = None) -> Callable[..., Any]:
    """Make ``legal_func(builder, call)`` the lowering of an operator; without it, returns a decorator.

    Example::

        @register_legalize("my.double")
        def _double(builder, call):
            return builder.call_te(lambda x: x + x, call.args[0], primfunc_name_hint="double")
    """
    return register_op_attr(op_name, "FLegalize", legal_func)
