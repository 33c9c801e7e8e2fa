"""Questions the schedule rules ask about a block, answered from the program a schedule holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.prim import const_int
from ...ir.prim import is_call_of
from ...ir.functor import all_nodes
from ...tir import (
    Add,
    Block,
    BlockRealize,
    BufferRegion,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    PrimFunc,
    Schedule,
    Select,
    Sub,
    Var,
)
from ...tir.schedule import BlockRV, checks
from ...tir.stmt import Stmt
from ...tir.transform.hopper.tiles import TILES
from ...ir.plain import plain

__all__ = [
    "annotation",
    "blocks_in",
    "child_blocks",
    "consumers",
    "cumulative_lengths",
    "enclosing",
    "enclosing_loops",
    "has_been_tiled",
    "has_if_then_else",
    "has_inner_block",
    "has_op",
    "in_tiles",
    "int_extent",
    "is_reduction",
    "is_root",
    "is_spatial",
    "is_spatial_function",
    "is_trivial_binding",
    "is_write_cache",
    "iter_types",
    "loop_type",
    "needs_multi_level_tiling",
    "needs_rfactor",
    "producers",
    "read_write_pattern",
    "realize_of",
    "vars_in",
]

TILING_KEY = "meta_schedule.tiling_structure"


def vars_in(expr: PrimExpr) -> set[Var]:
    """The variables an expression mentions."""
    return {node for node in all_nodes(expr) if isinstance(node, Var)}


def int_extent(loop: For) -> int | None:
    """The extent of a loop where it is a literal."""
    return const_int(loop.extent)


def annotation(stmt: Block | For, key: str, default: Any = None) -> Any:
    """An annotation of a block or loop as a plain value."""
    value = stmt.annotations.get(key, default) if stmt.annotations else default
    return plain(value)


def has_been_tiled(block: Block) -> bool:
    """Whether a tiling rule has already been there."""
    return annotation(block, TILING_KEY) is not None


def iter_types(block: Block) -> list[int]:
    """Iterator kinds of the block's axes."""
    return [int(iv.iter_type) for iv in block.iter_vars]


def is_spatial(block: Block) -> bool:
    """Whether every axis is data parallel."""
    return all(t == IterVar.DataPar for t in iter_types(block))


def is_reduction(block: Block) -> bool:
    """Whether the block has an init and only data parallel and reduction axes."""
    kinds = iter_types(block)
    return (
        block.init is not None
        and all(t in (IterVar.DataPar, IterVar.CommReduce) for t in kinds)
        and IterVar.CommReduce in kinds
    )


class Place:
    """Position of a block: its realize and the loops around it within its scope, outermost first."""

    __slots__ = ("loops", "realize", "scope")

    def __init__(self, realize: BlockRealize, loops: tuple[For, ...], scope: Block | None) -> None:
        self.realize = realize
        self.loops = loops
        self.scope = scope


def _children(stmt: Stmt) -> Iterable[Any]:
    if isinstance(stmt, For):
        return (stmt.body,)
    seq = getattr(stmt, "seq", None)
    if seq is not None:
        return tuple(seq)
    if isinstance(stmt, IfThenElse):
        return (stmt.then_case,) if stmt.else_case is None else (stmt.then_case, stmt.else_case)
    body = getattr(stmt, "body", None)
    return () if body is None else (body,)


def places(func: PrimFunc) -> list[Place]:
    """All blocks of a function in post-order (children before their parents)."""
    return _places_below(func.body)


def _places_below(root: Stmt) -> list[Place]:
    found: list[Place] = []

    def walk(stmt: Stmt, loops: tuple[For, ...], scope: Block | None) -> None:
        if isinstance(stmt, BlockRealize):
            walk(stmt.block.body, (), stmt.block)
            found.append(Place(stmt, loops, scope))
            return
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        for child in _children(stmt):
            walk(child, inner, scope)

    walk(root, (), None)
    return found


def blocks_in(stmt: Stmt) -> list[Block]:
    """The nearest blocks below a statement, not opening blocks."""
    if isinstance(stmt, BlockRealize):
        return [stmt.block]
    return [b for child in _children(stmt) for b in blocks_in(child)]


def child_blocks(block: Block) -> list[Block]:
    """The blocks directly inside a block's scope."""
    return blocks_in(block.body)


