"""InjectSoftwarePipeline: the statements of a loop run skewed against each other, stage by stage."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr
from ....ir.functor import Visitor
from ...buffer import Buffer
from ...function import PrimFunc
from ...stmt import Block, BlockRealize, BufferRegion, For, SeqStmt, Stmt
from ..base import LoweringError, StmtMutator, FunctionRewrite
from ..simplify.convert_ssa import convert_body
from .software_pipeline import Annotation, PipelineRewriter, make_block

STAGE, ORDER, ASYNC = "software_pipeline_stage", "software_pipeline_order", "software_pipeline_async_stages"


def _dependencies(blocks: list[Block]) -> list[tuple[Block, Block]]:
    """Pairs of writer and later reader of one buffer."""
    writers: dict[Any, list[Block]] = {}
    out: list[tuple[Block, Block]] = []
    for block in blocks:
        for read in block.reads:
            out += [(w, block) for w in writers.get(read.buffer.data, ())]
        for write in block.writes:
            writers.setdefault(write.buffer.data, []).append(block)
    return out


def _validate(blocks: list[Block], info: dict[Block, Annotation]) -> None:
    if len({info[b].order for b in blocks}) != len(blocks):
        raise LoweringError("ValueError: Two statements in the software pipeline cannot have the same order")
    for source, user in _dependencies(blocks):
        first, second = info[source], info[user]
        if first.stage > second.stage:
            raise LoweringError(
                f"ValueError: statement {user.name_hint} in stage {second.stage} cannot depends on statement "
                f"{source.name_hint} in a later stage {first.stage}"
            )
        if first.stage == second.stage and first.order >= second.order:
            raise LoweringError(
                "ValueError: two statements with buffer access dependency in the same stage of the software pipeline "
                "cannot be reordered"
            )


class _Inject(StmtMutator):
    def __init__(self, func: PrimFunc) -> None:
        self.symbol = func.get_attr("global_symbol")
        self.buffers: dict[Any, Buffer] = {b.data: b for b in func.buffer_map.values()}
        self.double: set[Buffer] = set()

    def visit_Block(self, block: Block) -> Block:
        for buffer in block.alloc_buffers:
            self.buffers[buffer.data] = buffer
        index = block.annotations.get("double_buffer_scope")
        if index is not None:
            number = int(index)
            if not 0 <= number < len(block.writes):
                raise LoweringError(
                    "ValueError: Index of the buffer exceeds the size of the write regions of the block. "
                    f"({number} vs. {len(block.writes)})"
                )
            self.double.add(block.writes[number].buffer)
        made = self.default_visit(block)
        for buffer in block.alloc_buffers:
            self.buffers.pop(buffer.data, None)
        return made

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return region

    def visit_For(self, loop: For) -> Stmt:
        made = self.default_visit(loop)
        if STAGE not in loop.annotations and ORDER not in loop.annotations:
            return made
        if ORDER not in loop.annotations:
            raise LoweringError("ValueError: Order of the software pipeline is not defined.")
        if STAGE not in loop.annotations:
            raise LoweringError("ValueError: Stage of the software pipeline is not defined.")
        return self._pipeline(loop, made)

    def _parts(self, body: Stmt) -> tuple[list[Block], list[Buffer]]:
        """The statements of the pipeline as blocks, and the buffers that live in it."""
        allocs: list[Buffer] = []
        if isinstance(body, BlockRealize):
            allocs += body.block.alloc_buffers
            body = body.block.body
        if not isinstance(body, SeqStmt):
            raise LoweringError(
                f"ValueError: The body of the software pipeline should be SeqStmt, got tir.{type(body).__name__}"
            )
        self.buffers.update((b.data, b) for b in allocs)
        blocks: list[Block] = []
        for child in body.seq:
            nested = child.block.body if isinstance(child, BlockRealize) and B.is_one(child.predicate) else None
            if isinstance(child, BlockRealize) and isinstance(nested, SeqStmt):
                allocs += child.block.alloc_buffers
                self.buffers.update((b.data, b) for b in child.block.alloc_buffers)
                blocks += [make_block(s, self.buffers) for s in nested.seq]
            else:
                blocks.append(make_block(child, self.buffers))
        return blocks, allocs

    def _pipeline(self, loop: For, made: For) -> Stmt:
        blocks, allocs = self._parts(made.body)
        stages = [int(v) for v in loop.annotations[STAGE]]
        orders = [int(v) for v in loop.annotations[ORDER]]
        for given in (stages, orders):
            if len(given) != len(blocks):
                raise LoweringError(
                    f"PrimFunc {self.symbol} has original order {[b.name_hint for b in blocks]}, but pipeline "
                    f"annotation is {given} with different size"
                )
        later = {int(v) for v in loop.annotations.get(ASYNC, ())}
        info = {b: Annotation(s, o, s in later) for b, s, o in zip(blocks, stages, orders)}
        _validate(blocks, info)
        kept = {k: v for k, v in loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)}
        result = PipelineRewriter(self.buffers, self.double, allocs, made, info, kept).build()
        if isinstance(loop.body, BlockRealize):
            for buffer in loop.body.block.alloc_buffers:
                self.buffers.pop(buffer.data, None)
        return result


class _HasPipeline(Visitor):
    found = False

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_For(self, loop: For) -> None:
        self.found = self.found or STAGE in loop.annotations or ORDER in loop.annotations
        self.visit(loop.body)


def inject(func: PrimFunc) -> PrimFunc:
    """Rewrite the annotated loops of a function."""
    find = _HasPipeline()
    find.visit(func.body)
    if not find.found:
        return func
    return func.with_body(convert_body(_Inject(func).visit(func.body)))


class InjectSoftwarePipeline(FunctionRewrite):
    """Rewrite loops annotated with ``software_pipeline_stage`` and ``software_pipeline_order``.

    Before (stages [0, 1], orders [0, 1])::

        for i in range(16):
            B[0] = A[i] * 2.0
            C[i] = B[0] + 1.0

    After::

        B[0, 0] = A[0] * 2.0                            # prologue
        for i in range(15):
            B[(i + 1) % 2, 0] = A[i + 1] * 2.0
            C[i] = B[i % 2, 0] + 1.0
        C[15] = B[1, 0] + 1.0                           # epilogue

    Buffers whose values live over several stages get that many versions. Stages listed in
    ``software_pipeline_async_stages`` run under ``async_scope``; consumers wait for them.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return inject(func)
