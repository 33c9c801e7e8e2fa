"""Blocks with parallel loops of their own, which no schedule reaches into, as kernels.

Before and after (``scatter_elements``: copy, then one thread for each line; ``max_num_threads`` 256)::

    with T.block("scatter_elements_generic"):         with T.block("scatter_elements_generic"):
        for i in T.parallel(n): out[i] = data[i]          with T.launch_thread("blockIdx.x", (n + 255) // 256), ...:
        for line in T.parallel(m): ...                        if bx * 256 + tx < n: out[bx * 256 + tx] = ...
                                                          with T.launch_thread("blockIdx.x", (m + 255) // 256), ...:
"""

from __future__ import annotations

from typing import Any

from ... import te
from ...dlight.analysis.opaque_blocks import parallel_loops
from ...ir.expr import PrimExpr
from ...ir.module import IRModule, functions_of
from ...ir.op import Op
from ...ir.prim import Call, StringImm
from ...target import Target
from ...tir import (
    AttrStmt, Block, Evaluate, For, ForKind, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt, Var, ceildiv, const,
)  # fmt: skip
from ...tir.transform.base import StmtExprMutator

__all__ = ["with_parallel_kernels"]

_THREADS = 256


def with_parallel_kernels(mod: IRModule, target: Target) -> IRModule:
    """The module with a kernel for each loop of its outermost blocks, where those are loops that threads can share."""
    threads = min(_THREADS, int(target.attrs.get("max_num_threads", _THREADS)))
    changed: dict[Any, PrimFunc] = {}
    for var, func in functions_of(mod, PrimFunc):
        body = _Kernels(threads).visit(func.body)
        if body is not func.body:
            changed[var] = func.with_body(body)
    if not changed:
        return mod
    out = mod.clone()
    out.update(changed)
    return out


class _Kernels(StmtExprMutator):
    """Rewrites the blocks that no loop and no thread is around."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_For(self, loop: For) -> Stmt:
        return loop

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return attr if attr.attr_key == "thread_extent" else self.default_visit(attr)

    def visit_Block(self, block: Block) -> Block:
        loops = parallel_loops(block.body)
        if loops is None or block.iter_vars:
            return self.default_visit(block)
        kernels = [_kernel(loop, self.threads) for loop in loops]
        return block.with_fields(body=SeqStmt(kernels) if len(kernels) > 1 else kernels[0])


def _kernel(loop: For, threads: int) -> Stmt:
    """One thread for each iteration; of a loop around a parallel one, a block that waits after each iteration."""
    bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    inner = loop.body
    if loop.kind == ForKind.SERIAL and isinstance(inner, For):
        dtype, blocks = inner.loop_var.dtype, const(1, "int32")
        step = Var("step", dtype)
        stretches = ceildiv(inner.extent, const(threads, dtype))
        share = For(step, const(0, dtype), stretches, ForKind.SERIAL, _iteration(inner, step, tx.var, threads))
        wait = Evaluate(Call("int32", Op.get("tir.tvm_storage_sync"), (StringImm("shared"),)))
        body: Stmt = loop.with_fields(body=SeqStmt([share, wait]))
    else:
        dtype = loop.loop_var.dtype
        blocks = ceildiv(loop.extent, const(threads, dtype)).astype("int32")
        body = _iteration(loop, bx.var.astype(dtype), tx.var, threads)
    return AttrStmt(bx, "thread_extent", blocks, AttrStmt(tx, "thread_extent", const(threads, "int32"), body))


def _iteration(loop: For, stretch: PrimExpr, thread: Var, threads: int) -> Stmt:
    """The iteration of one thread in a stretch of as many as there are threads, if the loop goes so far."""
    dtype = loop.loop_var.dtype
    place = stretch * const(threads, dtype) + thread.astype(dtype)
    return IfThenElse(place < loop.extent, LetStmt(loop.loop_var, loop.min + place, loop.body), None)
