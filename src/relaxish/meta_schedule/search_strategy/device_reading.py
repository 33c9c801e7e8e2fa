"""A scheduled GPU program, before postprocs, as the vectoriser sees it: loops with what they are fused of, stores, and
what decides whether a GPU can launch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith.functor import uses_var
from ...ir.dtype import nbytes
from ...ir.functor import post_order_visit
from ...ir.node import Node
from ...ir.prim import Cast, Var
from ...tir import BufferLoad, BufferStore, PrimFunc, Schedule
from ...tir.schedule import ScheduleError, Trace
from ...tir.schedule.instruction import Instruction
from ...tir.schedule.rv import LoopRV
from ...tir.stmt import Block
from ..analysis import blocks as ba
from ..feature_extractor.program import Program, StoreInfo, extract_program
from ..analysis.thread_binding import thread_tag
from .device_tiles import TileFacts, read_tiles
from .fitting import Unfit
from ...ir.plain import plain_int
from ...support.sequences import of_kind

__all__ = ["BlockFacts", "DeviceReading", "Fetch", "LoopFacts", "SharedBuffer", "read_device_program"]

FETCH_KEY = "meta_schedule.cooperative_fetch"


@dataclass
class LoopFacts:
    """A loop and the extents of the loops it was fused of, outermost first."""

    var: Any
    extent: int
    tag: str
    parts: tuple[int, ...]

    def part_of(self, div: int, extent: int) -> int | None:
        """The part whose running number is ``(loop // div) % extent``."""
        inner = 1
        for index in range(len(self.parts) - 1, -1, -1):
            own = self.parts[index]
            if own > 1 and inner == div:
                return index if extent == own or (extent == 0 and inner * own >= self.extent) else None
            inner *= own
        return None

    def quotient_of(self, div: int, extent: int) -> tuple[int, int] | None:
        """The part, and the divisor, whose quotient is ``(loop // div) % extent``."""
        inner = 1
        for index in range(len(self.parts) - 1, -1, -1):
            own = self.parts[index]
            if inner < div < inner * own and div % inner == 0 and own % (div // inner) == 0:
                whole = extent * div == inner * own or (extent == 0 and inner * own >= self.extent)
                return (index, div // inner) if whole else None
            inner *= own
        return None


@dataclass(frozen=True)
class Joint:
    """A fused loop that was split again: the loops it became, and the extents of those it was fused of, outermost
    first."""

    loops: tuple[int, ...]
    parts: tuple[int, ...]


@dataclass
class Fetch:
    """A copy that threads share: the block, its last loop, the category of its vector length (or the length), the
    loops that are bound to ``threadIdx.y`` and ``threadIdx.x`` before it (-1: a whole warp; None: not bound), and the
    bytes of the widest value that is loaded, converted or stored for an element: among those that vary within a row of
    the tile, and among all."""

    block: str
    loop: int
    category: int | None
    lanes: int
    thread_y: int | None
    thread_x: int | None
    element_bytes: tuple[int, int]


@dataclass
class BlockFacts:
    """A block directly under the root: its loops, its limits of threads, and whether a warp runs it as one."""

    name: str
    loops: list[int]
    spatial: bool
    low: int | None = None
    high: int | None = None
    warp: bool = False


@dataclass
class SharedBuffer:
    """A tile in shared memory: the loops of the copy that fills or empties it, bytes of an element, how far its rows are
    set apart ``(factor, offset)``, whether the copy reads it, and whether its columns are swizzled."""

    name: str
    loops: tuple[int, ...]
    itemsize: int
    dynamic: bool
    pitch: tuple[int, int] | None
    reader: bool
    permuted: bool = False


@dataclass
class DeviceReading:
    """One concrete program."""

    program: Program
    loops: list[LoopFacts]
    stores: list[StoreInfo]
    fetches: list[Fetch]
    blocks: list[BlockFacts]
    shared: list[SharedBuffer] = field(default_factory=list)
    pipelined: bool = False
    tiles: TileFacts | None = None
    joints: list[Joint] = field(default_factory=list)

    def signature(self) -> tuple[object, ...]:
        """Everything but the numbers; equal for programs of one structural variant."""
        return (
            [(loop.tag, len(loop.parts)) for loop in self.loops],
            [
                (
                    s.buffer.name,
                    s.block,
                    s.loops,
                    s.ops,
                    len(s.exprs),
                    [(a.buffer.name, a.kind, [len(i) for i in a.indices]) for a in s.accesses],
                )
                for s in self.stores
            ],
            self.fetches,
            self.blocks,
            self.shared,
            self.pipelined,
            self.tiles,
            [(joint.loops, len(joint.parts)) for joint in self.joints],
        )


class FuseWatch:
    """Notes what every fused loop is made of while a trace is replayed."""

    def __init__(self, sch: Schedule) -> None:
        self.sch = sch
        self.extents: list[tuple[int, ...]] = []

    def note(self, inst: Instruction, inputs: Sequence[Any]) -> None:
        """To be called before each instruction."""
        if inst.kind.name == "Fuse":
            self.extents.append(tuple(ba.int_extent(self.sch.get(loop)) or 0 for loop in inputs))

    def parts(self) -> dict[Any, tuple[int, ...]]:
        """By variable of a fused loop that is still there the extents it was fused of."""
        found = {}
        for inst, extents in self._fuses():
            loop = self._loop(inst.outputs[0])
            if loop is not None:
                found[loop] = extents
        return found

    def joints(self, number: dict[Any, int]) -> list[Joint]:
        """The fused loops that were split again into loops that are all still there."""
        trace: Any = self.sch.trace
        fused = {inst.outputs[0]: extents for inst, extents in self._fuses()}
        found = []
        for inst in trace.insts:
            if inst.kind.name == "Split" and inst.inputs[0] in fused:
                pieces = [self._loop(rv) for rv in inst.outputs]
                if all(var in number for var in pieces):
                    found.append(Joint(tuple(number[var] for var in pieces), fused[inst.inputs[0]]))
        return found

    def _fuses(self) -> list[tuple[Any, tuple[int, ...]]]:
        trace: Any = self.sch.trace
        return list(zip([i for i in trace.insts if i.kind.name == "Fuse"], self.extents, strict=True))

    def _loop(self, rv: LoopRV) -> Var | None:
        """The variable of a loop, None for one that was split or fused since."""
        try:
            return self.sch.get(rv).loop_var
        except (ScheduleError, IndexError, ValueError):
            return None


def read_device_program(sch: Schedule, watch: FuseWatch) -> DeviceReading:
    """Read a schedule after its trace and before its postprocs. Raises :class:`Unfit` for shapes not covered."""
    funcs = list(of_kind(sch.mod.functions.values(), PrimFunc))
    program = extract_program(funcs)
    parts = watch.parts()
    loops = [LoopFacts(x.var, x.extent, x.kind, parts.get(x.var, (x.extent,))) for x in program.loops]
    number = {loop.var: i for i, loop in enumerate(loops)}
    fetches = _fetches(sch, number)
    shared_by_threads = {fetch.block for fetch in fetches}
    blocks = [facts for func in funcs for facts in _blocks(func, number, shared_by_threads)]
    stores = [s for s in program.stores if not s.tensorized]
    copies: dict[str, tuple[int, ...]] = {fetch.block: (fetch.loop,) for fetch in fetches}
    places = [place for func in funcs for place in ba.places(func)]
    for place in places:
        block = place.realize.block
        if ba.annotation(block, "auto_copy"):
            inside = next(s.loops[len(place.loops) :] for s in stores if s.block == block.name_hint)
            copies[block.name_hint] = tuple(inside)
    shared = [buffer for place in places for buffer in _shared(place.realize.block, copies)]
    pipelined = any(ba.annotation(loop, "software_pipeline_stage") for place in places for loop in place.loops)
    tiles = read_tiles(sch, places, number)
    return DeviceReading(program, loops, stores, fetches, blocks, shared, pipelined, tiles, watch.joints(number))


def _blocks(func: PrimFunc, number: dict[Any, int], by_threads: set[str]) -> list[BlockFacts]:
    places = ba.places(func)
    root = next((p.realize.block for p in places if p.scope is None), None)
    found = []
    for place in places:
        if place.scope is not root or place.scope is None:
            continue
        block = place.realize.block
        tags = [thread_tag(loop) for loop in place.loops]
        alone = block.name_hint in by_threads or ba.in_tiles(place)
        kinds = ("blockIdx",) if alone else ("blockIdx", "threadIdx")
        if not all(any(t.startswith(kind) for t in tags) for kind in kinds):
            raise Unfit("a block that is bound only by a postproc")
        low = ba.annotation(block, "meta_schedule.thread_extent_low_inclusive")
        high = ba.annotation(block, "meta_schedule.thread_extent_high_inclusive")
        found.append(
            BlockFacts(
                block.name_hint,
                [number[loop.loop_var] for loop in place.loops],
                ba.is_spatial(block),
                low,
                high,
                bool(ba.annotation(block, "warp_execution")),
            )
        )
    return found


def _fetches(sch: Schedule, number: dict[Any, int]) -> list[Fetch]:
    """The shared copies, with the threads the postproc will give them."""
    trace: Any = sch.trace
    categories = [i.outputs[0] for i in trace.insts if i.kind.name == "SampleCategorical"]
    threads: dict[str, int | None] = {"threadIdx.x": None, "threadIdx.y": None}
    found = []
    for inst in trace.insts:
        kind = inst.kind.name
        if kind == "Bind" and inst.attrs[0] in threads:
            threads[inst.attrs[0]] = number[sch.get(inst.inputs[0]).loop_var]
        elif kind == "Annotate" and inst.attrs[0] == "warp_execution":
            threads["threadIdx.x"] = -1
        elif kind == "Annotate" and inst.attrs[0] == FETCH_KEY:
            value = inst.inputs[1]
            category = next((i for i, rv in enumerate(categories) if rv is value), None)
            lanes = 0 if category is not None else plain_int(value)
            last = sch.get(sch.get_loops(inst.inputs[0])[-1])
            found.append(
                Fetch(
                    sch.get(inst.inputs[0]).name_hint,
                    number[last.loop_var],
                    category,
                    lanes,
                    threads["threadIdx.y"],
                    threads["threadIdx.x"],
                    _element_bytes(sch.get(inst.inputs[0])),
                )
            )
    return found


def _element_bytes(block: Block) -> tuple[int, int]:
    """The bytes of the widest values of one element: those that vary along the tile's last axis, and all."""
    column = block.iter_vars[-1].var
    varying, widest = 1, 1

    def look(node: Node) -> None:
        nonlocal varying, widest
        if isinstance(node, (BufferLoad, BufferStore, Cast)):
            size = nbytes(node.value.dtype if isinstance(node, BufferStore) else node.dtype)
            widest = max(widest, size)
            if isinstance(node, BufferStore) or uses_var(node, column):
                varying = max(varying, size)

    post_order_visit(block.body, look)
    return varying, widest


def _shared(block: Block, copies: dict[str, tuple[int, ...]]) -> list[SharedBuffer]:
    """The tiles in shared memory that a copy writes or reads."""
    found = []
    for regions, reader in ((block.writes, False), (block.reads, True)) if block.name_hint in copies else ():
        for region in regions:
            scope = region.buffer.scope()
            if scope.startswith("shared"):
                found.append(
                    SharedBuffer(
                        region.buffer.name,
                        copies[block.name_hint],
                        nbytes(region.buffer.dtype),
                        scope == "shared.dyn",
                        None if reader else _pitch(block),
                        reader,
                        bool(ba.annotation(block, "permuted_layout")),
                    )
                )
    return found


def _pitch(block: Block) -> tuple[int, int] | None:
    aligned = block.annotations.get("buffer_dim_align") if block.annotations else None
    if not aligned:
        return None
    _, axis, factor, offset = (plain_int(x) for x in aligned[0])
    if len(aligned) != 1 or axis != len(block.writes[0].buffer.shape) - 2:
        raise Unfit("rows of shared memory set apart in several dimensions")
    return factor, offset


def replay(sch: Schedule, trace: Trace) -> tuple[DeviceReading | None, tuple[bool, ...]]:
    """Apply a trace and read what came of it, nothing where a fused loop has an extent that is no number; and whether it
    is one, for each loop that was fused."""
    watch = FuseWatch(sch)

    def look(
        inst: Instruction,
        inputs: Sequence[Any],
        attrs: Sequence[int | str | None],
        decision: int | Sequence[int] | None,
    ) -> object:
        watch.note(inst, inputs)
        return decision

    trace.apply_to_schedule(sch, remove_postproc=True, decision_provider=look)
    numbers = tuple(extent != 0 for extents in watch.extents for extent in extents)
    return read_device_program(sch, watch) if all(numbers) else None, numbers
