"""ManifestSharedMemoryLocalStage: copies to shared memory go through registers, as a stage of their own."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Range
from ...ir.prim import Var
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..functor import renew_defs, substitute
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from .base import LoweringError, PrimFuncPass, StmtMutator, func_pass

_KEY = "tir.manifest_shared_memory_local_stage"


def _is_thread(loop: For) -> bool:
    return loop.kind == ForKind.THREAD_BINDING


class _Manifest(StmtMutator):
    def __init__(self) -> None:
        self.allocs: list[list[Buffer]] = []

    def visit_Block(self, block: Block) -> Any:
        self.allocs.append([])
        made = self.default_visit(block)
        added = self.allocs.pop()
        return made.with_fields(alloc_buffers=(*made.alloc_buffers, *added)) if added else made

    def visit_BufferRegion(self, region: Any) -> Any:
        return region

    def visit_SeqStmt(self, stmt: SeqStmt) -> Any:
        out: list[Stmt] = []
        for child in stmt.seq:
            found = _find(child)
            if found is None:
                out.append(self.visit(child))
                continue
            first, second, local = _split(child, found)
            self.allocs[-1].append(local)
            out += [first, second]
        return SeqStmt(out) if len(out) > len(stmt.seq) else self.default_visit(stmt)


def _find(stmt: Any) -> Block | None:
    """The annotated block of a nest of loops without other blocks around it."""
    while True:
        if isinstance(stmt, For):
            stmt = stmt.body
        elif isinstance(stmt, IfThenElse) and stmt.else_case is None:
            stmt = stmt.then_case
        elif isinstance(stmt, BlockRealize):
            if stmt.block.annotations.get(_KEY):
                return stmt.block
            if stmt.block.iter_vars:
                return None
            stmt = stmt.block.body
        else:
            return None


def _serial_loops(stmt: Any) -> list[For]:
    loops = []
    while not isinstance(stmt, BlockRealize) or not stmt.block.annotations.get(_KEY):
        if isinstance(stmt, For):
            if not _is_thread(stmt):
                loops.append(stmt)
            stmt = stmt.body
        elif isinstance(stmt, IfThenElse):
            stmt = stmt.then_case
        else:
            stmt = stmt.block.body
    return loops


class _Replace(StmtMutator):
    def __init__(self, old: Block, new: Block) -> None:
        self.old, self.new = old, new

    def visit_Block(self, block: Block) -> Any:
        return self.new if block is self.old else self.default_visit(block)


def _split(stmt: Stmt, block: Block) -> tuple[Stmt, Stmt, Buffer]:
    store: Any = block.body
    if not isinstance(store, BufferStore):
        raise LoweringError("manifest_shared_memory_local_stage expects a block with one store")
    loops = _serial_loops(stmt)
    target = block.writes[0].buffer
    local = decl_buffer(
        [loop.extent for loop in loops] or [1], target.dtype, f"{block.reads[0].buffer.name}_{target.scope()}_local",
        scope="local",
    )  # fmt: skip
    indices = tuple(loop.loop_var for loop in loops) or (0,)
    region = BufferRegion(local, [Range.from_min_extent(i, 1) if isinstance(i, Var) else Range(0, 1) for i in indices])
    kept = {k: v for k, v in block.annotations.items() if k != _KEY}
    load = block.with_fields(
        writes=(region,), body=BufferStore(local, store.value, indices), annotations={},
        name_hint=f"{block.name_hint}_local",
    )  # fmt: skip
    back = block.with_fields(reads=(region,), body=BufferStore(store.buffer, BufferLoad(local, indices), store.indices), annotations=kept)
    return _fresh_loops(_Replace(block, load).visit(stmt)), _Replace(block, back).visit(stmt), local


def _fresh_loops(stmt: Any) -> Stmt:
    """The nest over loop variables of its own."""
    if isinstance(stmt, For):
        var = stmt.loop_var.with_fields()
        body = substitute(_fresh_loops(stmt.body), {stmt.loop_var: var})
        return stmt.with_fields(loop_var=var, body=body)
    if isinstance(stmt, BlockRealize):
        return renew_defs(stmt)  # type: ignore[no-any-return]
    return stmt  # type: ignore[no-any-return]


def manifest(func: PrimFunc) -> PrimFunc:
    """Make the register stages of a function explicit."""
    body = _Manifest().visit(func.body)
    return func if body is func.body else func.with_body(body)


def ManifestSharedMemoryLocalStage() -> PrimFuncPass:  # noqa: N802
    """Give copies annotated ``tir.manifest_shared_memory_local_stage`` a stage in registers.

    Before::

        for i in range(4):
            with T.block("A_shared"):
                T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                A_shared[v] = A[v]

    After::

        for i in range(4): A_shared_local[i] = A[v]
        for i in range(4): A_shared[v] = A_shared_local[i]

    A software pipeline can then load the next tile while it computes on this one.
    """
    return func_pass(manifest, "tir.ManifestSharedMemoryLocalStage")
