"""Random variables: the names a trace gives to blocks, loops and sampled integers."""

from __future__ import annotations

from typing import Union

from ..expr import Var
from .identity import Identity

__all__ = ["BlockRV", "ExprRV", "LoopRV", "RAND_VAR_TYPE"]


class BlockRV(Identity):
    """Stands for a block of the program a trace is applied to."""

    __slots__ = ("__weakref__",)


class LoopRV(Identity):
    """Stands for a loop of the program a trace is applied to."""

    __slots__ = ("__weakref__",)


# A sampled integer is an ordinary scalar variable, so that it may occur in expressions.
ExprRV = Var
RAND_VAR_TYPE = Union[BlockRV, LoopRV, Var]
