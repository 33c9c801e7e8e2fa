"""The schedule state: a tree of references over immutable functions, edited by path copying."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, For, SeqStmt, Stmt
from .sref import BlockScope, StmtSRef
from .walk import replace_child, stmt_children

__all__ = ["BlockInfo", "CachedFlags", "ScheduleDebugMask", "ScheduleState"]


_PIECE_NAME = re.compile(r"_(common|partition)(_|$)")


class ScheduleDebugMask(IntEnum):
    """Checks of a state after every edit, as a bit set."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


class CachedFlags(NamedTuple):
    """Facts about a block; see ``ScheduleState.flags``."""

    affine_binding: bool
    region_cover: bool
    stage_pipeline: bool


class BlockInfo:
    """Facts about one block, each computed when first asked for and kept while its inputs last."""

    __slots__ = ("affine", "affine_key", "region_cover", "scope", "scope_key", "stage_pipeline")

    def __init__(self) -> None:
        self.scope: BlockScope | None = None
        self.scope_key: tuple[Any, ...] = ()
        self.affine = False
        self.affine_key: tuple[Any, ...] = ()
        self.region_cover: bool | None = None
        self.stage_pipeline: bool | None = None


def parse_debug_mask(mask: str | int) -> int:
    """``"all"``, ``"none"`` or the bits of :class:`ScheduleDebugMask`."""
    if isinstance(mask, str):
        if mask == "all":
            return int(ScheduleDebugMask.VERIFY_SREF_TREE | ScheduleDebugMask.VERIFY_CACHED_FLAGS)
        if mask == "none":
            return 0
        raise ValueError(f"unrecognised debug_mask {mask!r}: use 'all', 'none' or an integer")
    if not isinstance(mask, int):
        raise TypeError(f"unrecognised debug_mask {mask!r}: use 'all', 'none' or an integer")
    return int(mask)


