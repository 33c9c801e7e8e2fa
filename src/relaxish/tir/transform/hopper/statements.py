"""Small makers of statements for the warpgroup lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....arith.build import as_int
from ....ir.expr import ExprLike, PrimExpr, Range
from ....ir.prim import Cast, IntImm, Var
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad, IterVar
from ...op_hopper import HOPPER_CALLS
from ...stmt import Allocate, AttrStmt, DeclBuffer, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt
from ..base import call, seq

__all__ = [
    "Body", "address", "allocate", "as_int32", "do", "in_role", "launch", "let", "lets", "loop", "pointer", "typed_view", "when",
]  # fmt: skip

Body = Callable[[PrimExpr], Stmt]


def do(name: str, *args: Any) -> Stmt:
    """A statement that is one instruction."""
    return Evaluate(call(HOPPER_CALLS[name], name, *args))


def as_int32(e: PrimExpr | int) -> PrimExpr:
    """An index as int32, which is what coordinates of copies and numbers of blocks are."""
    match e:
        case int():
            return IntImm("int32", e)
        case IntImm():
            return IntImm("int32", e.value)
    return e if e.dtype == "int32" else Cast("int32", e)


def in_role(e: PrimExpr, role: Var) -> PrimExpr:
    """An int32 expression in the type of a coordinate."""
    return e if e.dtype == role.dtype else Cast(role.dtype, e)


def address(buffer: Buffer, index: ExprLike) -> PrimExpr:
    """The address of an element."""
    return call("handle", "address_of", BufferLoad(buffer, [index]))


def let(name: str, value: PrimExpr, body: Callable[[Var], Stmt]) -> Stmt:
    """A named value; ``body`` gets its variable."""
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


def lets(pairs: Sequence[tuple[Var, Any]], body: Stmt) -> Stmt:
    """Values for variables that exist."""
    for var, value in reversed(pairs):
        body = LetStmt(var, value, body)
    return body


def loop(name: str, extent: PrimExpr | int, body: Body, kind: ForKind = ForKind.SERIAL) -> Stmt:
    """A loop from 0; a loop of one turn is its body."""
    if isinstance(extent, int):
        extent = IntImm("int32", extent)
    if as_int(extent) == 1:
        return body(IntImm(extent.dtype, 0))
    var = Var(name, extent.dtype)
    return For(var, IntImm(extent.dtype, 0), extent, kind, body(var))


def when(condition: PrimExpr, *then: Stmt) -> Stmt:
    """A condition without alternative."""
    return IfThenElse(condition, seq(list(then)))


def pointer(name: str, dtype: str, scope: str) -> Var:
    """A variable that points into memory of a scope."""
    return Var(name, PointerType(PrimType(dtype), scope))


def typed_view(name: str, data: Var, dtype: str, count: int, scope: str) -> Buffer:
    """Memory read as ``count`` elements of a type."""
    return decl_buffer([count], dtype, name, data=data, scope=scope)


def allocate(name: str, dtype: str, count: int, scope: str, body: Callable[[Buffer], Stmt]) -> Stmt:
    """Memory for ``body``."""
    data = pointer(name, dtype, scope)
    buffer = typed_view(name, data, dtype, count, scope)
    return Allocate(data, dtype, [IntImm("int32", count)], IntImm("bool", 1), DeclBuffer(buffer, body(buffer)))


def launch(tag: str, extent: PrimExpr | int, body: Callable[[Var], Stmt]) -> Stmt:
    """Threads or blocks along one axis."""
    var = Var(tag.replace("Idx.", "_"), "int32")
    axis = IterVar(Range(0, extent), var, IterVar.ThreadIndex, tag)
    return AttrStmt(axis, "thread_extent", extent, body(var))
