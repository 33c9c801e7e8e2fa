"""Operands of 16-bit floats that are broadcast along vectors are converted once, not at every use.

Before (``A``, ``B``: float16)::

    C[i, j] += T.Cast("float32", A[i, k]) * T.Cast("float32", B[k, j])   # each A[i, k] converted for every vector of j

After::

    A_wide[i, k] = T.Cast("float32", A[i, k])                            # sixteen at once
    C[i, j] += A_wide[i, k] * T.Cast("float32", B[k, j])
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, all_nodes
from ...ir.prim import Cast, const_ints
from ...support.sequences import of_kind
from ...tir import Buffer, BufferLoad, BufferStore, decl_buffer
from ...tir.schedule import Schedule
from .facts import BlockInfo, IterInfo, access_stride

__all__ = ["widen_rows"]

_NARROW = ("float16", "bfloat16")
# So many columns share a converted element; fewer are one vector or two.
_LEAST_COLUMNS = 32


class _Wide(Mutator):
    """Programs with a buffer in another type: what is stored is cast, what is loaded is not."""

    _table = {}

    def __init__(self, narrow: Buffer, wide: Buffer) -> None:
        self.narrow, self.wide = narrow, wide

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.wide if buffer is self.narrow else buffer

    def visit_Cast(self, e: Cast) -> PrimExpr:
        load = e.value
        if isinstance(load, BufferLoad) and load.buffer is self.narrow:
            return BufferLoad(self.wide, [self.visit(i) for i in load.indices])
        return self.default_visit(e)

    def visit_BufferStore(self, store: BufferStore) -> BufferStore:
        if store.buffer is not self.narrow:
            made: BufferStore = self.default_visit(store)
            return made
        value = Cast(self.wide.dtype, self.visit(store.value))
        return store.with_fields(buffer=self.wide, value=value, indices=[self.visit(i) for i in store.indices])


def widen_rows(sch: Schedule, anchor: BlockInfo, vector: IterInfo) -> tuple[Schedule, str] | None:
    """A schedule whose anchor reads a float32 copy of its broadcast operand, and the name of the copying block."""
    found = _broadcast(anchor, vector)
    if found is None:
        return None
    reads = [region.buffer for region in sch.get(anchor.rv).reads]
    copy = sch.cache_read(anchor.rv, reads.index(found), "global")
    block = sch.get(copy)
    narrow = block.writes[0].buffer
    wide = decl_buffer(narrow.shape, "float32", narrow.name)
    return Schedule(_Wide(narrow, wide).visit(sch.mod["main"])), block.name_hint


def _broadcast(anchor: BlockInfo, vector: IterInfo) -> Buffer | None:
    """The 16-bit operand that is the same for all columns, if it is only read as float32."""
    if (vector.dom or 0) < _LEAST_COLUMNS:
        return None
    cast = {id(e.value) for e in of_kind(all_nodes(anchor.block.body), Cast) if e.dtype == "float32"}
    loads: list[Any] = anchor.loads()
    rows = [load for load in loads if access_stride(load.indices, vector.var) == "none" and load.dtype in _NARROW]
    if len(rows) != 1 or id(rows[0]) not in cast or const_ints(rows[0].buffer.shape) is None:
        return None
    alone = sum(load.buffer is rows[0].buffer for load in loads) == 1
    return rows[0].buffer if alone and const_ints(rows[0].buffer.shape) else None
