"""Hints: the decisions of a sketch that an analytic model expects to be fast, before anything has been measured.

Every block that multi-level tiling has tiled gives a :class:`~relaxish.carver.TilingModel`; a sketch's estimate is the
sum over its blocks. Sketches without such blocks, and programs whose indices are not affine, have no estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...arith.affine import affine
from ...carver import Access, Axis, CpuModel, TilingModel
from ...ir import dtype as dt
from ...ir.module import IRModule
from ...tir import For, IterVar, PrimFunc, Schedule, Var
from ...tir.buffer import Buffer
from ...tir.schedule import Instruction, Trace
from ...ir.prim import const_int
from ..analysis import blocks as ba
from ..analysis.schedules import schedule_for_tuning
from ...ir.plain import plain_int

if TYPE_CHECKING:
    from ..task import Task

__all__ = ["SketchEstimate", "TiledBlock", "estimate_sketch", "tiled_blocks"]

IntMatrix = npt.NDArray[np.int64]


@dataclass
class TiledBlock:
    """A tiled block's model and the sampling instruction behind each of its axes (None: not sampled, not tiled)."""

    model: TilingModel
    samples: list[Instruction | None]


class SketchEstimate:
    """Estimates a sketch from the factors its tiles are given."""

    def __init__(self, blocks: Sequence[TiledBlock]) -> None:
        self.blocks = list(blocks)

    def cycles(self, factors: dict[Instruction, IntMatrix]) -> npt.NDArray[np.float64]:
        """Estimated cycles: for each sampling instruction a matrix with a row for each candidate."""
        count = len(next(iter(factors.values())))
        total = np.zeros(count)
        for block in self.blocks:
            columns = []
            for axis, inst in zip(block.model.axes, block.samples, strict=True):
                letter = "R" if axis.reduction else "S"
                fixed = np.ones((count, block.model.structure.count(letter)), dtype=np.int64)
                fixed[:, 0] = axis.extent
                columns.append(fixed if inst is None else factors[inst])
            total += block.model.cycles(columns)
        return total


def estimate_sketch(context: Task, trace: Trace) -> SketchEstimate | None:
    """The estimate of a sketch, for CPU targets; None where it has no tiled block that can be modelled."""
    if context.target is None or context.target.get_target_device_type() != 1:
        return None
    blocks = tiled_blocks(context, trace)
    return SketchEstimate(blocks) if blocks else None


def tiled_blocks(context: Task, trace: Trace) -> list[TiledBlock]:
    """The tiled blocks of a sketch; none where one of them cannot be modelled. On GPUs only their axes mean something."""
    if context.target is None or context.mod is None:
        return []
    on_cpu = context.target.get_target_device_type() == 1
    machine = CpuModel.of_target(context.target) if on_cpu else CpuModel()
    reader = _Reader(schedule_for_tuning(context.mod, 1), machine, _packed(context.mod))
    trace.apply_to_schedule(reader.sch, remove_postproc=True, decision_provider=reader.watch)
    return [] if reader.failed else reader.blocks


def _packed(mod: IRModule) -> set[str]:
    """Names of the buffers whose layout follows the schedule."""
    names: set[str] = set()
    for func in mod.functions.values():
        if isinstance(func, PrimFunc) and func.attrs is not None:
            for index in func.attrs.get("layout_free_buffers") or ():
                position = plain_int(index)
                names.add(func.buffer_map[func.params[position]].name)
    return names


class _Reader:
    """Watches a trace being replayed and models each tiled block as it is about to be split."""

    def __init__(self, sch: Schedule, machine: CpuModel, packed: set[str]) -> None:
        self.sch = sch
        self.machine = machine
        self.packed = packed
        self.blocks: list[TiledBlock] = []
        self.axis_of: dict[Var, tuple[TiledBlock, int]] = {}
        self.failed = False

    def watch(
        self,
        inst: Instruction,
        inputs: Sequence[Any],
        attrs: Sequence[int | str | Sequence[float]],
        decision: int | Sequence[int] | None,
    ) -> int | Sequence[int] | None:
        """A decision provider that changes nothing."""
        if inst.kind.name != "SamplePerfectTile" or self.failed:
            return decision
        loop = self.sch.get(inputs[0])
        if loop.loop_var not in self.axis_of and not self._add_block(loop):
            return decision
        block, axis = self.axis_of[loop.loop_var]
        block.samples[axis] = inst
        return decision

    def _add_block(self, loop: For) -> bool:
        for func in self.sch.mod.functions.values():
            for place in ba.places(func) if isinstance(func, PrimFunc) else ():
                structure = ba.annotation(place.realize.block, ba.TILING_KEY)
                if structure is None or not any(x.loop_var is loop.loop_var for x in place.loops):
                    continue
                model = _model(place, str(structure), self.machine, self.packed)
                if model is None:
                    self.failed = True
                    return False
                block = TiledBlock(model, [None] * len(model.axes))
                self.blocks.append(block)
                self.axis_of.update({x.loop_var: (block, i) for i, x in enumerate(place.loops)})
                return True
        return False  # a split of something else, such as a factored reduction


def _model(place: ba.Place, structure: str, machine: CpuModel, packed: set[str]) -> TilingModel | None:
    axes = []
    for loop in place.loops:
        extent, kind = ba.int_extent(loop), ba.loop_type(place, loop)
        if extent is None or kind not in (IterVar.DataPar, IterVar.CommReduce):
            return None
        axes.append(Axis(extent, kind == IterVar.CommReduce))
    block = place.realize.block
    numbers = {loop.loop_var: i for i, loop in enumerate(place.loops)}
    bindings = dict(zip((iv.var for iv in block.iter_vars), place.realize.iter_values, strict=True))
    accesses = []
    for written, regions in ((False, block.reads), (True, block.writes)):
        for region in regions:
            if not written and region.buffer is block.writes[0].buffer:
                continue
            dims = []
            for dim in region.region:
                each = const_int(dim.extent)
                form = affine(dim.min, bindings)
                if each is None:
                    return None
                steps = {numbers[v]: form.step(v) for v in form.variables() if v in numbers}
                dims.append(({axis: step for axis, step in steps.items() if step}, each))
            accesses.append(_access(region.buffer, dims, written, region.buffer.name in packed))
    tensorized = ba.annotation(block, "meta_schedule.auto_tensorize") is not None
    return TilingModel(axes, accesses, structure, machine, 16 if tensorized else 1)


def _access(buffer: Buffer, dims: list[tuple[dict[int, int], int]], written: bool, packed: bool) -> Access:
    size = max(1, dt.bits(buffer.dtype) // 8)
    last = const_int(buffer.shape[-1]) if len(buffer.shape) > 1 and not packed else None
    return Access(tuple(dims), size, written, packed, (last or 0) * size)
