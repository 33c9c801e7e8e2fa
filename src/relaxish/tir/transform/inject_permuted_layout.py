"""InjectPermutedLayout: shared memory is swizzled, so that matrix loads meet no bank conflicts."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...ir.prim import IntImm, Var
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import Block, BufferStore
from .base import LoweringError, PrimFuncPass, StmtExprMutator, call, func_pass, is_call

_VECTOR = 8
_KEY = "permuted_layout"


class _Permute(StmtExprMutator):
    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = Analyzer()
        self.buffers: dict[Any, Buffer] = {b.data: b for b in func.buffer_map.values()}
        self.active = False

    def visit_For(self, loop: Any) -> Any:
        from ...ir.expr import Range

        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        return self.default_visit(loop)

    def visit_Block(self, block: Block) -> Any:
        saved = self.active
        mark = block.annotations.get(_KEY)
        self.active = saved or (mark is not None and bool(getattr(mark, "value", mark)))
        for buffer in block.alloc_buffers:
            self.buffers[buffer.data] = buffer
        made = self.default_visit(block)
        self.active = saved
        if _KEY in made.annotations:
            made = made.with_fields(annotations={k: v for k, v in made.annotations.items() if k != _KEY})
        return made

    def visit_BufferRegion(self, region: Any) -> Any:
        return region

    def _wants(self, buffer: Buffer) -> bool:
        return self.active and buffer.scope() in ("shared", "shared.dyn") and len(buffer.shape) >= 2

    def _indices(self, buffer: Buffer, indices: Any) -> tuple[Any, ...]:
        row, column = indices[-2], indices[-1]
        width = B.as_int(buffer.shape[-1])
        if width is None or width % 32:
            raise LoweringError(f"Permuted Layout for row size {buffer.shape[-1]} is not supported. Now it is required to "
                             "be a multiple of 32.")  # fmt: skip
        vector = B.const(column.dtype, _VECTOR)
        outer, inner = B.floordiv(column, vector), B.floormod(column, vector)
        turn = B.floormod(row, B.const(row.dtype, 8))
        if width % 64:
            turn = B.floordiv(turn, B.const(row.dtype, 2))
        mixed = call(column.dtype, "bitwise_xor", outer, B.cast(column.dtype, turn))
        return (*indices[:-1], self.analyzer.simplify(mixed * vector + inner))

    def visit_BufferStore(self, store: BufferStore) -> Any:
        made = self.default_visit(store)
        return made.with_fields(indices=self._indices(made.buffer, made.indices)) if self._wants(made.buffer) else made

    def visit_BufferLoad(self, load: Any) -> Any:
        made = self.default_visit(load)
        return made.with_fields(indices=self._indices(made.buffer, made.indices)) if self._wants(made.buffer) else made

    def visit_Call(self, e: Any) -> Any:
        made = self.default_visit(e)
        if not self.active or not is_call(made, "ptx_ldmatrix", "mma_store"):
            return made
        # The address of the shared tile, and the offset within it that follows.
        at = 5 if is_call(made, "ptx_ldmatrix") else 2
        pointer = made.args[at]
        if not is_call(pointer, "tvm_access_ptr") or not isinstance(pointer.args[1], Var):
            return made
        buffer = self.buffers.get(pointer.args[1])
        if buffer is None or not self._wants(buffer):
            return made
        width = B.const("int32", B.as_int(buffer.shape[-1]) or 0)
        offset = pointer.args[2]
        args = list(made.args)
        if is_call(made, "ptx_ldmatrix"):
            offset = offset + args[at + 1]
            args[at + 1] = IntImm("int32", 0)
        row, column = B.floordiv(offset, width), B.floormod(offset, width)
        *_, swizzled = self._indices(buffer, (row, column))
        flat = self.analyzer.simplify(row * width + swizzled)
        inner = list(pointer.args)
        inner[2] = flat
        args[at] = pointer.with_fields(args=tuple(inner))
        return made.with_fields(args=tuple(args))


def inject(func: PrimFunc) -> PrimFunc:
    """Swizzle the accesses of annotated blocks."""
    body = _Permute(func).visit(func.body)
    return func if body is func.body else func.with_body(body)


def InjectPermutedLayout() -> PrimFuncPass:  # noqa: N802
    """Swizzle shared memory in blocks annotated ``permuted_layout``.

    Before (rows of 64 half-precision numbers)::

        S[r, c] = A[r, c]

    After::

        S[r, T.bitwise_xor(c // 8, r % 8) * 8 + c % 8] = A[r, c]

    Eight consecutive numbers, one load of a thread, stay together. Rows of 32 numbers use half the pattern.
    """
    return func_pass(inject, "tir.InjectPermutedLayout")