def enclosing(sch: Schedule, block: Block) -> tuple[PrimFunc, Place]:
    """The function a block lives in, and its place there."""
    for func in sch.mod.functions.values():
        if isinstance(func, PrimFunc):
            for place in places(func):
                if place.realize.block is block:
                    return func, place
    raise ValueError(f"block {block.name_hint} is not part of the schedule's module")


def enclosing_loops(sch: Schedule, block: BlockRV) -> tuple[For, ...]:
    """The loops around a block within its scope, outermost first; this leaves no trace."""
    return enclosing(sch, sch.get(block))[1].loops


def realize_of(sch: Schedule, block: Block) -> BlockRealize:
    """The realize of a block."""
    return enclosing(sch, block)[1].realize


def consumers(sch: Schedule, block: BlockRV) -> list[Block]:
    """The blocks that read what a block writes; unlike the primitive of the schedule, this leaves no trace."""
    sref = sch.get_sref(block)
    return [found.stmt for found in checks.consumers_of(sch.state, sref, checks.scope_root(sch.state, sref))]


def producers(sch: Schedule, block: BlockRV) -> list[Block]:
    """The blocks that write what a block reads; unlike the primitive of the schedule, this leaves no trace."""
    sref = sch.get_sref(block)
    return [found.stmt for found in checks.producers_of(sch.state, sref, checks.scope_root(sch.state, sref))]


def is_root(sch: Schedule, block: Block) -> bool:
    """Whether the block is the outermost of its function."""
    return enclosing(sch, block)[1].scope is None


def is_spatial_function(func: PrimFunc) -> bool:
    """Whether no block below the root reduces."""
    return all(is_spatial(p.realize.block) for p in places(func) if p.scope is not None)


def is_trivial_binding(place: Place) -> bool:
    """Whether axes are bound to the surrounding loops one to one, in order."""
    values = place.realize.iter_values
    if len(values) != len(place.loops):
        return False
    return all(v is loop.loop_var for v, loop in zip(values, place.loops, strict=True))


def loop_type(place: Place, loop: For) -> int:
    """Axis kind of a loop: data parallel, reduction, or opaque when it drives axes of several kinds."""
    axes = zip(place.realize.block.iter_vars, place.realize.iter_values, strict=True)
    kinds = {int(iv.iter_type) for iv, value in axes if loop.loop_var in vars_in(value)}
    if not kinds:
        return int(IterVar.DataPar)
    return kinds.pop() if len(kinds) == 1 else int(IterVar.Opaque)


def is_parallel(place: Place, loop: For) -> bool:
    """Whether the iterations of a loop may run side by side: of all the blocks below it, other blocks than the place's
    included, it drives data parallel axes only."""
    body: Any = loop.body
    while isinstance(body, For):
        body = body.body
    below = [place] if body is place.realize else [p for p in _places_below(loop) if p.scope is None]
    return all(loop_type(p, loop) == IterVar.DataPar for p in below)


def in_tiles(place: Place) -> bool:
    """Whether a block is part of a program of whole tiles, whose threads are bound when it is lowered."""
    return any(annotation(loop, TILES) for loop in place.loops)


def needs_multi_level_tiling(place: Place) -> bool:
    """Whether data is reused: some data parallel axis does not index some input."""
    block = place.realize.block
    if has_been_tiled(block) or len(block.writes) != 1 or not block.reads or is_spatial(block):
        return False
    if not is_trivial_binding(place):
        return False
    spatial = []
    for iv in block.iter_vars:
        low, extent = const_int(iv.dom.min), const_int(iv.dom.extent)
        if low is None or extent is None:
            return False
        if iv.iter_type == IterVar.DataPar and not (low == 0 and extent == 1):
            spatial.append(iv.var)
    unused = 0
    for region in block.reads:
        if region.buffer is block.writes[0].buffer:
            return False
        used: set[Var] = set()
        for dim in region.region:
            if const_int(dim.extent) is None:
                return False
            used |= vars_in(dim.min)
        unused += sum(1 for var in spatial if var not in used)
    return unused >= 1


def cumulative_lengths(place: Place) -> tuple[int, int]:
    """Products of data parallel and of reduction extents; -1 where one is unknown."""
    space = reduce = 1
    for loop in place.loops:
        extent = int_extent(loop)
        if extent is None:
            return -1, -1
        kind = loop_type(place, loop)
        if kind == IterVar.DataPar:
            space *= extent
        elif kind == IterVar.CommReduce:
            reduce *= extent
        else:
            return -1, -1
    return space, reduce


