"""Carries out what was asked of the stages of a ``te.Schedule`` with the primitives of ``tir.Schedule``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir.errors import CheckValueError
from ..ir.functor import Mutator
from ..support.errors import ScheduleError
from ..support.sequences import of_kind
from ..tir import Block, BlockRealize, Buffer, IterVar, PrimFunc, Var
from ..tir.schedule import BlockRV, LoopRV
from ..tir.schedule import Schedule as BlockSchedule
from .operation import PlaceholderOp
from .prim_func import create_schedulable
from .tensor import Tensor

if TYPE_CHECKING:
    from .schedule import Schedule, Stage, Step

__all__ = ["Replay", "carry_out", "with_parameters"]

_VIRTUAL = ("vthread.x", "vthread.y", "vthread.z")
_SIMPLE = ("vectorize", "unroll", "parallel")


class Replay:
    """The block schedule in the making, and where each stage and axis is in it."""

    def __init__(self, schedule: Schedule) -> None:
        self.stages = list(schedule.stages)
        inputs = schedule.inputs
        outputs = [op.output(i) for op in schedule.outputs for i in range(op.num_outputs)]
        func, names, buffers = create_schedulable([*inputs, *outputs])
        self.parameters = [*inputs, *outputs]
        self.sch = BlockSchedule(func)
        self.buffers: dict[Tensor, Buffer] = dict(buffers)
        self.blocks: dict[Stage, BlockRV] = {}
        self.loops: dict[Stage, dict[IterVar, LoopRV]] = {}
        self.virtual: dict[Stage, int] = {}
        for stage in self.stages:
            found = names.get(stage.origin_op)
            if found:
                self.blocks[stage] = self.sch.get_block(found[0])
        for step in schedule.dataflow:
            getattr(self, "_" + step.kind)(*step.args)

    # -- stages

    def _buffer(self, tensor: Tensor) -> Buffer:
        known = self.buffers.get(tensor)
        if known is None:
            raise ScheduleError(f"tensor {tensor.name} is no tensor of this schedule")
        return known

    def _cache_read(self, tensor: Tensor, scope: str, readers: tuple[Stage, ...], made: Stage) -> None:
        buffer = self._buffer(tensor)
        blocks = []
        for reader in readers:
            block = self.blocks[reader]
            if not any(r.buffer is buffer for r in self.sch.get(block).reads):
                raise ScheduleError(f"cache_read: stage {reader.op.name} does not read {tensor.name}")
            blocks.append(block)
        reads = [r.buffer for r in self.sch.get(blocks[0]).reads]
        index = next(i for i, b in enumerate(reads) if b is buffer)
        copy = self.sch.cache_read(blocks[0], index, scope, consumer_blocks=blocks)
        self.blocks[made] = copy
        self.buffers[made.op.output(0)] = self.sch.get(copy).writes[0].buffer

    def _cache_write(self, stage: Stage, scope: str, made: Stage) -> None:
        block = self.blocks[stage]
        original = self.sch.get(block).writes[0].buffer
        copy = self.sch.cache_write(block, 0, scope)
        self.blocks[stage], self.blocks[made] = copy, block
        self.buffers[made.op.output(0)] = self.sch.get(block).writes[0].buffer
        for tensor, buffer in list(self.buffers.items()):
            if buffer is original:
                self.buffers[tensor] = self.sch.get(copy).writes[0].buffer

    def _rfactor(
        self,
        stage: Stage,
        made: Stage,
        axis: IterVar,
        place: int,
        steps: Sequence[Step],
        rows: Sequence[tuple[IterVar, IterVar]],
        last: IterVar,
        leaves: Sequence[IterVar],
    ) -> None:
        block = self.blocks[stage]
        first = [row[0] for row in rows]
        spatial = [a for a in first if a.iter_type != IterVar.CommReduce]
        origin = getattr(stage.origin_op, "reduce_axis", ())
        self.loops[stage] = self._own_loops(stage, [*spatial, *origin])
        for step in steps:
            self._step(stage, step)
        parts = self.sch.rfactor(self.loops[stage][axis], place)
        self.blocks[made] = parts
        # The new block has the loops of the old one, in the order the axes had; stages begin in the order of their axes.
        now = dict(zip(leaves, self.sch.get_loops(parts)[-len(leaves) :], strict=True))
        self.loops[made] = {new: now[old] for old, new in rows}
        self.sch.reorder(*[self.loops[made][a] for a in (*made.op.axis, *made.op.reduce_axis)])  # type: ignore[attr-defined]
        self.buffers[made.op.output(0)] = self.sch.get(parts).writes[0].buffer
        self.loops[stage] = dict(zip([*spatial, last], self.sch.get_loops(block), strict=True))

    # -- loops

    def _own_loops(self, stage: Stage, axes: Sequence[IterVar]) -> dict[IterVar, LoopRV]:
        if not axes:
            return {}
        loops = self.sch.get_loops(self.blocks[stage])
        if len(loops) < len(axes):
            raise ScheduleError(
                f"stage {stage.op.name} has axes that depend on each other; its loops cannot be scheduled by stages"
            )
        return dict(zip(axes, loops[-len(axes) :], strict=True))

    def inline(self, order: Sequence[Stage]) -> None:
        """Inline what is to be inlined, consumers first."""
        for stage in order:
            if stage.inlined:
                self.sch.compute_inline(self.blocks[stage])

    def place(self, stage: Stage) -> None:
        """Put a stage where it is to be computed, and carry out what was asked of its loops."""
        axes = [*getattr(stage.op, "axis", ()), *getattr(stage.op, "reduce_axis", ())]
        if stage.attach is not None:
            parent, axis = stage.attach
            target = self.loops.get(parent, {}).get(axis)
            if target is None:
                raise ScheduleError(
                    f"stage {stage.op.name} is to be computed at axis {axis.var.name} of stage {parent.op.name}, which "
                    "was split or fused after that, or belongs to a stage that does not read it"
                )
            self.sch.compute_at(self.blocks[stage], target, preserve_unit_loops=True)
            self.loops[stage] = self._own_loops(stage, axes)
        elif stage not in self.loops:
            self.loops[stage] = self._own_loops(stage, axes)
        for step in stage.steps:
            self._step(stage, step)

    def _step(self, stage: Stage, step: Step) -> None:
        loops = self.loops[stage]
        taken = [loops[a] for a in step.takes]
        if step.kind == "split":
            given, outer, unguarded = step.args
            factors = [given, None] if outer else [None, given]
            made = self.sch.split(taken[0], factors, True, unguarded)
            del loops[step.takes[0]]
            loops.update(zip(step.makes, made, strict=True))
        elif step.kind == "fuse":
            fused = self.sch.fuse(*taken)
            for axis in step.takes:
                del loops[axis]
            loops[step.makes[0]] = fused
        elif step.kind == "reorder":
            if len(taken) > 1:
                self.sch.reorder(*taken)
        elif step.kind in _SIMPLE:
            getattr(self.sch, step.kind)(taken[0])
        elif step.kind == "bind":
            self.sch.bind(taken[0], self._thread(stage, step.args[0]))
        elif step.kind == "pragma":
            self.sch.annotate(taken[0], f"pragma_{step.args[0]}", step.args[1])
        elif step.kind == "tensorize":
            self.sch.tensorize(taken[0], step.args[0])
        else:
            self._of_block(self.blocks[stage], step)

    def _thread(self, stage: Stage, tag: str) -> str:
        if tag not in ("vthread", "cthread"):
            return tag
        count = self.virtual.get(stage, 0)
        self.virtual[stage] = count + 1
        if count >= len(_VIRTUAL):
            raise ScheduleError(f"stage {stage.op.name} binds more than {len(_VIRTUAL)} axes to virtual threads")
        return _VIRTUAL[count]

    def _of_block(self, block: BlockRV, step: Step) -> None:
        if step.kind == "set_scope":
            self.sch.set_scope(block, 0, step.args[0])
        elif step.kind == "storage_align":
            self.sch.storage_align(block, 0, *step.args)
        elif step.kind == "double_buffer":
            self.sch.annotate(block, "double_buffer_scope", 0)
        elif step.kind == "rolling_buffer":
            self.sch.rolling_buffer(block, 0)
        elif step.kind == "transform_layout":
            self.sch.transform_layout(block, ("write", 0), step.args[0])
        else:
            raise ScheduleError(f"unknown request {step.kind!r} to a stage")


def carry_out(schedule: Schedule) -> Replay:
    """The schedule of the program with placeholders and outputs as parameters."""
    replay = Replay(schedule)
    order = [s for s in reversed(schedule.stages) if not isinstance(s.op, PlaceholderOp)]
    replay.inline(order)
    for stage in order:
        if not stage.inlined:
            replay.place(stage)
    return replay


class _AsParameters(Mutator):
    """Takes buffers out of the root block's own."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers

    def visit_Block(self, block: Block) -> Block:
        kept = [b for b in block.alloc_buffers if not any(b is other for other in self.buffers)]
        return block if len(kept) == len(block.alloc_buffers) else block.with_fields(alloc_buffers=tuple(kept))


