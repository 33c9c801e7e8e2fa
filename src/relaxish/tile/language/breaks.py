"""``T.loop_break``: loops that end early, as loops that ask before each turn whether to go on."""

from __future__ import annotations

from typing import Any

from ...ir.functor import Mutator, all_nodes
from ...ir.prim import EQ, LT, And, StringImm, Var, const
from ...ir.types import PointerType, PrimType
from ...tir import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    decl_buffer,
)
from ...tir.transform.tiles.names import PARALLEL, VAR
from .regions import TileError

__all__ = ["BREAK", "end_loops"]

BREAK = "tile.loop_break"
"""What stands in a program where a loop ends, until the kernel is complete."""


def end_loops(body: Stmt, allocated: list[Buffer]) -> Stmt:
    """The program without breaks; variables that it then needs are added to ``allocated``. Raises TileError."""
    if not _breaks(body):
        return body
    made: Stmt = _Breaks(allocated).visit(body)
    if _breaks(made):
        raise TileError("T.loop_break stands outside of a loop")
    return made


def _is_break(node: Any) -> bool:
    return isinstance(node, Evaluate) and isinstance(node.value, StringImm) and node.value.value == BREAK


def _breaks(body: Stmt) -> bool:
    return any(_is_break(node) for node in all_nodes(body))


class _Breaks(Mutator):
    def __init__(self, allocated: list[Buffer]) -> None:
        super().__init__()
        self.allocated = allocated

    def visit_For(self, node: For) -> Stmt:
        if PARALLEL in node.annotations and _breaks(node):
            raise TileError("T.loop_break stands inside of T.Parallel, whose iterations are independent of each other")
        body = self.visit(node.body)
        if not _breaks(body):
            return node.with_fields(body=body)
        if node.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            raise TileError(
                f"T.loop_break ends serial loops; that over {node.loop_var.name} is {node.kind.name.lower()}"
            )
        stop, turn = self._variable("stop", "int32"), self._variable(f"{node.loop_var.name}_turn", node.loop_var.dtype)
        going = And(LT(_value(turn), node.min + node.extent), EQ(_value(stop), const(0, "int32")))
        step = _store(turn, node.loop_var + 1)
        inner = LetStmt(node.loop_var, _value(turn), SeqStmt([self._guarded(body, stop), step]))
        return SeqStmt([_store(stop, const(0, "int32")), _store(turn, node.min), While(going, inner)])

    def visit_While(self, node: While) -> Stmt:
        body = self.visit(node.body)
        if not _breaks(body):
            return node.with_fields(body=body)
        stop = self._variable("stop", "int32")
        # The loop's own condition may not be asked once more: it comes last.
        going = And(EQ(_value(stop), const(0, "int32")), node.condition)
        return SeqStmt([_store(stop, const(0, "int32")), While(going, self._guarded(body, stop))])

    def _variable(self, name: str, dtype: str) -> Buffer:
        made = decl_buffer([1], dtype, name, data=Var(name, PointerType(PrimType(dtype), VAR)), scope=VAR)
        self.allocated.append(made)
        return made

    def _guarded(self, stmt: Any, stop: Buffer) -> Stmt:
        """The statement, in which nothing is done once the loop has ended."""
        if _is_break(stmt):
            return _store(stop, const(1, "int32"))
        match stmt:
            case SeqStmt():
                for n, item in enumerate(stmt.seq):
                    if _breaks(item):
                        rest = SeqStmt.flatten(*stmt.seq[n + 1 :]) if n + 1 < len(stmt.seq) else None
                        made = [*stmt.seq[:n], self._guarded(item, stop)]
                        if rest is not None:
                            made.append(IfThenElse(EQ(_value(stop), const(0, "int32")), self._guarded(rest, stop)))
                        return SeqStmt.flatten(*made)
                return stmt
            case IfThenElse():
                other = None if stmt.else_case is None else self._guarded(stmt.else_case, stop)
                return stmt.with_fields(then_case=self._guarded(stmt.then_case, stop), else_case=other)
            case LetStmt():
                return stmt.with_fields(body=self._guarded(stmt.body, stop))
        return stmt


def _value(variable: Buffer) -> BufferLoad:
    return BufferLoad(variable, [const(0, "int32")])


def _store(variable: Buffer, value: Any) -> BufferStore:
    return BufferStore(variable, value, [const(0, "int32")])
