"""LowerAutoCopy: blocks marked ``auto_copy`` become copies that suit the memories they move data between."""

from __future__ import annotations

from collections.abc import Sequence

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ...function import PrimFunc
from ...stmt import Block, BufferRegion, For, MatchBufferRegion, Stmt
from .auto_copy_fragments import fragment_to_global, shared_to_wmma, wmma_to_shared
from .auto_copy_nests import Copy, coalesce, invert, local_stage
from .bank_padding import BankPadding
from ..base import LoweringError, StmtExprVisitor, StmtMutator, FunctionRewrite
from ....ir.plain import plain
from ...buffer import Buffer


def _flag(block: Block, key: str) -> int:
    value = block.annotations.get(key, 0)
    return int(plain(value) or 0)


def _rank(scope: str) -> str:
    """The kind of memory; dynamic shared memory is shared memory."""
    if scope.startswith(("wmma", "m16n8k8")):
        return scope
    return scope.split(".")[0] or "global"


class _Threads(StmtExprVisitor):
    """The extents of the thread loops of a function."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_Block(self, block: Block) -> None:
        if _flag(block, "warp_execution"):
            self.found["threadIdx.x"] = 32
        self.default_visit(block)

    def visit_For(self, loop: For) -> None:
        extent = B.as_int(loop.extent)
        if loop.thread_binding is not None and extent is not None:
            self.found[loop.thread_binding.thread_tag] = extent
        self.visit(loop.body)


class _AutoCopyLowerer(StmtMutator):
    def __init__(self, threads: dict[str, int]) -> None:
        self.threads = threads
        self.loops: list[For] = []
        self.padding = BankPadding()

    def visit_For(self, loop: For) -> Stmt:
        self.loops.append(loop)
        made = self.default_visit(loop)
        self.loops.pop()
        return made

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return region

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        return match

    def visit_Block(self, block: Block) -> Block:
        made: Block = self.default_visit(block)
        if not _flag(block, "auto_copy"):
            return self._padded(made, made.alloc_buffers)
        copy = self._copy(made)
        body = self._rewrite(made.body, copy)
        for buffer, elements in copy.padding.items():
            self.padding.at_least(buffer, elements)
        self.padding.analyze(body, self.loops, self.threads)
        return self._padded(made.with_fields(body=body), (*made.alloc_buffers, *copy.allocated))

    def _padded(self, block: Block, buffers: Sequence[Buffer]) -> Block:
        made = self.padding.pad(buffers)
        if len(made) == len(block.alloc_buffers) and all(a is b for a, b in zip(made, block.alloc_buffers)):
            return block
        return block.with_fields(alloc_buffers=made)

    def _copy(self, block: Block) -> Copy:
        if len(block.writes) != 1 or not block.reads:
            raise LoweringError("a block marked auto_copy must write one buffer and read one")
        read = block.reads[0]
        if len(block.reads) > 1:
            fragments = [r for r in block.reads if r.buffer.scope() == "wmma.accumulator"]
            if not fragments:
                raise LoweringError("Multiple buffer read")
            read = fragments[-1]
        bits = dt.bits(read.buffer.dtype)
        vector = _flag(block, "vector_bytes") if "vector_bytes" in block.annotations else 1
        return Copy(
            self.threads, list(self.loops), read, block.writes[0], bits, _flag(block, "local_stage") == 1, vector
        )

    @staticmethod
    def _rewrite(body: Stmt, copy: Copy) -> Stmt:
        source, target = _rank(copy.read.buffer.scope()), _rank(copy.write.buffer.scope())
        if (source, target) == ("shared", "global"):
            return coalesce(invert(body, copy), copy)
        if (source, target) == ("global", "shared"):
            body = coalesce(body, copy)
            return local_stage(body, copy) if copy.local_stage else body
        if source == "shared" and target in ("wmma.matrix_a", "wmma.matrix_b"):
            return shared_to_wmma(body, copy)
        if source == "wmma.accumulator" and target == "shared":
            return wmma_to_shared(body, copy)
        if source in ("wmma.accumulator", "m16n8k8.matrixC") and target == "global":
            return fragment_to_global(body, copy, source != "wmma.accumulator")
        return body


def lower(func: PrimFunc) -> PrimFunc:
    """Lower the automatic copies of a function."""
    threads = _Threads()
    threads.visit(func.body)
    lowering = _AutoCopyLowerer(threads.found)
    body = lowering.padding.rewrite(lowering.visit(func.body))
    return func if body is func.body else func.with_body(body)


class LowerAutoCopy(FunctionRewrite):
    """Lower blocks annotated ``auto_copy`` by the memories they copy between.

    Between global and shared memory all threads take part, by vectors of ``vector_bytes``; with ``local_stage`` the
    data stops in registers. Matrix fragments move by matrix instructions, on their way to global memory through
    shared memory. Shared buffers get padded rows, so that the threads of a warp meet different banks.

    Before (8 threads ``threadIdx.x``)::

        with T.block("A_shared"):
            T.block_attr({"auto_copy": 1, "vector_bytes": 16})
            for i, j in T.grid(16, 16): S[i, j] = A[i, j]

    After::

        for v0 in range(8):
            for v1 in T.thread_binding(8, thread="threadIdx.x"):
                for v2 in T.vectorized(4):
                    S[((v0 * 8 + v1) * 4 + v2) // 16 % 16, ((v0 * 8 + v1) * 4 + v2) % 16] = A[...]
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lower(func)
