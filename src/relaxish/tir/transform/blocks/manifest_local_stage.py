"""ManifestSharedMemoryLocalStage: copies to shared memory go through registers, as a stage of their own."""

from __future__ import annotations

from typing import Any

from ....ir.expr import Range
from ....ir.prim import Var
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, stmt_seq, Stmt, stmt_list
from ..base import LoweringError, StmtMutator, FunctionRewrite

_KEY = "tir.manifest_shared_memory_local_stage"


class _Stage:
    """The registers between a shared buffer and its source, and the statement that fills them."""

    def __init__(self, target: Buffer, registers: Buffer, fill: Stmt) -> None:
        self.target = target
        self.registers = registers
        self.fill = fill


class _Manifest(StmtMutator):
    def __init__(self) -> None:
        self.ancestors: list[Any] = []
        self.stages: list[_Stage] = []

    def visit_For(self, loop: For) -> Stmt:
        return self._inside(loop)

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        return self._inside(realize)

    def _inside(self, stmt: For | BlockRealize) -> Stmt:
        self.ancestors.append(stmt)
        made = self.default_visit(stmt)
        self.ancestors.pop()
        return made

    def visit_Block(self, block: Block) -> Block:
        if _KEY in block.annotations:
            return self._through_registers(block)
        parts = stmt_list(block.body)
        out: list[Stmt] = []
        added: list[Buffer] = []
        changed = False
        for part in parts:
            start = len(self.stages)
            made = self.visit(part)
            for stage in self.stages[start:]:
                if stage.target in block.alloc_buffers:
                    out.append(stage.fill)
                    added.append(stage.registers)
            out.append(made)
            changed = changed or made is not part
        if not changed:
            return block
        body = stmt_seq(*out)
        return block.with_fields(body=body, alloc_buffers=(*block.alloc_buffers, *added))

    def _through_registers(self, block: Block) -> Block:
        store: Any = block.body
        if not isinstance(store, BufferStore) or not store.buffer.scope().startswith("shared"):
            raise LoweringError("ValueError: Expect the body of the block to be BufferStore to shared memory.")
        loops = self._relaxed(block, store.buffer)
        indices = tuple(loop.min + loop.loop_var for loop in loops)
        registers = _registers(store.buffer, [loop.extent for loop in loops])
        self.stages.append(_Stage(store.buffer, registers, self._fill(block, store, registers, indices, loops)))
        kept = {k: v for k, v in block.annotations.items() if k != _KEY}
        body = BufferStore(store.buffer, BufferLoad(registers, indices), store.indices)
        return block.with_fields(body=body, annotations=kept)

    def _relaxed(self, block: Block, target: Buffer) -> list[For]:
        """The loops between the block and the one that allocates the buffer it writes, outermost first."""
        loops: list[For] = []
        child: Any = self.ancestors[-1]
        for ancestor in reversed(self.ancestors[:-1]):
            if isinstance(ancestor, BlockRealize):
                if target not in ancestor.block.alloc_buffers:
                    raise LoweringError("ValueError: Expect the shared memory allocation to be in the parent block.")
                break
            if ancestor.kind not in (ForKind.SERIAL, ForKind.VECTORIZED):
                raise LoweringError(
                    f"ValueError: Expect the ancestor loops to be serial or vectorized, got {ancestor.kind}"
                )
            if ancestor.body is not child:
                raise LoweringError("ValueError: Expect the ancestor loops to have a single child.")
            loops.append(ancestor)
            child = ancestor
        return loops[::-1]

    def _fill(
        self, block: Block, store: BufferStore, registers: Buffer, indices: tuple[Any, ...], loops: list[For]
    ) -> Stmt:
        region = BufferRegion(registers, [Range.from_min_extent(i, 1) for i in indices])
        realize = self.ancestors[-1]
        own = Block((), block.reads, (region,), "", BufferStore(registers, store.value, indices))
        values = {iv.var: value for iv, value in zip(block.iter_vars, realize.iter_values)}
        fill: Any = substitute(BlockRealize((), realize.predicate, own), values)
        fresh = {loop.loop_var: loop.loop_var.with_fields() for loop in loops}
        for loop in reversed(loops):
            fill = loop.with_fields(loop_var=fresh[loop.loop_var], body=fill)
        return substitute(fill, fresh)


def _registers(buffer: Buffer, shape: list[Any]) -> Buffer:
    pointer = Var(buffer.data.name, PointerType(PrimType(buffer.dtype), "local"))
    return buffer.with_fields(data=pointer, shape=tuple(shape))


def manifest(func: PrimFunc) -> PrimFunc:
    """Make the register stages of a function explicit."""
    body = _Manifest().visit(func.body)
    return func if body is func.body else func.with_body(body)


class ManifestSharedMemoryLocalStage(FunctionRewrite):
    """Give copies annotated ``tir.manifest_shared_memory_local_stage`` a stage in registers.

    Before::

        for i in range(4):
            with T.block("A_shared"):
                T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                A_shared[v] = A[v]

    After::

        for i in range(4): A_local[i] = A[v]
        for i in range(4): A_shared[v] = A_local[i]

    A software pipeline can then load the next tile while it computes on this one.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return manifest(func)
