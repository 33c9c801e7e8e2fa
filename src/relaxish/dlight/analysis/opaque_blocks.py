"""Bodies of opaque blocks: thread launches, calls of the host, loops of their own."""

from __future__ import annotations


from ...ir.op import op_name_of
from ...support.sequences import of_kind
from ...arith import detect_iter_map
from ...ir.expr import Range
from ...ir.functor import all_nodes
from ...tir import AttrStmt, BufferLoad, BufferStore, Call, For, ForKind, Stmt
from ...tir.stmt import stmt_list

__all__ = ["calls_host", "launches_threads", "parallel_loops"]


def calls_host(body: Stmt) -> bool:
    """Whether a program calls packed functions, which only the host can."""
    return any(isinstance(node, Call) and op_name_of(node).startswith("tir.tvm_call_") for node in all_nodes(body))


def launches_threads(body: Stmt) -> bool:
    """Whether a program is one for a GPU already, written by hand."""
    return any(
        (isinstance(node, AttrStmt) and node.attr_key == "thread_extent")
        or (isinstance(node, For) and node.thread_binding is not None)
        for node in all_nodes(body)
    )


def parallel_loops(body: Stmt) -> list[For] | None:
    """The loops of a body that threads can share: nothing but loops one after the other, each of them one of

    * ``for i in T.parallel(n)``: the author's word that iterations are independent;
    * ``for j in range(m): for k in T.parallel(n)``: the same for the inner loop, one ``j`` after the other;
    * ``for i in range(n): out[i] = data[i]``: a copy.

    None for all else, and where no loop is parallel by its author's word.
    """
    parts = stmt_list(body)
    loops = [p for p in of_kind(parts, For) if _is_parallel(p) or _is_parallel(p.body) or _is_copy(p)]
    if len(loops) < len(parts) or all(_is_copy(p) for p in loops) or calls_host(body) or launches_threads(body):
        return None
    return loops


def _is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == ForKind.PARALLEL


def _is_copy(loop: For) -> bool:
    """Whether a serial loop only fills a buffer with another one's elements, each place once."""
    store = loop.body
    if loop.kind != ForKind.SERIAL or not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
        return False
    domain = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent)}
    return store.value.buffer is not store.buffer and bool(detect_iter_map(list(store.indices), domain))
