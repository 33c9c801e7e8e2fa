"""LowerAsyncDMA: asynchronous copies become transfers by the DMA engine."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import substitute
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IntImm
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AttrStmt, BufferStore, Evaluate, For, SeqStmt, Stmt, unnest
from ..base import StmtMutator, call, config, FunctionRewrite


class _AsyncDMALowerer(StmtMutator):
    def __init__(self, bypass_cache: bool) -> None:
        self.bypass_cache = bypass_cache
        self.queues: set[int] = set()
        self.queue: int | None = None
        self.copies = 0
        self.weight = 1
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        if self.queue is None:
            return self.default_visit(loop)
        copied = self._copy(loop)
        if copied is None:
            return self.default_visit(loop)
        self.queues.add(self.queue)
        self.copies += self.weight
        return copied

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "async_wait_queue_scope":
            return self._wait(attr)
        if attr.attr_key == "async_commit_queue_scope":
            return self._commit(attr)
        saved = self.weight
        # A copy that the pipeline marks as asynchronous is always handed over as a group.
        self.weight = 2 * saved
        made = self.default_visit(attr)
        self.weight = saved
        return made

    def _wait(self, attr: AttrStmt) -> Stmt:
        inner: Any = attr.body
        queue = int(attr.value)  # type: ignore[call-overload]
        if queue not in self.queues or getattr(inner, "attr_key", "") != "async_wait_inflight_count":
            return self.default_visit(attr)
        wait = call("int32", "dma_wait", IntImm("int32", queue), inner.value)
        return SeqStmt([Evaluate(wait), self.visit(inner.body)])

    def _commit(self, attr: AttrStmt) -> Stmt:
        number = int(attr.value)  # type: ignore[call-overload]
        self.queue, self.copies, self.weight = number, 0, 1
        made = self.default_visit(attr)
        self.queue = None
        if self.copies < 2:
            return made
        queue = IntImm("int32", number)
        start, end = (Evaluate(call("int32", name, queue)) for name in ("dma_start_group", "dma_end_group"))
        return SeqStmt([start, made, end])

    def _copy(self, loop: For) -> Stmt | None:
        """A loop nest that copies consecutive elements, as one transfer."""
        loops, body = unnest(loop)
        if not isinstance(body, BufferStore) or not isinstance(body.value, BufferLoad):
            return None
        load = body.value
        if len(load.indices) != 1 or len(body.indices) != 1:
            return None
        total = 1
        for item in reversed(loops):
            extent = B.as_int(item.extent)
            if (
                extent is None
                or not self._steps(body.indices[0], item, total)
                or not self._steps(load.indices[0], item, total)
            ):
                return None
            total *= extent
        start = {item.loop_var: item.min for item in loops}
        target = BufferLoad(body.buffer, [self.analyzer.simplify(substitute(body.indices[0], start))])
        source = BufferLoad(load.buffer, [self.analyzer.simplify(substitute(load.indices[0], start))])
        nbytes = total * dt.bits(load.buffer.dtype) * dt.lanes(load.buffer.dtype) // 8
        args = (
            IntImm("int32", self.queue or 0), call("handle", "address_of", target), call("handle", "address_of", source),
            IntImm("int32", nbytes), IntImm("bool", int(self.bypass_cache)),
        )  # fmt: skip
        return Evaluate(call("int32", "dma_copy", *args))

    def _steps(self, index: PrimExpr, loop: For, step: int) -> bool:
        var = loop.loop_var
        following = substitute(index, {var: B.add(var, B.const(var.dtype, 1))})
        difference = self.analyzer.simplify(B.sub(following, index))
        return B.as_int(difference) == step


class LowerAsyncDMA(FunctionRewrite):
    """Lower asynchronous stages of software pipelines to DMA intrinsics.

    Before::

        with T.attr(0, "async_commit_queue_scope", 0):
            with T.attr(0, "async_scope", 1):
                for i in range(128): B[i] = A[i]

    After::

        T.dma_start_group(0)
        with T.attr(0, "async_commit_queue_scope", 0):
            with T.attr(0, "async_scope", 1):
                T.dma_copy(0, T.address_of(B[0]), T.address_of(A[0]), 128, bypass_cache)
        T.dma_end_group(0)

    ``tir.experimental_dma_bypass_cache`` sets the last argument.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        body = _AsyncDMALowerer(bool(config("tir.experimental_dma_bypass_cache", False))).visit(func.body)
        return func if body is func.body else func.with_body(body)
