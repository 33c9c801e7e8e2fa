"""Names for sizes that are computed: ``(h - 1) // 2 + 1`` as one variable while a program is scheduled and lowered.

What simplifiers make of quotients of quotients nobody can divide by again; with a name, ``i // (m * n) % n`` is a digit
whatever ``m`` and ``n`` are. :meth:`NamedSizes.restore` takes names back, :meth:`NamedSizes.bind` makes them ``let``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....arith.affine import affine
from ....arith.functor import free_vars
from ....ir.expr import PrimExpr
from ....ir.functor import all_nodes
from ....ir.prim import BinaryOp, FloorDiv, IntImm, Mul, SizeVar, Var
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import Block, LetStmt

__all__ = ["NamedSizes", "is_sum", "name_sizes"]


class NamedSizes:
    """A function in which computed sizes are variables: ``func``, and what the variables stand for."""

    def __init__(self, func: PrimFunc, values: Mapping[Var, PrimExpr], buffers: Mapping[Buffer, Buffer]) -> None:
        self.func = func
        self.values = dict(values)
        self.buffers = dict(buffers)

    def restore(self, func: PrimFunc, only: Callable[[PrimExpr], bool] = lambda _: True) -> PrimFunc:
        """``func``, made from the one with names, without those of sizes that ``only`` accepts."""
        values = {var: value for var, value in self.values.items() if only(value)}
        if not values:
            return func
        buffers = self.buffers if len(values) == len(self.values) else {}
        self.values = {var: value for var, value in self.values.items() if var not in values}
        return func.with_body(Substitute(values, buffers).visit(func.body))

    def bind(self, func: PrimFunc) -> PrimFunc:
        """``func`` with a ``let`` for each name that is left."""
        body = func.body
        for var, value in self.values.items():
            body = LetStmt(var, value, body)
        return func if body is func.body else func.with_body(body)


def name_sizes(func: PrimFunc) -> NamedSizes:
    """Give names to the computed extents of a function's arrays; parameters keep their shapes as they are written."""
    known = {var for buffer in func.buffer_map.values() for extent in buffer.shape for var in free_vars(extent)}
    if not known:
        return NamedSizes(func, {}, {})
    buffers = [*func.buffer_map.values()]
    buffers += [buffer for x in all_nodes(func.body) if isinstance(x, Block) for buffer in x.alloc_buffers]
    values: dict[Var, PrimExpr] = {}
    for extent in (_without_factor(extent) for buffer in buffers for extent in buffer.shape):
        if isinstance(extent, BinaryOp) and extent.dtype in ("int32", "int64") and known.issuperset(free_vars(extent)):
            if not any(same_expression(extent, other) for other in values.values()):
                values[SizeVar("size", extent.dtype)] = extent
    if not values:
        return NamedSizes(func, {}, {})
    namer = _Namer(values)
    body = namer.visit(func.body)
    return NamedSizes(func.with_body(body), values, {new: old for old, new in namer.buffers.items()})


def _without_factor(extent: PrimExpr) -> PrimExpr:
    """A size without its constant factor, which divides it whatever its name: ``(s + 31) // 32`` of ``(s + 31) // 32 * 32``."""
    inner = isinstance(extent, Mul) and isinstance(extent.b, IntImm) and isinstance(extent.a, FloorDiv)
    return extent.a if isinstance(extent, Mul) and inner else extent


def is_sum(size: PrimExpr) -> bool:
    """Whether a size is a sum of multiples of variables, which simplifiers do understand."""
    return all(isinstance(term.var, Var) for term in affine(size, digits=False, casts=False).terms)


class _Namer(Substitute):
    def __init__(self, names: Mapping[Var, PrimExpr]) -> None:
        super().__init__({})
        self.names = names

    def visit(self, node: Any) -> Any:
        if isinstance(node, BinaryOp):
            for name, value in self.names.items():
                if type(value) is type(node) and same_expression(value, node):
                    return name
        return super().visit(node)