def needs_rfactor(place: Place, max_parallel_extent: int) -> bool:
    """Whether a reduction offers parallelism that its data parallel axes lack."""
    block = place.realize.block
    if not block.writes or not is_reduction(block) or has_been_tiled(block) or not is_trivial_binding(place):
        return False
    kinds = [loop_type(place, loop) for loop in place.loops]
    if any(k not in (IterVar.DataPar, IterVar.CommReduce) for k in kinds) or IterVar.CommReduce not in kinds:
        return False
    bodies = [*place.loops[1:], place.realize]
    if any(loop.body is not body for loop, body in zip(place.loops, bodies, strict=True)):
        return False
    space, reduce = cumulative_lengths(place)
    if space == -1 or reduce == -1:
        return False
    if needs_multi_level_tiling(place):
        return not (space >= reduce or space > max_parallel_extent)
    return reduce > 1


def _var_with_offset(expr: PrimExpr) -> tuple[Var, int] | None:
    match expr:
        case Var():
            return expr, 0
        case Add() | Sub():
            offset = const_int(expr.b)
            if isinstance(expr.a, Var) and offset is not None:
                return expr.a, offset if isinstance(expr, Add) else -offset
            offset = const_int(expr.a)
            if isinstance(expr, Add) and isinstance(expr.b, Var) and offset is not None:
                return expr.b, offset
    return None


def read_write_pattern(read: BufferRegion, write: BufferRegion) -> tuple[bool, bool, bool, bool, bool, bool]:
    """Map of read indices to write indices: exists, surjective, injective, ordered, no constant, no shift."""
    none = (False, False, False, False, False, False)
    position: dict[Var, int] = {}
    for index, dim in enumerate(write.region):
        if not isinstance(dim.min, Var) or const_int(dim.extent) != 1:
            return none
        position[dim.min] = index
    mapped: list[int] = []
    no_const = no_shift = True
    for dim in read.region:
        if const_int(dim.extent) != 1:
            return none
        if const_int(dim.min) is not None:
            no_const = False
            continue
        found = _var_with_offset(dim.min)
        if found is None or found[0] not in position:
            return none
        no_shift = no_shift and found[1] == 0
        mapped.append(position[found[0]])
    injective = len(set(mapped)) == len(mapped)
    ordered = all(a < b for a, b in zip(mapped, mapped[1:], strict=False))
    return True, len(set(mapped)) == len(position), injective, ordered, no_const, no_shift


def _any(node: Stmt, test: Callable[[Any], bool]) -> bool:
    return any(test(x) for x in all_nodes(node))


def has_if_then_else(stmt: Stmt) -> bool:
    """Whether the statement branches, by statement, select or intrinsic."""
    return _any(
        stmt,
        lambda x: isinstance(x, (IfThenElse, Select)) or (is_call_of(x, "tir.if_then_else")),
    )


def has_op(stmt: Stmt, names: Sequence[str]) -> bool:
    """Whether the statement calls one of the named intrinsics."""
    wanted = set(names)
    return _any(stmt, lambda x: is_call_of(x, *wanted))


def is_write_cache(block: Block) -> bool:
    """Whether the block only copies or post-processes element by element what one producer wrote."""
    if len(block.writes) != 1:
        return False
    write = block.writes[0]
    for read in block.reads:
        exists, _, injective, ordered, no_const, no_shift = read_write_pattern(read, write)
        if not (exists and injective and ordered):
            return False
        surjective = read_write_pattern(read, write)[1]
        if surjective and no_const and no_shift:
            return True
    return False


def has_annotation_or_binding(loop: For) -> bool:
    """Whether a loop is already spoken for."""
    return loop.kind != ForKind.SERIAL or bool(loop.annotations) or loop.thread_binding is not None


def has_inner_block(block: Block) -> bool:
    """Whether there are blocks inside of a block."""
    return any(isinstance(node, BlockRealize) for node in all_nodes(block.body))


def is_single_statement(body: Stmt) -> bool:
    """Whether a loop body is one statement and not a sequence."""
    return getattr(body, "seq", None) is None
