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
from ...ir.module import IRModule
from ...target import Target
from ...tir import AttrStmt, Block, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt, const, floordiv
from ...tir.transform.base import StmtExprMutator

__all__ = ["with_parallel_kernels"]

_THREADS = 256


def with_parallel_kernels(mod: IRModule, target: Target) -> IRModule:
    """The module with the outermost blocks that consist of parallel loops turned into a kernel a loop."""
    threads = min(_THREADS, int(target.attrs.get("max_num_threads", _THREADS)))
    changed: dict[Any, PrimFunc] = {}
    for var, func in mod.functions.items():
        if isinstance(func, PrimFunc):
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

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_For(self, loop: For) -> Any:
        return loop

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        return attr if attr.attr_key == "thread_extent" else self.default_visit(attr)

    def visit_Block(self, block: Block) -> Any:
        loops = parallel_loops(block.body)
        if loops is None or block.iter_vars:
            return self.default_visit(block)
        kernels = [_kernel(loop, self.threads) for loop in loops]
        return block.with_fields(body=SeqStmt(kernels) if len(kernels) > 1 else kernels[0])


def _kernel(loop: For, threads: int) -> Stmt:
    """One thread for each iteration."""
    dtype = loop.loop_var.dtype
    bx, tx = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    size = const(threads, dtype)
    place = bx.var.astype(dtype) * size + tx.var.astype(dtype)
    body = LetStmt(loop.loop_var, loop.min + place, loop.body)
    inside = AttrStmt(tx, "thread_extent", const(threads, "int32"), IfThenElse(place < loop.extent, body, None))
    blocks = floordiv(loop.extent + (size - const(1, dtype)), size)
    return AttrStmt(bx, "thread_extent", blocks.astype("int32"), inside)
