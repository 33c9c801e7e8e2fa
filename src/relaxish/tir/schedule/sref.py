"""References into the IR that stay valid while the (immutable) statements below them are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from ...ir.module import IRModule
from ..stmt import Block, For, SeqStmt
from .identity import Identity

__all__ = ["BlockDependenceInfo", "BlockScope", "DepKind", "Dependency", "StmtSRef"]


class StmtSRef(Identity):
    """A stable handle on one loop or block of a schedule state.

    The statement behind it changes with every edit below; the handle does not.  ``stmt`` is None once the
    statement was removed from the program.
    """

    __slots__ = ("__weakref__", "parent", "stmt")

    def __init__(self, stmt: Any = None, parent: StmtSRef | None = None) -> None:
        self.stmt = stmt
        self.parent = parent

    def ancestors(self) -> Iterator[StmtSRef]:
        """The references above this one, nearest first."""
        ref = self.parent
        while ref is not None:
            yield ref
            ref = ref.parent

    @property
    def is_block(self) -> bool:
        """Whether a block of the program is meant."""
        return isinstance(self.stmt, Block)

    @property
    def is_loop(self) -> bool:
        """Whether a loop of the program is meant."""
        return isinstance(self.stmt, For)

    @property
    def seq_index(self) -> int:
        """The position in the sequence the statement is an element of, -1 if it is none of a sequence."""
        body = None if self.parent is None else self.parent.stmt.body
        if isinstance(body, SeqStmt):
            for index, part in enumerate(body.seq):
                if getattr(part, "block", part) is self.stmt:
                    return index
        return -1

    @staticmethod
    def inline_mark() -> StmtSRef:
        """The marker that stands for "compute inline" as a compute location."""
        return _INLINE_MARK

    @staticmethod
    def root_mark() -> StmtSRef:
        """The marker that stands for "leave at the root" as a compute location."""
        return _ROOT_MARK

    def __repr__(self) -> str:
        if self is _INLINE_MARK:
            return "StmtSRef(inline)"
        if self is _ROOT_MARK:
            return "StmtSRef(root)"
        if self.stmt is None:
            return "StmtSRef(expired)"
        name = getattr(self.stmt, "name_hint", None)
        return f"StmtSRef(block {name})" if name is not None else f"StmtSRef(loop {self.stmt.loop_var.name})"


_INLINE_MARK = StmtSRef()
_ROOT_MARK = StmtSRef()


class DepKind(IntEnum):
    """Why one block must stay after another."""

    RAW = 0
    WAW = 1
    WAR = 2
    OPAQUE = 3


class Dependency(Identity):
    """``dst`` depends on ``src`` because of ``kind``."""

    __slots__ = ("dst", "kind", "src")

    def __init__(self, src: StmtSRef, dst: StmtSRef, kind: DepKind) -> None:
        self.src = src
        self.dst = dst
        self.kind = kind

    def __repr__(self) -> str:
        return f"Dependency({self.src!r} -> {self.dst!r}, {self.kind.name})"


class BlockScope(Identity):
    """The dependences between the child blocks of one block."""

    __slots__ = ("buffer_writers", "children", "dst2deps", "src2deps")

    def __init__(self, child_srefs: list[StmtSRef]) -> None:
        self.children = tuple(child_srefs)
        self.src2deps: dict[StmtSRef, list[Dependency]] = {}
        self.dst2deps: dict[StmtSRef, list[Dependency]] = {}
        self.buffer_writers: dict[Any, list[StmtSRef]] = {}
        readers: dict[Any, list[StmtSRef]] = {}
        for child in child_srefs:
            self._add(child, readers)

    def _add(self, child: StmtSRef, readers: dict[Any, list[StmtSRef]]) -> None:
        block = child.stmt
        for region in block.reads:
            for source in self.buffer_writers.get(region.buffer, ()):
                self._link(source, child, DepKind.RAW)
        for region in block.writes:
            for source in self.buffer_writers.get(region.buffer, ()):
                self._link(source, child, DepKind.WAW)
            for source in readers.get(region.buffer, ()):
                self._link(source, child, DepKind.WAR)
        for region in block.reads:
            readers.setdefault(region.buffer, []).append(child)
        for region in block.writes:
            writers = self.buffer_writers.setdefault(region.buffer, [])
            if child not in writers:
                writers.append(child)

    def _link(self, src: StmtSRef, dst: StmtSRef, kind: DepKind) -> None:
        if src is dst:
            return
        dep = Dependency(src, dst, kind)
        self.src2deps.setdefault(src, []).append(dep)
        self.dst2deps.setdefault(dst, []).append(dep)

    def get_deps_by_src(self, block: StmtSRef) -> list[Dependency]:
        """Dependences from ``block`` on later blocks."""
        return list(self.src2deps.get(block, ()))

    def get_deps_by_dst(self, block: StmtSRef) -> list[Dependency]:
        """Dependences of ``block`` on earlier blocks."""
        return list(self.dst2deps.get(block, ()))


class BlockDependenceInfo:
    """Block scopes of a whole module without a schedule: ``get_block_scope(get_sref(block))``."""

    def __init__(self, mod: IRModule) -> None:
        from .state import ScheduleState

        self._state = ScheduleState(mod)

    def get_sref(self, block: Block) -> StmtSRef | None:
        """The reference of a block, None if the block is not in the module."""
        return self._state.get_sref(block)

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """Dependences between the blocks directly inside ``block_sref``."""
        return self._state.get_block_scope(block_sref)
