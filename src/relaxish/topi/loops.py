"""Short forms for writing statements by hand, where an operator is no element-wise definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tir import Buffer, BufferLoad, BufferStore, const, For, ForKind, PrimExpr, Stmt, Var
from ..tir.stmt import stmt_seq as seq
from ..te.tensor import ExprLike

__all__ = ["in_parallel", "loop", "loops", "read", "seq", "write"]


def loop(name: str, extent: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``for name in range(extent)``."""
    dtype = str(extent.dtype) if hasattr(extent, "dtype") else "int64"
    var = Var(name, dtype)
    return For(var, const(0, dtype), extent, ForKind.SERIAL, body(var))


def loops(shape: Sequence[PrimExpr], body: Callable[[list[PrimExpr]], Stmt], prefix: str = "i") -> Stmt:
    """A nest over all indices of ``shape``."""
    variables = [Var(f"{prefix}{k}", str(d.dtype)) for k, d in enumerate(shape)]
    stmt = body(list(variables))
    for var, extent in zip(reversed(variables), reversed(list(shape))):
        stmt = For(var, const(0, str(extent.dtype)), extent, ForKind.SERIAL, stmt)
    return stmt


def in_parallel(stmt: Stmt) -> Stmt:
    """A statement whose outermost loop, if it is one, is run by several threads."""
    return stmt.with_fields(kind=ForKind.PARALLEL) if isinstance(stmt, For) else stmt


def read(buffer: Buffer, *indices: ExprLike) -> PrimExpr:
    """An element."""
    return BufferLoad(buffer, tuple(indices))


def write(buffer: Buffer, value: ExprLike, *indices: ExprLike) -> Stmt:
    """Store an element."""
    return BufferStore(buffer, value, tuple(indices))
