"""InjectPermutedLayout: shared memory is swizzled, so that matrix loads meet no bank conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Call, IntImm
from ...buffer import Buffer
from ...function import PrimFunc
from ...stmt import AttrStmt, Block, BufferRegion, BufferStore, For, Stmt
from ..base import (
    LoweringError,
    StmtExprMutator,
    StmtExprVisitor,
    call,
    is_call,
    FunctionRewrite,
)
from ....ir.plain import plain
from ...expr import BufferLoad

_VECTOR = 8
_KEY = "permuted_layout"


class _Permute(StmtExprMutator):
    def __init__(self, func: PrimFunc) -> None:
        self.analyzer = Analyzer()
        self.buffers: dict[Any, Buffer] = {b.data: b for b in func.buffer_map.values()}
        self.active = False

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        return self.default_visit(loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            zero = B.const(attr.value.dtype, 0)
            self.analyzer.bind(attr.node.var, Range.from_min_extent(zero, attr.value), True)
        return self.default_visit(attr)

    def visit_Block(self, block: Block) -> Block:
        for buffer in (*block.alloc_buffers, *(m.buffer for m in block.match_buffers)):
            self.buffers[buffer.data] = buffer
        if _KEY not in block.annotations or not _is_set(block.annotations[_KEY]):
            return self.default_visit(block)
        saved, self.active = self.active, True
        made: Any = self.default_visit(block)
        self.active = saved
        return made.with_fields(annotations={k: v for k, v in made.annotations.items() if k != _KEY})

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return region

    def _wants(self, buffer: Buffer) -> bool:
        return self.active and buffer.scope() in ("shared", "shared.dyn") and len(buffer.shape) >= 2

    @staticmethod
    def width(buffer: Buffer) -> int:
        """The length of a row, which the pattern must fit."""
        if len(buffer.shape) < 2:
            raise LoweringError(f"The dimension of Buffer {buffer.name} should be at least 2")
        rows, width = B.as_int(buffer.shape[-2]), B.as_int(buffer.shape[-1])
        if width is None or width % 32:
            raise LoweringError(
                f"Permuted Layout for Buffer {buffer.name} with shape {list(buffer.shape)} is not supported since its "
                "second dimension is not divisible by 32"
            )
        if width % 64 and (rows is None or rows % 2):
            raise LoweringError(
                f"Permuted Layout for Buffer {buffer.name} with shape {list(buffer.shape)} is not supported since its "
                "first dimension is not divisible by 2 and second dimension is not divisible by 64"
            )
        return width

    def _indices(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[Any, ...]:
        row, column = indices[-2], indices[-1]
        width = self.width(buffer)
        vector = B.const(column.dtype, _VECTOR)
        outer, inner = B.floordiv(column, vector), B.floormod(column, vector)
        turn = B.floormod(row, B.const(row.dtype, 8))
        if width % 64:
            turn = B.floordiv(turn, B.const(row.dtype, 2))
        mixed = call(column.dtype, "bitwise_xor", outer, B.cast(column.dtype, turn))
        return (*indices[:-1], self.analyzer.simplify(mixed * vector + inner))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made = self.default_visit(store)
        return made.with_fields(indices=self._indices(made.buffer, made.indices)) if self._wants(made.buffer) else made

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made = self.default_visit(load)
        return made.with_fields(indices=self._indices(made.buffer, made.indices)) if self._wants(made.buffer) else made

    def visit_Call(self, e: Call) -> PrimExpr:
        made = self.default_visit(e)
        if not self.active or not is_call(made, "ptx_ldmatrix", "mma_store"):
            return made
        # The address of the shared tile, and for a matrix load the offset within it that follows.
        at = 5 if is_call(made, "ptx_ldmatrix") else 2
        pointer = made.args[at]
        if not is_call(pointer, "tvm_access_ptr"):
            raise LoweringError(f"Invalid access ptr for permuted layout: {pointer}")
        buffer = self.buffers.get(pointer.args[1])
        if buffer is None:
            raise LoweringError(f"The buffer corresponding to data Var {pointer.args[1]} is not found")
        width = B.const("int32", self.width(buffer))
        offset, args = pointer.args[2], list(made.args)
        if at == 5:
            offset = offset + args[6]
            args[6] = IntImm(args[6].dtype, 0)
        row, column = B.floordiv(offset, width), B.floormod(offset, width)
        *_, swizzled = self._indices(buffer, (row, column))
        parts = (*pointer.args[:2], row * width + swizzled, *pointer.args[3:])
        args[at] = pointer.with_fields(args=parts)
        return made.with_fields(args=tuple(args))


def _is_set(mark: PrimExpr | str | Sequence[PrimExpr]) -> bool:
    """Whether an annotation asks for the layout: a number other than zero, or any text but the empty one."""
    value = plain(mark)
    if not isinstance(value, (str, int, bool)):
        raise LoweringError(f"Invalid permuted layout annotation: {mark}")
    return bool(value)


class _Fits(StmtExprVisitor):
    """Looks at the accesses that will be swizzled and asks whether rows fit the pattern."""

    def __init__(self) -> None:
        self.active = False

    def visit_Block(self, block: Block) -> None:
        saved, self.active = self.active, self.active or bool(_is_set(block.annotations.get(_KEY, 0)))
        self.default_visit(block)
        self.active = saved

    def _look(self, buffer: Buffer) -> None:
        if self.active and buffer.scope() in ("shared", "shared.dyn") and len(buffer.shape) >= 2:
            _Permute.width(buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._look(load.buffer)
        self.default_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._look(store.buffer)
        self.default_visit(store)


class CheckPermutedLayout(FunctionRewrite):
    """Changes nothing; raises LoweringError for tiles whose rows :func:`InjectPermutedLayout` cannot swizzle."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        _Fits().visit(func.body)
        return func


def inject(func: PrimFunc) -> PrimFunc:
    """Swizzle the accesses of annotated blocks."""
    body = _Permute(func).visit(func.body)
    return func if body is func.body else func.with_body(body)


class InjectPermutedLayout(FunctionRewrite):
    """Swizzle shared memory in blocks annotated ``permuted_layout``.

    Before (rows of 64 half-precision numbers)::

        S[r, c] = A[r, c]

    After::

        S[r, T.bitwise_xor(c // 8, r % 8) * 8 + c % 8] = A[r, c]

    Eight consecutive numbers, one load of a thread, stay together. Rows of 32 numbers use half the pattern.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return inject(func)
