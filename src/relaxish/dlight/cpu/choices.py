"""One kernel from several: which of them runs is decided by the sizes of a call.

Before, two programs of one signature::

    def few(X, Y): for i in range(n): ...
    def many(X, Y): for i in range((n + 11) // 12): ...

After ``either(n >= 12, many, few)``::

    def many(X, Y):
        if n >= 12:
            for i in range((n + 11) // 12): ...
        else:
            for i in range(n): ...
"""

from __future__ import annotations

from ...ir.expr import PrimExpr
from ...ir.prim import Var
from ...support.errors import InternalError
from ...tir import BlockRealize, Buffer, IfThenElse, PrimFunc
from ...tir.functor import Substitute

__all__ = ["either", "with_signature"]


def either(condition: PrimExpr, func: PrimFunc, other: PrimFunc) -> PrimFunc:
    """``func`` where ``condition`` holds, else ``other``, which has its signature; attributes are those of ``func``."""
    first, second = _root(func), _root(with_signature(other, func))
    block = first.block.with_fields(
        body=IfThenElse(condition, first.block.body, second.block.body),
        alloc_buffers=[*first.block.alloc_buffers, *second.block.alloc_buffers],
    )
    made: PrimFunc = func.with_body(first.with_fields(block=block))
    return made


def with_signature(func: PrimFunc, like: PrimFunc) -> PrimFunc:
    """``func`` with the parameters of ``like``, its arrays and the variables in their shapes."""
    values: dict[Var, PrimExpr] = {}
    buffers: dict[Buffer, Buffer] = {}
    for old, new in zip(func.params, like.params, strict=True):
        mine, other = func.buffer_map[old], like.buffer_map[new]
        buffers[mine] = other
        values[mine.data] = other.data
        for extent, known in zip(mine.shape, other.shape, strict=True):
            if isinstance(extent, Var):
                values.setdefault(extent, known)
    body = func.body if func.params == like.params else Substitute(values, buffers).visit(func.body)
    made: PrimFunc = like.with_body(body)
    return made


def _root(func: PrimFunc) -> BlockRealize:
    root = func.body
    if not isinstance(root, BlockRealize) or root.block.iter_vars or root.block.match_buffers:
        raise InternalError(f"a program to choose has no root block: {func}")
    return root