def with_parameters(schedule: Schedule, args: Sequence[Any], name: str) -> PrimFunc:
    """The scheduled function with ``args`` as its parameters."""
    replay = schedule.replay()
    func = next(of_kind(replay.sch.mod.functions.values(), PrimFunc))
    body = func.body
    assert isinstance(body, BlockRealize)
    known = dict(zip(replay.parameters, func.params, strict=True))
    params: list[Var] = []
    buffer_map: dict[Var, Buffer] = {}
    new: list[Buffer] = []
    for arg in args:
        if isinstance(arg, Var):
            params.append(arg)
            continue
        if not isinstance(arg, Tensor):
            raise TypeError(f"arguments of a schedule are tensors and variables, got {type(arg).__name__}")
        param = known.get(arg)
        if param is None:
            stage = schedule.stage_map.get(arg.op)
            if stage is None or stage.inlined or stage not in replay.blocks:
                raise CheckValueError(f"argument {arg.name} is inlined, or not computed by the schedule at all")
            buffer = replay.sch.get(replay.blocks[stage]).writes[arg.value_index].buffer
            param, buffer_map_entry = Var(f"var_{buffer.name}", "handle"), buffer
            new.append(buffer)
        else:
            buffer_map_entry = func.buffer_map[param]
        params.append(param)
        buffer_map[param] = buffer_map_entry
    missing = [t.name for t, param in known.items() if param not in buffer_map]
    if missing:
        raise CheckValueError(f"the schedule reads or writes {', '.join(missing)}, which the arguments lack")
    if new:
        body = body.with_fields(block=_AsParameters(new).visit_Block(body.block))
    made = func.with_fields(params=tuple(params), body=body, buffer_map=buffer_map)
    return made.with_attr("global_symbol", name)
