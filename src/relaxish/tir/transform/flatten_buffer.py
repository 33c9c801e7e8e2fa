"""FlattenBuffer: multi-dimensional accesses become flat, the form machine memory has.

Before: ``A[i, j]`` of a ``(16, 8)`` buffer.
After: ``A_1[i * 8 + j]`` of a ``(128,)`` buffer on the same pointer. Truth values are kept as bytes.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...ir import dtype as dt
from ...ir.prim import Cast
from ..buffer import Buffer, flat_offsets
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, BufferStore, DeclBuffer, Stmt
from .base import PrimFuncPass, func_pass
from .simplify import AnalyzerMutator


class _Flatten(AnalyzerMutator):
    def __init__(self, buffer_map: Any) -> None:
        super().__init__(Analyzer())
        self.external = {b.data for b in buffer_map.values()}
        self.flat: dict[Buffer, Buffer] = {}

    def visit_PrimExpr(self, e: Any) -> Any:
        return self.default_visit(e)

    def visit_IntImm(self, e: Any) -> Any:
        return e

    def visit_Var(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.flattened(buffer)

    def flattened(self, buffer: Buffer) -> Buffer:
        """The one-dimensional buffer on the same pointer."""
        found = self.flat.get(buffer)
        if found is None:
            found = buffer.get_flattened_buffer()
            if dt.is_bool(found.dtype):
                found = found.with_fields(dtype=dt.with_lanes("int8", dt.lanes(found.dtype)))
            shape = tuple(self.analyzer.simplify(s) for s in found.shape)
            if any(a is not b for a, b in zip(shape, found.shape)):
                found = found.with_fields(shape=shape)
            self.flat[buffer] = found
        return found

    def _indices(self, buffer: Buffer, indices: Any) -> list[Any]:
        if len(indices) == 1 and len(buffer.shape) == 1 and not buffer.strides and B.is_zero(buffer.elem_offset):
            return [self.analyzer.simplify(indices[0])]
        return [self.analyzer.simplify(e) for e in flat_offsets(buffer, indices)]

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        indices = self.visit(load.indices)
        flat = self.flattened(load.buffer)
        new = BufferLoad(flat, self._indices(load.buffer, indices), self.visit(load.predicate))
        return Cast(load.dtype, new) if dt.is_bool(load.dtype) else new

    def visit_BufferStore(self, store: BufferStore) -> Any:
        value = self.visit(store.value)
        flat = self.flattened(store.buffer)
        if dt.is_bool(value.dtype):
            value = B.cast(dt.with_lanes("int8", dt.lanes(value.dtype)), value)
        indices = self._indices(store.buffer, self.visit(store.indices))
        return BufferStore(flat, value, indices, self.visit(store.predicate), store.span)

    def visit_Allocate(self, node: Allocate) -> Any:
        body = self.visit(node.body)
        dtype = "int8" if node.dtype == "bool" else node.dtype
        total: Any = B.const("int32", 1)
        for i, extent in enumerate(node.extents):
            total = extent if i == 0 else total * extent
        extents = (self.analyzer.simplify(total),)
        return Allocate(node.buffer_var, dtype, extents, node.condition, body, node.annotations)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        body = self.visit(node.body)
        flat = self.flattened(node.buffer)
        return node if body is node.body and flat is node.buffer else DeclBuffer(flat, body)


def flatten(func: PrimFunc) -> PrimFunc:
    """Flatten all buffers of a function; parameters keep their shapes and get flat aliases."""
    flattener = _Flatten(func.buffer_map)
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            flattener.analyzer.mark_global_non_neg_value(extent)
    body: Stmt = flattener.visit(func.body)
    for param in reversed(func.params):
        declared = func.buffer_map.get(param)
        flat = None if declared is None else flattener.flat.get(declared)
        if flat is not None and flat is not declared:
            body = DeclBuffer(flat, body)
    return func if body is func.body else func.with_body(body)


def FlattenBuffer() -> PrimFuncPass:  # noqa: N802
    """Flatten multi-dimensional buffers."""
    return func_pass(flatten, "tir.FlattenBuffer")


__all__ = ["FlattenBuffer", "flatten"]
