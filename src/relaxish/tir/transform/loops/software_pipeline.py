"""Emitting one software pipeline: prologue, skewed loop and epilogue, with waits on asynchronous stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.int_set import from_min_extent
from ....ir.expr import ExprLike, PrimExpr, Range
from ....ir.prim import And, Call, GE, IntImm, LE, Var
from ...analysis.block_access import get_block_read_write_region
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import (
    AccessT, AttrStmt, Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, ForKind, SeqStmt, stmt_seq, Stmt,
)  # fmt: skip
from ..base import LoweringError, StmtExprMutator, call, op_name

_POINTER_ARGS = {
    "tvm_access_ptr": (1,),
    "ptx_mma": (6, 8, 10),
    "mma_fill": (1,),
    "ptx_ldmatrix": (3,),
    "mma_store": (3,),
}
# Where a call has a fragment buffer, and where the number of the fragment in it.
_FRAGMENT_ARGS = {
    "tvm_fill_fragment": ((0, 4),), "tvm_load_matrix_sync": ((0, 4),), "tvm_store_matrix_sync": ((0, 4),),
    "tvm_mma_sync": ((0, 1), (2, 3), (4, 5), (6, 7)),
}  # fmt: skip
_FRAGMENT_ELEMENTS = 256


@dataclass(frozen=True)
class Annotation:
    """Position of a statement in the pipeline: its stage, and its order."""

    stage: int
    order: int
    is_async: bool


@dataclass
class _Local:
    """What one emitted loop does with one asynchronous stage."""

    producer_head: Any = None
    predicate: Any = None
    consumed: bool = False
    seen: set[Buffer] = field(default_factory=set)
    commit_groups: list[list[int]] = field(default_factory=list)
    wait_before: int = -1
    wait_count: Any = None


@dataclass
class _State:
    """What is known of an asynchronous stage over the whole pipeline."""

    buffers: set[Buffer] = field(default_factory=set)
    producer_head: Any = None


@dataclass
class _Emitted:
    """One statement of an emitted loop."""

    stage: int
    predicate: Any
    block: Block
    access_index: Any
    is_async: bool


def make_block(body: Stmt, buffers: dict[Any, Buffer]) -> Block:
    """A block around a statement, with its regions; a block without a predicate stands for itself."""
    if isinstance(body, BlockRealize) and B.is_one(body.predicate):
        return body.block
    block = Block((), (), (), "", body)
    regions = get_block_read_write_region(block, buffers)
    # Buffers that the block itself allocates are nobody else's business.
    reads, writes = (tuple(r for r in group if r.buffer.data in buffers) for group in regions)
    return block.with_fields(reads=reads, writes=writes)


def _realize(block: Block, predicate: ExprLike = True) -> BlockRealize:
    return BlockRealize((), predicate, block)


def _zero() -> IntImm:
    return IntImm("int32", 0)


class _Versions(StmtExprMutator):
    """Redirects accesses to the version of a buffer that belongs to the iteration."""

    def __init__(self, buffers: dict[Any, Buffer], remap: dict[Buffer, Buffer], loop: For) -> None:
        self.buffers = dict(buffers)
        self.remap = remap
        self.loop = loop

    def _version(self, buffer: Buffer) -> PrimExpr:
        var = self.loop.loop_var
        first = buffer.shape[0]
        return B.floormod(B.sub(var, self.loop.min), B.cast(var.dtype, first))

    def visit_Block(self, block: Block) -> Block:
        for buffer in block.alloc_buffers:
            self.buffers[buffer.data] = buffer
        made = self.default_visit(block)
        for buffer in block.alloc_buffers:
            self.buffers.pop(buffer.data, None)
        return made

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        new = self.remap.get(region.buffer)
        made = self.default_visit(region)
        if new is None:
            return made
        version = self._version(new)
        return BufferRegion(new, (Range.from_min_extent(version, B.const(version.dtype, 1)), *made.region))

    def _access(self, made: AccessT) -> AccessT:
        new = self.remap.get(made.buffer)
        return made if new is None else made.with_fields(buffer=new, indices=(self._version(new), *made.indices))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self._access(self.default_visit(load))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._access(self.default_visit(store))

    def visit_Call(self, e: Call) -> PrimExpr:
        made = self.default_visit(e)
        args = list(made.args)
        for data, number in _FRAGMENT_ARGS.get(op_name(e), ()):
            args[number] = self._fragment_index(args[data], args[number])
        for i in _POINTER_ARGS.get(op_name(e), ()):
            buffer = self.buffers.get(args[i]) if i < len(args) and isinstance(args[i], Var) else None
            new = self.remap.get(buffer) if buffer is not None else None
            if buffer is None or new is None:
                continue
            size: Any = new.strides[0] if new.strides else None
            if size is None:
                size = B.const("int32", 1)
                for dim in buffer.shape:
                    size = size * dim
            if buffer.scope() in ("m16n8k8.matrixA", "m16n8k8.matrixB"):
                # The 32 lanes of a warp hold a fragment together.
                size = B.floordiv(size, B.const(size.dtype, 32))
            var = self.loop.loop_var
            args[i + 1] = args[i + 1] + B.floormod(var, B.cast(var.dtype, new.shape[0])) * size
        return made if all(a is b for a, b in zip(args, made.args)) else made.with_fields(args=tuple(args))

    def _fragment_index(self, data: PrimExpr, index: PrimExpr) -> PrimExpr:
        """Fragments of a version follow those of the one before."""
        buffer = self.buffers.get(data)
        new = self.remap.get(buffer) if buffer is not None else None
        if buffer is None or new is None:
            return index
        count: Any = B.const("int32", 1)
        for dim in buffer.shape:
            count = count * dim
        return index + self._version(new) * B.floordiv(count, B.const(count.dtype, _FRAGMENT_ELEMENTS))


def _may_conflict(a: Sequence[Range], b: Sequence[Range], analyzer: Analyzer) -> bool:
    from ....arith.int_set import intersect

    for x, y in zip(a, b):
        both = intersect(analyzer, from_min_extent(x.min, x.extent), from_min_extent(y.min, y.extent))
        if both.is_nothing():
            return False
    return True


class PipelineRewriter:
    """Builds the pipeline of one loop."""

    def __init__(
        self, buffers: dict[Any, Buffer], double: set[Buffer], allocs: list[Buffer], loop: For,
        info: dict[Block, Annotation], annotations: dict[str, Any],
    ) -> None:  # fmt: skip
        self.buffers = buffers
        self.double = double
        self.allocs = allocs
        self.loop = loop
        self.info = info
        self.annotations = annotations
        self.analyzer = Analyzer()
        self.max_stage = max(a.stage for a in info.values())
        self.remap: dict[Buffer, Buffer] = {}
        self.ordered = sorted(info, key=lambda b: info[b].order)
        self.states: dict[int, _State] = {}

    def build(self) -> Stmt:
        """The whole pipeline as one block."""
        for buffer in self.allocs:
            count = self._versions(buffer)
            if count > 1:
                self.remap[buffer] = self._versioned(buffer, count)
        low, extent = self.loop.min, self.loop.extent
        depth = B.const(low.dtype, self.max_stage)
        end = low + extent
        prologue = self._emit(low, low + depth, True)
        body = self._emit(low + depth, end, False)
        start, extra = end, None
        if self.max_stage > 1 and not self.analyzer.can_prove_greater_equal(extent, self.max_stage):
            # Prologue and epilogue must not overlap in a loop shorter than the pipeline.
            if isinstance(end, IntImm):
                start = B.maximum(end, low + depth)
            else:
                extra = low + depth
        epilogue = self._emit(start, end + depth, True, extra)
        allocs = [self.remap.get(b, b) for b in self.allocs]
        inner = SeqStmt([prologue, body, epilogue])
        for buffer in self.allocs:
            self.buffers.pop(buffer.data, None)
        block = make_block(inner, self.buffers)
        return _realize(block.with_fields(alloc_buffers=tuple(allocs)))

    # -- versions ------------------------------------------------------------------------------------------

    def _versions(self, buffer: Buffer) -> int:
        define, use = -1, -1
        for block, at in self.info.items():
            if any(w.buffer is buffer for w in block.writes):
                define = at.stage if define < 0 else min(define, at.stage)
            if any(r.buffer is buffer for r in block.reads):
                use = max(use, at.stage)
        if define < 0:
            return 1
        count = use - define + 1
        if count >= 2 and not self._overlapping(buffer):
            count -= 1
        return 2 if count == 1 and buffer in self.double else count

    def _overlapping(self, buffer: Buffer) -> bool:
        """Whether a write runs before the read of an earlier iteration's value."""
        for writer, first in self.info.items():
            written = next((w for w in writer.writes if w.buffer is buffer), None)
            for reader, second in self.info.items() if written is not None else ():
                read = next((r for r in reader.reads if r.buffer is buffer), None)
                if read is None or not (first.order < second.order and first.stage < second.stage):
                    continue
                assert written is not None
                if _may_conflict(written.region, read.region, self.analyzer):
                    return True
        return False

    @staticmethod
    def _versioned(buffer: Buffer, count: int) -> Buffer:
        shape = (IntImm("int32", count), *buffer.shape)
        strides = buffer.strides
        if strides:
            strides = (strides[0] * buffer.shape[0], *strides)
        return buffer.with_fields(shape=shape, strides=strides)

    # -- emission ------------------------------------------------------------------------------------------

    def _emit(self, start: PrimExpr, end: PrimExpr, unroll: bool, extra: PrimExpr | None = None) -> Stmt:
        """All statements for iterations [start, end) of the skewed loop; ``unroll`` for its ends."""
        extent = self.analyzer.simplify(end - start)
        if self.analyzer.can_prove(B.le(extent, B.const(extent.dtype, 0))):
            return _realize(make_block(Evaluate(0), {}))
        unit = self.analyzer.can_prove_equal(extent, B.const(extent.dtype, 1))
        normalized = Analyzer()
        var: Any = start
        if not unit:
            var = self.loop.loop_var.copy_with_suffix("")
            self.analyzer.bind(var, Range(start, end), True)
            normalized.bind(var, Range(self.loop.min, extent), True)
        emitted: list[_Emitted] = []
        local: dict[int, _Local] = {}
        groups: dict[Buffer, int] = {}
        for block in self.ordered:
            inbound = self._inbound(block, var, extra)
            if self.analyzer.can_prove(B.not_(inbound)):
                continue
            made = _Versions(self.buffers, self.remap, self.loop).visit(block)
            delta = start - self.loop.min
            skewed = var - B.const(var.dtype, self.info[block].stage)
            index = skewed if unit else skewed + delta
            if not unit:
                inbound = substitute(inbound, {var: var + delta})
            made = substitute(made, {self.loop.loop_var: self.analyzer.simplify(index) if unit else index})
            at = self.info[block]
            if at.is_async:
                made = self._produce(made, at.stage, len(emitted), index, inbound, local, groups, normalized)
            emitted.append(_Emitted(at.stage, inbound, made, index, at.is_async))
            for producer in self._producers(made, at.stage):
                local.setdefault(producer, _Local()).consumed = True
        self._count_waits(emitted, local, groups, normalized)
        body = self._complete(emitted, local, normalized)
        if body is None:
            return _realize(make_block(Evaluate(0), {}))
        if not unit:
            kind = ForKind.UNROLLED if unroll else self.loop.kind
            body = For(var, self.loop.min, extent, kind, body, None, self.annotations)
        for stage, state in local.items():
            known = self.states[stage].producer_head
            exact = state.predicate is not None and normalized.can_prove(state.predicate) and known is not None
            self.states[stage].producer_head = known + extent if exact else None
        return _realize(make_block(body, self.buffers))

    def _inbound(self, block: Block, var: PrimExpr, extra: PrimExpr | None) -> PrimExpr:
        """Whether there is an iteration of the statement at ``var``; the upper bound stays as it is, for Simplify."""
        skewed = B.sub(var, B.const(var.dtype, self.info[block].stage))
        begun = self.analyzer.simplify(LE(self.loop.min, skewed))
        condition = B.and_(begun, B.lt(skewed, B.add(self.loop.min, self.loop.extent)))
        return condition if extra is None else self.analyzer.simplify(And(condition, GE(var, extra)))

    # -- asynchronous stages -------------------------------------------------------------------------------

    def _producers(self, block: Block, stage: int) -> list[int]:
        """Asynchronous stages, up to ``stage``, whose results a block reads."""
        out = []
        for number, state in self.states.items():
            if number <= stage and any(r.buffer in state.buffers for r in block.reads):
                out.append(number)
        return out

    def _produce(
        self, block: Block, stage: int, position: int, index: PrimExpr, inbound: PrimExpr, local: dict[int, _Local],
        groups: dict[Buffer, int], normalized: Analyzer,
    ) -> Block:  # fmt: skip
        state = local.setdefault(stage, _Local())
        head = self.loop.min - B.const(self.loop.min.dtype, 1)
        whole = self.states.setdefault(stage, _State(producer_head=head))
        if not state.commit_groups or state.consumed:
            # A consumer already waits for the group before: what follows is committed on its own.
            state.commit_groups.append([])
        state.commit_groups[-1].append(position)
        for write in block.writes:
            whole.buffers.add(write.buffer)
            groups[write.buffer] = len(state.commit_groups) - 1
        state.producer_head = index
        if state.predicate is None or normalized.can_prove(state.predicate):
            state.predicate = inbound
        else:
            state.predicate = normalized.simplify(And(state.predicate, inbound))
        return block.with_fields(body=AttrStmt(_zero(), "async_scope", 1, block.body))

    def _count_waits(
        self, emitted: list[_Emitted], local: dict[int, _Local], groups: dict[Buffer, int], normalized: Analyzer
    ) -> None:
        for position, item in enumerate(emitted):
            if item.is_async:
                local[item.stage].seen.update(w.buffer for w in item.block.writes)
            producers = self._producers(item.block, item.stage)
            if not producers:
                continue
            if len(producers) > 1:
                raise LoweringError("A dependency on multiple async stages is not supported")
            state = local.setdefault(producers[0], _Local())
            heads = self._heads(item, producers[0], state, groups)
            count: Any = _zero()
            for head in heads:
                if head is None or not normalized.can_prove(B.ge(head, B.const(head.dtype, 0))):
                    count = _zero()
                    break
                count = count + self.analyzer.simplify(head - item.access_index)
            if state.wait_before < 0:
                state.wait_before, state.wait_count = position, count
            elif self.analyzer.can_prove(B.lt(count, state.wait_count)):
                state.wait_count = count

    def _heads(self, item: _Emitted, stage: int, state: _Local, groups: dict[Buffer, int]) -> list[Any]:
        """For each commit group that a statement reads from: the last iteration it was committed for."""
        whole = self.states[stage]
        if state.producer_head is None:
            return [whole.producer_head]
        heads = []
        counted: set[int] = set()
        for read in item.block.reads:
            group = groups.get(read.buffer)
            if read.buffer not in whole.buffers or group is None or group in counted:
                continue
            counted.add(group)
            head = state.producer_head
            # Not written yet in this iteration: the newest value is that of the one before.
            heads.append(head if read.buffer in state.seen else head - B.const(head.dtype, 1))
        return heads

    def _complete(self, emitted: list[_Emitted], local: dict[int, _Local], normalized: Analyzer) -> Stmt | None:
        blocks = [e.block for e in emitted]
        group_of = [-1] * len(emitted)
        for stage, state in sorted(local.items()):
            for group in state.commit_groups:
                for position in group:
                    group_of[position] = stage
            if state.wait_before < 0:
                continue
            count = state.wait_count
            if state.predicate is not None and not normalized.can_prove(state.predicate):
                # Only iterations that do produce leave that many copies in flight.
                count = call("int32", "if_then_else", state.predicate, count, _zero())
            block = blocks[state.wait_before]
            inner = AttrStmt(_zero(), "async_wait_inflight_count", count, block.body)
            body: Stmt = AttrStmt(_zero(), "async_wait_queue_scope", stage, inner)
            blocks[state.wait_before] = block.with_fields(body=body)
        out: list[Stmt] = []
        position = 0
        while position < len(emitted):
            stage, predicate = group_of[position], emitted[position].predicate
            if stage < 0:
                out.append(_realize(blocks[position], predicate))
                position += 1
                continue
            bodies = []
            while position < len(emitted) and group_of[position] == stage:
                bodies.append(blocks[position].body)
                position += 1
            body = stmt_seq(*bodies)
            commit = AttrStmt(_zero(), "async_commit_queue_scope", stage, body)
            out.append(_realize(make_block(commit, self.buffers), predicate))
        if not out:
            return None
        return stmt_seq(*out)