class ScheduleState:
    """A module under transformation.

    Loops and blocks are reached by :class:`StmtSRef`, which survive every edit of what is below them.
    ``replace`` is the only way a program changes: the nodes on the path to the root are rebuilt, all else is shared.
    """

    def __init__(self, mod: IRModule | PrimFunc, *, debug_mask: str | int = "none", enable_check: bool = True) -> None:
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        if not isinstance(mod, IRModule):
            raise TypeError(f"a schedule takes an IRModule or a PrimFunc, not {type(mod).__name__}")
        self.debug_mask = parse_debug_mask(debug_mask)
        self.enable_check = enable_check
        self._mod: IRModule | None = mod
        self._base = mod
        self._funcs: dict[Any, Any] = dict(mod.functions)
        self.stmt2ref: dict[Any, StmtSRef] = {}
        self.block_info: dict[StmtSRef, BlockInfo] = {}
        self.roots: dict[StmtSRef, Any] = {}
        # The program each function began with and its blocks: cover flags are judged on that.
        self._origins: dict[Any, tuple[Any, list[StmtSRef]]] = {}
        #: Whether there are blocks around pieces of a loop that do not say yet what they access.
        self.undeclared = False
        for gvar, func in self._funcs.items():
            if isinstance(func, PrimFunc) and isinstance(func.body, BlockRealize):
                self._build(func.body.block, gvar)

    def _build(self, root: Block, gvar: GlobalVar) -> None:
        root_sref = StmtSRef(root, None)
        self.stmt2ref[root] = root_sref
        self.roots[root_sref] = gvar
        self._grow(root, root_sref)
        self._remember_origin(gvar, root)

    def _grow(self, root: Block, root_sref: StmtSRef) -> None:
        stack: list[tuple[Any, StmtSRef]] = [(root.body, root_sref)]
        while stack:
            stmt, parent = stack.pop()
            for child in stmt_children(stmt):
                if child in self.stmt2ref:
                    raise ValueError("a loop or block occurs twice in the program; each must be a distinct node")
                sref = StmtSRef(child, parent)
                self.stmt2ref[child] = sref
                stack.append((child.body, sref))
                self.undeclared = self.undeclared or self.is_undeclared(child)

    @staticmethod
    def is_undeclared(stmt: Stmt) -> bool:
        """Whether this is a block that ``loop_partition`` made and that says nothing of what it accesses.

        The copies of such blocks in the pieces of a loop around them have names that go on after that.
        """
        return (
            isinstance(stmt, Block)
            and not (stmt.iter_vars or stmt.reads or stmt.writes)
            and _PIECE_NAME.search(stmt.name_hint) is not None
            and bool(stmt_children(stmt.body))
        )

    # -- what the program is -------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        if self._mod is None:
            self._mod = self._base.with_fields(functions=dict(self._funcs))
        return self._mod

    def update_func(self, gvar: GlobalVar, func: PrimFunc) -> None:
        """Replace a function's header (parameters, buffer map); its body must be the state's own."""
        self._funcs[gvar] = func
        self._mod = None

    def func_of(self, sref: StmtSRef) -> tuple[Any, Any, StmtSRef]:
        """The name, function and root reference that ``sref`` belongs to."""
        while sref.parent is not None:
            sref = sref.parent
        gvar = self.roots[sref]
        return gvar, self._funcs[gvar], sref

    def get_sref(self, stmt: Stmt) -> StmtSRef | None:
        """The reference of a loop or block, None when the statement is not part of the program."""
        if isinstance(stmt, BlockRealize):
            stmt = stmt.block
        return self.stmt2ref.get(stmt)

    def origin_of(self, sref: StmtSRef) -> tuple[Any, list[StmtSRef]] | None:
        """The root block the function began with and references to its blocks in preorder, for one use."""
        gvar, func, _ = self.func_of(sref)
        if gvar not in self._origins:
            return None
        root, srefs = self._origins[gvar]
        if not srefs:
            return None
        self._origins[gvar] = (root, [])
        return root, srefs

    def _remember_origin(self, gvar: GlobalVar, root: Block) -> None:
        self._origins[gvar] = (root, [self.stmt2ref[b] for b in blocks_in_order(root)])

    def copy(self) -> tuple[ScheduleState, dict[StmtSRef, StmtSRef]]:
        """An independent state over the same nodes, and how old references map to new ones."""
        new = ScheduleState.__new__(ScheduleState)
        new.debug_mask, new.enable_check = self.debug_mask, self.enable_check
        new._mod, new._base, new._funcs = self._mod, self._base, dict(self._funcs)
        new.undeclared = self.undeclared
        mapping: dict[StmtSRef, StmtSRef] = {sref: StmtSRef(sref.stmt) for sref in self.stmt2ref.values()}
        for sref, twin in mapping.items():
            if sref.parent is not None:
                twin.parent = mapping[sref.parent]
        new.stmt2ref = {stmt: mapping[sref] for stmt, sref in self.stmt2ref.items()}
        new.roots = {mapping[sref]: gvar for sref, gvar in self.roots.items()}
        new.block_info = {}
        new._origins = {g: (root, [mapping.get(x, x) for x in refs]) for g, (root, refs) in self._origins.items()}
        for sref, info in self.block_info.items():
            twin_info = BlockInfo()
            twin_info.affine, twin_info.affine_key = info.affine, info.affine_key
            twin_info.region_cover, twin_info.stage_pipeline = info.region_cover, info.stage_pipeline
            new.block_info[mapping[sref]] = twin_info
        return new, mapping

    # -- facts about blocks --------------------------------------------------------------------------------

    def info(self, block_sref: StmtSRef) -> BlockInfo:
        """The fact sheet of a block."""
        found = self.block_info.get(block_sref)
        if found is None:
            found = self.block_info[block_sref] = BlockInfo()
        return found

    def child_blocks(self, sref: StmtSRef) -> list[StmtSRef]:
        """The nearest blocks below a loop or block, in program order."""
        out: list[StmtSRef] = []
        self._collect_children(sref.stmt.body, out)
        return out

    def _collect_children(self, stmt: Stmt, out: list[StmtSRef]) -> None:
        refs = self.stmt2ref
        while isinstance(stmt, For):
            stmt = stmt.body
        if isinstance(stmt, BlockRealize):
            out.append(refs[stmt.block])
        elif isinstance(stmt, SeqStmt):
            for part in stmt.seq:
                self._collect_children(part, out)
        else:
            for child in stmt_children(stmt):
                if isinstance(child, Block):
                    out.append(refs[child])
                else:
                    self._collect_children(child, out)

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """The dependences between the child blocks of ``block_sref``."""
        children = self.child_blocks(block_sref)
        key = tuple(child.stmt for child in children)
        info = self.info(block_sref)
        if info.scope is None or not _same_items(info.scope_key, key):
            info.scope = BlockScope(children)
            info.scope_key = key
        return info.scope

    def is_affine(self, block_sref: StmtSRef) -> bool:
        """Whether the block's bindings are independent quasi-affine maps of the loops around it."""
        from .block_info import affine_binding

        return affine_binding(self, block_sref)

    def flags(self, block_sref: StmtSRef) -> CachedFlags:
        """``affine_binding``; ``region_cover``: everything read is produced first, in full;
        ``stage_pipeline``: all children are covered and none overwrites what a former one still needs."""
        from .block_info import region_flags

        region_flags(self, block_sref)
        info = self.info(block_sref)
        return CachedFlags(self.is_affine(block_sref), bool(info.region_cover), bool(info.stage_pipeline))

    _get_cached_flags = flags

    def is_stage_pipeline(self, scope_sref: StmtSRef) -> bool:
        """The ``stage_pipeline`` flag alone."""
        from .block_info import region_flags

        info = self.info(scope_sref)
        if info.stage_pipeline is None:
            region_flags(self, scope_sref)
        return bool(info.stage_pipeline)

    def mark_new_block(self, block_sref: StmtSRef) -> None:
        """A block that a primitive just made is covered and pipelined by construction."""
        info = self.info(block_sref)
        info.region_cover = True
        info.stage_pipeline = True

    def forget_flags(self) -> Callable[[], None]:
        """Judge cover and pipeline flags anew, from the program as it is now, when next asked for; gives the undo."""
        before = [(info, info.region_cover, info.stage_pipeline) for info in self.block_info.values()]
        origins = dict(self._origins)
        for info, _, _ in before:
            info.region_cover = info.stage_pipeline = None
        self._origins.clear()

        def undo() -> None:
            for info, cover, pipeline in before:
                info.region_cover, info.stage_pipeline = cover, pipeline
            self._origins.clear()
            self._origins.update(origins)

        return undo

    def remember_origins(self) -> None:
        """Judge flags that are not known yet by the program as it is now, whenever they are asked for."""
        for root, gvar in self.roots.items():
            self._remember_origin(gvar, root.stmt)

    # -- the edit ------------------------------------------------------------------------------------------

    def replace(self, src_sref: StmtSRef, tgt_stmt: Stmt, block_sref_reuse: Mapping[Any, Any] | None = None) -> None:
        """Put ``tgt_stmt`` where ``src_sref`` is.

        Subtrees that occur unchanged keep their references, and so do loops with the same loop variable and
        blocks that ``block_sref_reuse`` maps from old to new.  A loop becomes a loop or a block with its bindings, a
        block becomes a block: anything else raises TypeError.
        """
        src_stmt = src_sref.stmt
        if not isinstance(tgt_stmt, (For, BlockRealize) if isinstance(src_stmt, For) else Block):
            raise TypeError(
                f"src_stmt has type: {type(src_stmt).__name__}. tgt_stmt has type: {type(tgt_stmt).__name__}."
            )
        is_realize = isinstance(tgt_stmt, BlockRealize)
        tgt_node = tgt_stmt.block if isinstance(tgt_stmt, BlockRealize) else tgt_stmt
        if src_stmt is tgt_node:
            return
        parent = src_sref.parent
        self._relink(src_stmt, tgt_node, parent, block_sref_reuse or {})
        if parent is None:
            assert isinstance(tgt_node, Block)
            self._replace_root(src_sref, src_stmt, tgt_node)
        else:
            self._copy_path(parent, src_stmt, tgt_stmt if is_realize else tgt_node)
        self._mod = None
        if self.debug_mask & ScheduleDebugMask.VERIFY_SREF_TREE:
            self.verify_sref_tree()

    def _relink(self, src: Block | For, tgt: Block | For, parent: StmtSRef | None, reuse: Mapping[Any, Any]) -> None:
        refs = self.stmt2ref
        fresh: list[tuple[Any, Any]] = []  # (node, parent node) of statements that have no reference yet
        intact: set[Any] = set()
        kept: list[tuple[Any, Any]] = []
        stack: list[tuple[Any, Any]] = [(tgt, None)]
        while stack:
            node, above = stack.pop()
            if node in refs:
                intact.add(node)
                kept.append((node, above))
                continue
            fresh.append((node, above))
            for child in stmt_children(node.body):
                stack.append((child, node))
        loops: dict[Any, StmtSRef] = {}
        old_nodes: dict[Any, StmtSRef] = {}
        walk = [src]
        while walk:
            node = walk.pop()
            if node in intact:
                continue
            sref = refs[node]
            old_nodes[node] = sref
            if isinstance(node, For):
                loops[node.loop_var] = sref
            walk.extend(stmt_children(node.body))
        reuse_of_new = {new: old for old, new in reuse.items()}
        used: set[StmtSRef] = set()
        made: dict[Any, StmtSRef | None] = {None: parent}
        for node, above in fresh:
            if isinstance(node, For):
                known = loops.get(node.loop_var)
            else:
                old = reuse_of_new.get(node)
                known = None if old is None else old_nodes.get(old)
            sref = StmtSRef(node) if known is None or known in used else known
            used.add(sref)
            sref.parent = made[above]
            made[node] = sref
        for node, sref in old_nodes.items():
            del refs[node]
            if sref not in used:
                sref.stmt = None
                sref.parent = None
                self.block_info.pop(sref, None)
        for node, _ in fresh:
            ref = made[node]
            assert ref is not None
            ref.stmt = node
            refs[node] = ref
        for node, above in kept:
            refs[node].parent = made[above]

    def _replace_root(self, src_sref: StmtSRef, src: Block, tgt: Block) -> None:
        gvar = self.roots.pop(src_sref)
        self.roots[self.stmt2ref[tgt]] = gvar
        func = self._funcs[gvar]
        self._funcs[gvar] = func.with_fields(body=func.body.with_fields(block=tgt))

    def _copy_path(self, sref: StmtSRef, old: Stmt, new: Stmt) -> None:
        refs = self.stmt2ref
        at: StmtSRef | None = sref
        while at is not None:
            before = at.stmt
            after = replace_child(before, old, new)
            del refs[before]
            refs[after] = at
            at.stmt = after
            old, new = before, after
            if at.parent is None:
                gvar = self.roots[at]
                func = self._funcs[gvar]
                self._funcs[gvar] = func.with_fields(body=func.body.with_fields(block=after))
            at = at.parent

    # -- self checks ---------------------------------------------------------------------------------------

    def verify_sref_tree(self) -> None:
        """Raise AssertionError when the references do not mirror the program."""
        seen = 0
        for root, gvar in self.roots.items():
            assert self._funcs[gvar].body.block is root.stmt, "the root reference is out of date"
            for node, above in _walk_nodes(root.stmt):
                sref = self.stmt2ref.get(node)
                assert sref is not None and sref.stmt is node, f"no reference to {node}"
                expected = None if above is None else self.stmt2ref[above]
                assert sref.parent is expected, f"wrong parent of {sref!r}"
                seen += 1
        assert seen == len(self.stmt2ref), "references to statements that are gone"

    def verify(self) -> None:
        """All self checks."""
        self.verify_sref_tree()


def blocks_in_order(root: Block) -> list[Any]:
    """All blocks of a program, outer before inner, in program order."""
    out: list[Any] = []

    def walk(node: Block | For) -> None:
        if isinstance(node, Block):
            out.append(node)
        for child in stmt_children(node.body):
            walk(child)

    walk(root)
    return out


def _same_items(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _walk_nodes(root: Block) -> Iterator[tuple[Any, Any]]:
    stack: list[tuple[Any, Any]] = [(root, None)]
    while stack:
        node, above = stack.pop()
        yield node, above
        for child in stmt_children(node.body):
            stack.append((child, node))
