"""LowerAutoCopy: blocks marked ``auto_copy`` become copies spread over the threads of the kernel."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...ir import dtype as dt
from ...ir.prim import IntImm, Var
from ..expr import BufferLoad
from ..function import PrimFunc
from ..functor import substitute
from ..stmt import AttrStmt, Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt
from .base import LoweringError, PrimFuncPass, StmtMutator, func_pass

_KEY = "auto_copy"
_THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")


class _Copy:
    """One copy nest: its loops, and the store in the middle."""

    def __init__(self, body: Any) -> None:
        self.loops: list[For] = []
        while isinstance(body, For):
            self.loops.append(body)
            body = body.body
        if not isinstance(body, BufferStore) or not isinstance(body.value, BufferLoad):
            raise LoweringError("a block marked auto_copy must hold loops around one copy of an element")
        self.store = body
        self.load = body.value
        sizes = [B.as_int(loop.extent) for loop in self.loops]
        if None in sizes or not all(B.is_zero(loop.min) for loop in self.loops):
            raise LoweringError("the loops of a block marked auto_copy must start at 0 and have constant extents")
        self.sizes = [s or 1 for s in sizes]


class _Lower(StmtMutator):

    def __init__(self) -> None:
        self.threads: dict[str, tuple[Any, int]] = {}
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Any:
        binding = loop.thread_binding
        if loop.kind != ForKind.THREAD_BINDING or binding is None:
            return self.default_visit(loop)
        return self._under(binding.thread_tag, loop.loop_var, loop.extent, loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        if attr.attr_key != "thread_extent":
            return self.default_visit(attr)
        return self._under(attr.node.thread_tag, attr.node.var, attr.value, attr)

    def _under(self, tag: str, var: Any, extent: Any, stmt: Any) -> Any:
        self.threads[tag] = (var, B.as_int(extent) or 1)
        made = self.default_visit(stmt)
        del self.threads[tag]
        return made

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        block = realize.block
        mark = block.annotations.get(_KEY)
        if mark is None or not bool(getattr(mark, "value", mark)):
            return self.default_visit(realize)
        lanes = int(block.annotations.get("vector_bytes", 0)) * 8 // dt.bits(block.writes[0].buffer.dtype)
        kept = {k: v for k, v in block.annotations.items() if k not in (_KEY, "vector_bytes")}
        body = self._spread(_Copy(block.body), max(lanes, 1))
        made: Block = block.with_fields(body=body, annotations=kept)
        return realize.with_fields(block=made)

    def _spread(self, copy: _Copy, lanes: int) -> Stmt:
        """Fuse the loops; split them into an outer serial loop, the threads, and a vector."""
        total = 1
        for size in copy.sizes:
            total *= size
        if total % lanes:
            lanes = 1
        threads = [(tag, *self.threads[tag]) for tag in _THREADS if tag in self.threads]
        index_type = copy.loops[0].loop_var.dtype if copy.loops else "int32"
        count = 1
        for _, _, size in threads:
            count *= size
        steps = -(-total // (count * lanes))
        outer = Var("outer", index_type)
        vector = Var("vec", index_type)
        fused: Any = B.mul(outer, B.const(index_type, 1))
        for _, var, size in threads:
            fused = fused * B.const(index_type, size) + B.cast(index_type, var)
        if lanes > 1:
            fused = fused * B.const(index_type, lanes) + vector
        values: dict[Any, Any] = {}
        rest = total
        for loop, size in zip(copy.loops, copy.sizes):
            rest //= size
            part = B.floordiv(fused, B.const(index_type, rest)) if rest != 1 else fused
            values[loop.loop_var] = B.floormod(part, B.const(index_type, size))
        body: Any = substitute(copy.store, values)
        if steps * count * lanes != total:
            body = IfThenElse(fused < B.const(index_type, total), body)
        if lanes > 1:
            body = For(vector, B.const(index_type, 0), B.const(index_type, lanes), ForKind.VECTORIZED, body)
        if steps == 1:
            return substitute(body, {outer: IntImm(index_type, 0)})  # type: ignore[no-any-return]
        return For(outer, B.const(index_type, 0), B.const(index_type, steps), ForKind.SERIAL, body)


def lower(func: PrimFunc) -> PrimFunc:
    """Lower the automatic copies of a function."""
    body = _Lower().visit(func.body)
    return func if body is func.body else func.with_body(body)


def LowerAutoCopy() -> PrimFuncPass:  # noqa: N802
    """Lower blocks annotated ``auto_copy`` to copies in which all threads take part, by vectors of ``vector_bytes``.

    Before (8 threads ``t``)::

        with T.block("A_shared"):
            T.block_attr({"auto_copy": 1, "vector_bytes": 16})
            for i, j in T.grid(16, 16): S[i, j] = A[i, j]

    After::

        for outer in range(8):
            for vec in T.vectorized(4):
                S[((outer * 8 + t) * 4 + vec) // 16, ((outer * 8 + t) * 4 + vec) % 16] = A[...]
    """
    return func_pass(lower, "tir.LowerAutoCopy")

