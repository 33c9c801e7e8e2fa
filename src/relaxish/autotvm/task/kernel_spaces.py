"""The parameters of kernels that have no template of their own.

Products and convolutions on CPUs are tuned as their default schedule is made (:class:`TileSpace`): a tile of results in
registers, vectors along one axis, operands copied into strips, stages such as padding apart or where they are needed.
All others have the space of multi-level tiling that ``meta_schedule`` would search (:class:`SketchSpace`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol, cast

import numpy as np

from ...carver import CpuModel
from ...carver.cpu_hints import ORDERS, CpuTile, TileProblem
from ...dlight.cpu import Contraction
from ...dlight.cpu.contraction import open_contraction
from ...dlight.cpu.variants import apply_tile
from ...ir import IRModule
from ...ir.plain import plain_int, plain_ints
from ...ir.structural import structural_hash
from ...meta_schedule import TuneContext
from ...meta_schedule.analysis.schedules import schedule_for_tuning
from ...meta_schedule.search_strategy.replay import apply_trace
from ...meta_schedule.space_generator.hints import SketchEstimate, estimate_sketch
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...target import Target
from ...tir import ForKind, PrimFunc, Schedule
from ...tir.schedule import Instruction, ScheduleError, Trace
from ...tir.schedule.primitives.compute_at import compute_locations
from .entity import InstantiationError, OtherOptionEntity, SplitEntity
from .space import ConfigSpace
from .subspace import VirtualAxis

__all__ = ["KernelSpace", "SketchSpace", "TileSpace", "kernel_space"]

Points = Sequence[int] | np.ndarray[Any, Any]
_SAMPLED = 2048
_KEPT = 64
# Numbers of lanes that are tried, and steps of the innermost reduction that are written out.
_LANE_COUNTS, _MOST_STEPS = 3, 16


class KernelSpace(Protocol):
    """Parameters of one kernel."""

    def define(self, cfg: ConfigSpace) -> None:
        """Define them."""

    def apply(self, cfg: ConfigSpace) -> Schedule:
        """The scheduled kernel. Raises InstantiationError if a primitive or a limit refuses it."""

    def cycles(self, space: ConfigSpace, points: Points) -> np.ndarray[Any, Any] | None:
        """Estimated cycles of configurations; None where there is no model of the kernel."""


# ---- decisions of a sketch


def _split(cfg: ConfigSpace, name: str) -> SplitEntity:
    return cast(SplitEntity, cfg[name])


def _option(cfg: ConfigSpace, name: str) -> OtherOptionEntity:
    return cast(OtherOptionEntity, cfg[name])


class SketchSpace:
    """One sketch as parameters: a name for each sampling instruction that is tuned."""

    def __init__(self, context: TuneContext, trace: Trace) -> None:
        self.context = context
        self.trace = trace.simplified(remove_postproc=True)
        self.tiles: dict[str, tuple[Instruction, int, int, int]] = {}  # name: instruction, extent, parts, innermost
        self.options: dict[str, tuple[Instruction, list[int]]] = {}
        self.places: dict[str, tuple[Instruction, list[int]]] = {}
        places = self._locations()
        for inst in self.trace.insts:
            decision = self.trace.get_decision(inst)
            if inst.kind.name == "SamplePerfectTile" and decision is not None:
                sizes = plain_ints(decision)
                limit = plain_int(inst.attrs[1])
                self.tiles[f"tile_{len(self.tiles)}"] = (inst, prod(sizes), len(sizes), limit)
            elif inst.kind.name == "SampleCategorical":
                values = list(plain_ints(inst.attrs[0]))
                self.options[f"option_{len(self.options)}"] = (inst, values)
            elif inst in places:
                self.places[f"place_{len(self.places)}"] = (inst, places[inst])
        self.estimate: SketchEstimate | None = estimate_sketch(context, self.trace)

    def _locations(self) -> dict[Instruction, list[int]]:
        """Where blocks may be computed: inlined (-2), apart (-1), or under the loop of that number."""
        assert self.context.mod is not None
        sch = schedule_for_tuning(self.context.mod, 1)
        found: dict[Instruction, list[int]] = {}

        def watch(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> object:
            if inst.kind.name == "SampleComputeLocation":
                found[inst] = list(compute_locations(sch.state, sch.sref(inputs[0]))[1])
            return decision

        self.trace.apply_to_schedule(sch, remove_postproc=True, decision_provider=watch)
        return found

    def define(self, cfg: ConfigSpace) -> None:
        for name, (_, extent, parts, limit) in self.tiles.items():
            cfg.define_split(
                name, VirtualAxis(extent, name), policy="factors", num_outputs=parts, filter=_innermost(limit)
            )  # fmt: skip
        for name, (_, values) in (*self.options.items(), *self.places.items()):
            cfg.define_knob(name, values)

    def apply(self, cfg: ConfigSpace) -> Schedule:
        trace = self.trace
        decisions = dict(trace.decisions)
        for name, (inst, extent, _, _) in self.tiles.items():
            size = list(_split(cfg, name).size)
            size[0] = extent // prod(size[1:])
            decisions[inst] = size
        for name, (inst, values) in self.options.items():
            decisions[inst] = values.index(_option(cfg, name).val)
        for name, (inst, _) in self.places.items():
            decisions[inst] = _option(cfg, name).val
        failures: dict[str, int] = {}
        sch = apply_trace(self.context, Trace(trace.insts, decisions), 1, failures)
        if sch is None:
            raise InstantiationError(f"the configuration is refused by {', '.join(failures) or 'a primitive'}")
        return sch

    def cycles(self, space: ConfigSpace, points: Points) -> np.ndarray[Any, Any] | None:
        if self.estimate is None:
            return None
        digits = space.columns.digits(points)
        factors = {}
        for j, (name, table) in enumerate(zip(space.space_map, space.columns.tables, strict=True)):
            if name in self.tiles:
                inst, extent, _, _ = self.tiles[name]
                sizes = table[digits[:, j]].astype(np.int64)
                sizes[:, 0] = extent // sizes[:, 1:].prod(axis=1)
                factors[inst] = sizes
        return np.asarray(self.estimate.cycles(factors)) if factors else None


def _innermost(limit: int) -> Callable[[Any], bool]:
    return lambda entity: entity.size[-1] <= limit


def _sketch_for(mod: IRModule, target: Target) -> SketchSpace:
    """Of all sketches the one from which the model of the machine expects most; else that with most parameters."""
    context = TuneContext(mod, target=target, space_generator="post-order-apply", rand_state=1, num_threads=1)
    found = [SketchSpace(context, s.trace) for s in context.generate_design_space() if s.trace is not None]
    if not found:
        raise RelaxishError("there is no sketch for this kernel")
    best, best_key = found[0], (-1.0, -1.0)
    rng = np.random.default_rng(0)
    for sketch in found:
        space = ConfigSpace()
        sketch.define(space)
        cycles = None
        if sketch.tiles:
            columns = space.columns
            cycles = sketch.cycles(space, columns.points(rng.integers(0, columns.dims, (_SAMPLED, len(columns.dims)))))
        key = (1.0 / float(cycles.min()) if cycles is not None else 0.0, float(len(sketch.tiles)))
        if key > best_key:
            best, best_key = sketch, key
    return best


# ---- register tiles


class TileSpace:
    """A register tile as parameters: ``tile_x`` (tasks, vectors, lanes of the axis in vectors), ``tile_y`` (tasks, tiles of
    a task, rows of a tile), ``tile_z`` (tiles side by side along a further axis), ``tile_k`` (passes over the reduction,
    steps of a pass), ``order`` of the outer loops, ``pack`` (whether operands are copied into strips), ``unroll`` (steps of
    the innermost reduction written out), ``stages`` (whether what is computed before, padding say, is apart or inside of
    the outermost loop).
    """

    def __init__(self, mod: IRModule, target: Target, problem: TileProblem, stages: Sequence[str]) -> None:
        self.mod, self.target, self.problem, self.stages = mod, target, problem, list(stages)
        self.packable = problem.packable()

    @staticmethod
    def of(mod: IRModule, target: Target) -> TileSpace | None:
        """The space of a kernel; None where its shapes are not of that kind, or another schedule is for it."""
        func = next(of_kind(mod.functions.values(), PrimFunc))
        opened = open_contraction(func, target)
        if opened is None:
            return None
        _, infos, anchor = opened
        if any(it.dom is None for it in anchor.iters):
            return None
        machine = CpuModel.of_target(target)
        free = (func.attrs or {}).get("layout_free_buffers") or ()
        known = {func.buffer_map[func.params[plain_int(i)]].name for i in free}
        problem = TileProblem.of(anchor, machine, known)
        if problem is None or Contraction().apply(func, target, False) is None:
            return None
        names = [info.name for info in infos]
        return TileSpace(mod, target, problem, names[: names.index(anchor.name)])

    def define(self, cfg: ConfigSpace) -> None:
        problem = self.problem
        columns = problem.vector.dom or 1
        widths = [[-1, v, n] for n in problem.lane_counts(_LANE_COUNTS) for v in problem.vector_counts(n)]
        cfg.define_split("tile_x", VirtualAxis(columns, "x"), "candidate", num_outputs=3, candidate=widths)
        if problem.rows is not None:
            height = problem.rows.dom or 1
            tiles = [[-1, n, rows] for rows in problem.row_counts() for n in self._tiles_of_tasks(height, rows)]
            cfg.define_split("tile_y", VirtualAxis(height, "y"), "candidate", num_outputs=3, candidate=tiles)
        lines = problem.lines()
        if lines is not None and len(counts := problem.line_counts()) > 1:
            beside = [[-1, n] for n in counts]
            cfg.define_split("tile_z", VirtualAxis(lines.dom or 1, "z"), "candidate", num_outputs=2, candidate=beside)
        depths = problem.depths(problem.lanes())
        if len(depths) > 1:
            steps = problem.info.reductions[0].dom or 1
            passes = [[-1, depth or steps] for depth in depths]
            cfg.define_split("tile_k", VirtualAxis(steps, "k"), "candidate", num_outputs=2, candidate=passes)
        if problem.rows is not None:
            cfg.define_knob("order", list(ORDERS))
        if self.packable:
            cfg.define_knob("pack", [0, 1])
        cfg.define_knob("unroll", self._steps())
        if self.stages:
            cfg.define_knob("stages", ["apart", "inside"])
        cfg.multi_filter(self._makes_sense)

    def _tiles_of_tasks(self, height: int, rows: int) -> list[int]:
        """How many tiles of ``rows`` rows a task has: all, or fewer where there would be too few tasks."""
        parts = self.problem.row_tasks(rows, self.problem.lanes())
        return sorted({-(-(part or height) // rows) for part in parts}, reverse=True)

    def _steps(self) -> list[int]:
        """Steps of the innermost reduction loop that has more than one."""
        extents = [it.dom for it in self.problem.info.reductions if it.dom and it.dom > 1]
        last = extents[-1] if extents else 1
        return [n for n in range(1, _MOST_STEPS + 1) if last % n == 0 and (n == last or n in (1, 2, 4, 8))]

    def _tile(self, cfg: ConfigSpace) -> CpuTile:
        _, vectors, lanes = _split(cfg, "tile_x").size
        rows, task, order = 1, 0, ORDERS[0]
        if self.problem.rows is not None:
            _, count, rows = _split(cfg, "tile_y").size
            task = count * rows if count * rows < (self.problem.rows.dom or 1) else 0
            order = str(_option(cfg, "order").val)
        depth = _split(cfg, "tile_k").size[1] if "tile_k" in cfg else 0
        if depth == self.problem.info.reductions[0].dom:
            depth = 0
        packed = self.packable if "pack" in cfg and _option(cfg, "pack").val else ()
        lines = _split(cfg, "tile_z").size[1] if "tile_z" in cfg else 1
        return CpuTile(lanes, vectors, rows, depth, packed, task, order, lines)

    def _makes_sense(self, cfg: ConfigSpace) -> bool:
        tile = self._tile(cfg)
        plain = not (tile.packed or tile.depth or tile.row_task)
        return self.problem.fits(tile.rows, tile.vectors * tile.lines) and (plain or tile.order == ORDERS[0])

    def apply(self, cfg: ConfigSpace) -> Schedule:
        sch = schedule_for_tuning(self.mod, 1)
        tile = self._tile(cfg)
        try:
            apply_tile(sch, vars(tile), self.target)
            update = sch.get_block(f"{self.problem.info.name}_update")
            _write_out(sch, update, int(_option(cfg, "unroll").val))
            if self.stages and _option(cfg, "stages").val == "inside":
                for name in reversed(self.stages):
                    sch.compute_at(sch.get_block(name), sch.get_loops(update)[0], True)
        except ScheduleError as error:
            raise InstantiationError(f"the tile {tile} does not fit this kernel: {error}") from error
        return sch

    def cycles(self, space: ConfigSpace, points: Points) -> np.ndarray[Any, Any] | None:
        tiles = [self._tile(space.get(int(p))) for p in points]
        return np.asarray(self.problem.cycles(tiles))


def _write_out(sch: Schedule, block: Any, steps: int) -> None:
    """Unroll so many steps of the innermost loop that is no part of the register tile."""
    if steps == 1:
        return
    for loop in reversed(sch.get_loops(block)):
        extent = plain_int(sch.get(loop).extent)
        if sch.get(loop).kind == ForKind.SERIAL and extent > 1:
            sch.unroll(loop if extent == steps else sch.split(loop, [None, steps])[1])
            return


# ---- which of them


_SPACES: OrderedDict[Any, KernelSpace] = OrderedDict()


def kernel_space(mod: IRModule, target: Target) -> KernelSpace:
    """The parameters of a kernel, the same object for the same kernel. Raises RelaxishError where nothing can be tuned."""
    key = (structural_hash(mod), str(target))
    found = _SPACES.get(key)
    if found is None:
        found = _SPACES[key] = TileSpace.of(mod, target) or _sketch_for(mod, target)
        while len(_SPACES) > _KEPT:
            _SPACES.popitem(last=False)
    return found
