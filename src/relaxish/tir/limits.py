"""Limits of unrolling and vectorising: beyond them compilation takes for ever and no machine gains."""

from __future__ import annotations

from typing import Any

from ..ir.prim import const_int
from ..support.errors import RelaxishError
from .stmt import Block, BlockRealize, For, ForKind, IfThenElse, SeqStmt, Stmt

__all__ = [
    "MAX_LANES", "MAX_UNROLLED", "check_unrolled", "lanes_of_loops", "too_many_copies", "too_many_lanes",
    "unrolled_size",
]  # fmt: skip

#: Statements that unrolling may make of one loop nest; the code generator takes about a millisecond for each.
MAX_UNROLLED = 1 << 14
#: Lanes that a vector may have: data types count them in 16 bits, with a sign.
MAX_LANES = (1 << 15) - 1


def _count(loop: For) -> int:
    return max(1, const_int(loop.extent, 1))


def _parts(stmt: Stmt) -> list[Any]:
    match stmt:
        case SeqStmt():
            return list(stmt.seq)
        case BlockRealize():
            return [stmt.block]
        case Block():
            return [stmt.body] if stmt.init is None else [stmt.init, stmt.body]
        case IfThenElse():
            return [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
    body = getattr(stmt, "body", None)
    return [body] if isinstance(body, Stmt) else []


def unrolled_size(stmt: Stmt) -> int:
    """Number of statements once all loops marked unrolled are written out."""
    parts = _parts(stmt)
    size = sum(unrolled_size(part) for part in parts) if parts else 1
    return size * _count(stmt) if isinstance(stmt, For) and stmt.kind == ForKind.UNROLLED else size


def check_unrolled(stmt: Stmt) -> None:
    """Raise RelaxishError where a nest of loops marked unrolled is too large to be written out."""
    if isinstance(stmt, For) and stmt.kind == ForKind.UNROLLED and _count(stmt) > 1:
        if (size := unrolled_size(stmt)) > MAX_UNROLLED:
            raise RelaxishError(too_many_copies(size, stmt.loop_var.name))
        return
    for part in _parts(stmt):
        check_unrolled(part)


def lanes_of_loops(stmt: Stmt) -> int:
    """Largest number of lanes of the vectors of nested vectorized loops."""
    lanes = max((lanes_of_loops(part) for part in _parts(stmt)), default=1)
    return lanes * _count(stmt) if isinstance(stmt, For) and stmt.kind == ForKind.VECTORIZED else lanes


def too_many_copies(size: int, name: str) -> str:
    """Why unrolling is refused."""
    return (
        f"unrolling the loop {name} would make {size} statements, more than the {MAX_UNROLLED} that can be compiled in "
        "reasonable time: split the loop and unroll the inner one"
    )


def too_many_lanes(lanes: int, name: str) -> str:
    """Why vectorizing is refused."""
    return (
        f"vectorizing the loop {name} would make vectors of {lanes} lanes, but there are at most {MAX_LANES}: "
        "split the loop and vectorize the inner one"
    )
