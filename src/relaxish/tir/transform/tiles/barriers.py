"""Barriers of a block: before a step that touches what steps since the last barrier have written, or writes what they read.

The steps of a block's program are wrapped in attributes while it is lowered; here they are unwrapped.
"""

from __future__ import annotations
from collections.abc import Iterable, Sequence

from dataclasses import dataclass, field
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.functor import all_nodes
from ....ir.prim import Var, const
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import AttrStmt, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While
from ..base import call, is_call, seq

__all__ = ["Steps", "barrier"]

_STEP = "tile_step"


def barrier() -> Stmt:
    """All threads of the block wait for each other."""
    return Evaluate(call("int32", "tvm_storage_sync", "shared"))


@dataclass
class _Access:
    """Memory (pointers) that a step touches. What is ``managed`` another barrier protects."""

    reads: set[Var] = field(default_factory=set)
    writes: set[Var] = field(default_factory=set)
    managed: set[Var] = field(default_factory=set)

    def meets(self, later: _Access) -> bool:
        """Whether a barrier must come between this and what comes later."""
        writes, touched = self.writes - later.managed, (self.reads | self.writes) - later.managed
        return bool(writes & later.reads or touched & later.writes)

    def joined(self, other: _Access) -> _Access:
        return _Access(self.reads | other.reads, self.writes | other.writes)


class Steps:
    """The steps of a kernel, and where barriers come between them.

    ``tracked`` are the pointers that count; ``views`` say which of them a buffer in the arena stands for, ``places`` which of
    them the memory of a program's buffer is.
    """

    def __init__(self, tracked: set[Var], views: dict[Buffer, Var], places: dict[Var, Var]) -> None:
        self.tracked = tracked
        self.views = views
        self.places = places
        self.accesses: list[_Access] = []

    def step(
        self, body: Stmt, reads: Iterable[Buffer] = (), writes: Iterable[Buffer] = (), managed: Sequence[Buffer] = ()
    ) -> Stmt:
        """A step that touches memory (buffers) as said."""

        def pointers(buffers: Iterable[Buffer]) -> set[Var]:
            return {p for b in buffers if (p := self.places.get(b.data, b.data)) in self.tracked}

        self.accesses.append(_Access(pointers(reads), pointers(writes), pointers(managed)))
        number = const(len(self.accesses) - 1, "int32")
        return AttrStmt(const(0, "int32"), _STEP, number, body)

    def place(self, body: Any) -> Stmt:
        """The program with barriers."""
        made, _ = self._place(body, _Access())
        return made

    def _reads(self, e: PrimExpr) -> _Access:
        found = {self.views.get(n.buffer, n.buffer.data) for n in of_kind(all_nodes(e), BufferLoad)}
        return _Access(found & self.tracked)

    def _before(self, access: _Access, pending: _Access) -> tuple[list[Stmt], _Access]:
        if pending.meets(access):
            return [barrier()], _Access(set(access.reads), set(access.writes))
        return [], pending.joined(access)

    def _place(self, stmt: Any, pending: _Access) -> tuple[Any, _Access]:
        number: Any = getattr(stmt, "value", None)
        match stmt:
            case SeqStmt():
                made = []
                for item in stmt.seq:
                    item, pending = self._place(item, pending)
                    made.append(item)
                return seq(made), pending
            case AttrStmt() if stmt.attr_key == _STEP:
                first, pending = self._before(self.accesses[int(number.value)], pending)
                return seq([*first, stmt.body]), pending
            case Evaluate():
                return stmt, _Access() if is_call(stmt.value, "tvm_storage_sync") else pending
            case IfThenElse():
                first, pending = self._before(self._reads(stmt.condition), pending)
                then, after = self._place(stmt.then_case, pending)
                other, otherwise = stmt.else_case, pending
                if other is not None:
                    other, otherwise = self._place(other, pending)
                return seq([*first, IfThenElse(stmt.condition, then, other)]), after.joined(otherwise)
            case For() | While():
                return self._loop(stmt, pending)
            case LetStmt():
                first, pending = self._before(self._reads(stmt.value), pending)
                body, after = self._place(stmt.body, pending)
                return seq([*first, stmt.with_fields(body=body)]), after
        if hasattr(stmt, "body"):
            body, after = self._place(stmt.body, pending)
            return stmt.with_fields(body=body), after
        return stmt, pending

    def _loop(self, loop: Any, pending: _Access) -> tuple[Any, _Access]:
        about = self._reads(loop.condition) if isinstance(loop, While) else self._reads(loop.extent)
        first, pending = self._before(about, pending)
        # What the end of a turn leaves open meets the beginning of the next.
        entry = pending
        for _ in range(3):
            body, after = self._place(loop.body, entry)
            wider = pending.joined(after).joined(about)
            if wider == entry:
                break
            entry = wider
        return seq([*first, loop.with_fields(body=body)]), pending.joined(after)
