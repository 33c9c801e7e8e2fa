"""TransformMmaBufferLayout: buffers of matrix fragments become the registers that hold them."""

from __future__ import annotations

from typing import Any, TypeVar

from ....arith import Analyzer
from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.expr import ExprLike
from ....ir.prim import Var
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Block, BlockRealize, BufferStore, Stmt
from ..base import LoweringError, StmtExprMutator, FunctionRewrite

# Scope -> how many rows and columns one register tile covers, and the tile's own shape.
_TILES = {
    "m16n8k8.matrixA": (32, 8, (4, 2)),
    "m16n8k8.matrixB": (8, 32, (4, 2)),
    "m16n8k8.matrixC": (16, 8, (2, 2)),
}


_Access = TypeVar("_Access", BufferLoad, BufferStore)


class _Transform(StmtExprMutator):
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.buffers: dict[Buffer, Buffer] = {}
        self.pointers: dict[Any, Any] = {}

    def _alloc(self, buffer: Buffer) -> Buffer:
        tile = _TILES.get(buffer.scope())
        if tile is None:
            return buffer
        rows, columns, inner = tile
        sizes = [B.as_int(d) for d in buffer.shape[-2:]]
        if len(sizes) != 2 or None in sizes:
            raise LoweringError(f"the last two dimensions of {buffer.name} in {buffer.scope()} must be constant")
        shape: list[ExprLike] = [*buffer.shape[:-2], (sizes[0] or 0) // rows, (sizes[1] or 0) // columns, *inner]
        made = decl_buffer(shape, buffer.dtype, buffer.name, scope="local", axis_separators=buffer.axis_separators)
        self.buffers[buffer], self.pointers[buffer.data] = made, made.data
        return made

    def visit_Block(self, block: Block) -> Block:
        allocs = tuple(self._alloc(b) for b in block.alloc_buffers)
        body = self.visit(block.body)
        if body is block.body and all(a is b for a, b in zip(allocs, block.alloc_buffers)):
            return block
        return block.with_fields(alloc_buffers=allocs, body=body)

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        return self.default_visit(realize)

    def _access(self, made: _Access) -> _Access:
        new = self.buffers.get(made.buffer)
        if new is None:
            return made
        indices: tuple[PrimExpr, ...] = made.indices
        if made.buffer.scope() == "m16n8k8.matrixC":
            i, j = indices[-2:]
            eight, two = (B.const(i.dtype, v) for v in (8, 2))
            half = B.floordiv(i, eight)
            mapped: tuple[PrimExpr, ...] = (
                B.floordiv(half, two), B.floordiv(j, eight), B.floormod(half, two),
                B.floormod(B.floormod(j, eight), two),
            )  # fmt: skip
            indices = (*indices[:-2], *(self.analyzer.simplify(e) for e in mapped))
        return made.with_fields(buffer=new, indices=indices)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._access(self.default_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._access(self.default_visit(store))

    def visit_Var(self, var: Var) -> Var:
        return self.pointers.get(var, var)


def transform(func: PrimFunc) -> PrimFunc:
    """Transform the fragment buffers of a function."""
    body = _Transform().visit(func.body)
    return func if body is func.body else func.with_body(body)


class TransformMmaBufferLayout(FunctionRewrite):
    """Give buffers in the scopes ``m16n8k8.matrix[ABC]`` the layout of the registers they live in.

    Before::

        C = T.alloc_buffer([64, 64], "float32", scope="m16n8k8.matrixC")

    After::

        C = T.alloc_buffer([4, 8, 2, 2], "float32", scope="local")
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return transform(func)
