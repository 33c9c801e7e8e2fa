"""What the bodies of blocks do that nobody may look into: launch threads, call the host, run loops of their own."""

from __future__ import annotations

from typing import Any

from ...ir.functor import post_order_visit
from ...tir import AttrStmt, Call, For, ForKind, SeqStmt, Stmt

__all__ = ["calls_host", "launches_threads", "parallel_loops"]


def calls_host(body: Any) -> bool:
    """Whether a program calls packed functions, which only the host can."""
    found = False

    def look(node: Any) -> None:
        nonlocal found
        found = found or (isinstance(node, Call) and getattr(node.op, "name", "").startswith("tir.tvm_call_"))

    post_order_visit(body, look)
    return found


def launches_threads(body: Any) -> bool:
    """Whether a program is one for a GPU already, written by hand."""
    found = False

    def look(node: Any) -> None:
        nonlocal found
        bound = isinstance(node, AttrStmt) and node.attr_key == "thread_extent"
        found = found or bound or (isinstance(node, For) and node.thread_binding is not None)

    post_order_visit(body, look)
    return found


def parallel_loops(body: Stmt) -> list[For] | None:
    """The loops of a body that is nothing but ``T.parallel`` loops one after the other, free for any thread; else None."""
    parts = body.seq if isinstance(body, SeqStmt) else [body]
    loops = [p for p in parts if isinstance(p, For) and p.kind == ForKind.PARALLEL]
    if len(loops) < len(parts) or calls_host(body) or launches_threads(body):
        return None
    return loops
