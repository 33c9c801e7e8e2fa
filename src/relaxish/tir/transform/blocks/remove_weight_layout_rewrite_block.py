"""RemoveWeightLayoutRewriteBlock: the block that repacks a weight does nothing; the function takes the packed weight.

Before: parameter ``W``; a block marked ``meta_schedule.layout_rewrite_preproc`` copies ``W`` to ``W_packed``.
After: parameter ``W_packed`` of the packed shape, no copy.  For building candidates whose weights are packed ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....arith import build as B
from ....ir.prim import IntImm, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...index_map import IndexMap
from ...stmt import AllocateConst, Block, BufferRegion, BufferStore, Evaluate, Stmt
from ..base import LoweringError, StmtExprMutator, StmtMutator, FunctionRewrite
from ....ir.plain import plain_bool

KEY = "meta_schedule.layout_rewrite_preproc"


class _Packing:
    """How one weight is packed."""

    def __init__(self, store: BufferStore, load: BufferLoad, indices: Sequence[Var]) -> None:
        self.original = load.buffer
        self.packed = store.buffer
        self.index_map = IndexMap(indices, list(store.indices))


class _Empty(StmtMutator):
    """Empties the marked blocks and drops the buffers they filled."""

    def __init__(self) -> None:
        self.found: list[_Packing] = []

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return region

    def visit_Block(self, block: Block) -> Block:
        made: Block = self.default_visit(block)
        mark = made.annotations.get(KEY)
        if mark is None or not plain_bool(mark):
            packed = [p.packed for p in self.found]
            kept = tuple(b for b in made.alloc_buffers if b not in packed)
            return made if len(kept) == len(made.alloc_buffers) else made.with_fields(alloc_buffers=kept)
        store = made.body
        if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
            raise LoweringError(f"block {made.name_hint} is marked {KEY}, but is no plain copy")
        if not all(isinstance(index, (Var, IntImm)) for index in store.value.indices):
            raise LoweringError(f"block {made.name_hint} is marked {KEY}, but reads other places than its variables")
        # Where a place is constant, the dimension has but one.
        indices = [index if isinstance(index, Var) else Var("one", index.dtype) for index in store.value.indices]
        self.found.append(_Packing(store, store.value, indices))
        return made.with_fields(reads=(), writes=(), body=Evaluate(0))


class _Constants(StmtExprMutator):
    """Packs constant weights in place, and reads them where the packed copy was read."""

    def __init__(self, packings: list[_Packing], skip: bool) -> None:
        self.by_pointer = {p.original.data: p for p in packings}
        self.skip = skip
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_AllocateConst(self, stmt: AllocateConst) -> Stmt:
        packing = self.by_pointer.get(stmt.buffer_var)
        if packing is None:
            return self.default_visit(stmt)
        data = stmt.data_or_idx
        shape = [B.as_int(e) or 0 for e in packing.packed.shape]
        if self.skip:
            # Only the shape matters to those who measure.
            source = data if isinstance(data, np.ndarray) else data.numpy()
            data = source.reshape(shape) if isinstance(data, np.ndarray) else type(data)(source.reshape(shape))
        else:
            data = packing.index_map.map_ndarray(data)
        self.buffers[packing.packed] = packing.packed.with_fields(data=stmt.buffer_var, name=stmt.buffer_var.name)
        extents = tuple(IntImm("int32", s) for s in shape)
        body = self.visit(stmt.body)
        return AllocateConst(stmt.buffer_var, stmt.dtype, extents, data, body, stmt.annotations)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        buffer = self.buffers.get(region.buffer)
        return region if buffer is None else BufferRegion(buffer, region.region)


def remove(func: PrimFunc, skip_ndarray_rewrite: bool = False) -> PrimFunc:
    """Empty all repacking blocks of a function."""
    empty = _Empty()
    body = empty.visit(func.body)
    if not empty.found:
        return func
    body = _Constants(empty.found, skip_ndarray_rewrite).visit(body)
    packed = {p.original: p.packed for p in empty.found}
    buffer_map = {param: packed.get(buffer, buffer) for param, buffer in func.buffer_map.items()}
    return PrimFunc(func.params, body, func.ret_type, buffer_map, func.attrs, func.span)


class RemoveWeightLayoutRewriteBlock(FunctionRewrite):
    """Empty blocks that repack weights; the weights come packed.

    Before::

        for i, j in T.grid(16, 16):
            with T.block("layout_rewrite"):
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                W_packed[j, i] = W[i, j]

    After (the parameter has the shape of ``W_packed``)::

        for i, j in T.grid(16, 16):
            with T.block("layout_rewrite"):
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                T.evaluate(0)

    Constant weights are packed at once; with ``skip_ndarray_rewrite`` only their shape changes.
    """

    skip_ndarray_rewrite: bool = False

    def rewrite(self, f: PrimFunc) -> PrimFunc:
        return remove(f, self.skip_ndarray_rewrite)
