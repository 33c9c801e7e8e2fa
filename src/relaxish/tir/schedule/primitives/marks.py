"""Marking loops and blocks: loop kinds, thread bindings, annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....ir.errors import CheckIndexError
from ....ir.expr import PrimExpr
from ....ir.functor import Visitor
from ....support.errors import InternalError
from ... import limits
from ...expr import IntImm, IterVar, StringImm, Var
from ...stmt import BlockRealize, For, ForKind
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Argument, plain, Output, Step, operand
from ..sref import StmtSRef
from ..walk import vars_in
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule
    from ..state import ScheduleState

__all__: list[str] = []


_VERBS = {ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorize", ForKind.THREAD_BINDING: "bind"}


class _Realizes(Visitor):
    """The block realizes below a statement that are part of the schedule, outer before inner."""

    def __init__(self, state: ScheduleState) -> None:
        self.state = state
        self.found: list[BlockRealize] = []

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        if node.block in self.state.stmt2ref:  # blocks inside initialisations are not
            self.found.append(node)
            self.visit(node.block.body)

    def visit_PrimExpr(self, node: PrimExpr) -> None:
        pass


def _check_parallel(state: ScheduleState, loop: StmtSRef, kind: ForKind, tag: str) -> None:
    """Demand that the iterations of a loop may run side by side."""
    checks.check_compact_dataflow(state, loop)
    if tag and not tag.startswith(("threadIdx.", "blockIdx.", "vthread")) and tag != "cthread":
        raise InternalError(f"Unknown threadscope {tag}")
    loop_var = loop.stmt.loop_var
    across_threads = tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z")
    realizes = _Realizes(state)
    realizes.visit(loop.stmt.body)
    for realize in realizes.found:
        for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if loop_var not in vars_in(value) or iter_var.iter_type == IterVar.DataPar:
                continue
            if iter_var.iter_type == IterVar.CommReduce and across_threads:
                continue
            raise PrimitiveError(
                f'The "{_VERBS[kind]}" cannot be fulfilled with regard to block {{0}}: its block variable '
                f'"{iter_var.var.name}" is bound to {loop_var.name} and is not data parallel',
                [realize.block],
                hint="parallel, vectorized and bound loops may only drive data-parallel block variables "
                "(a reduction variable may be bound to threadIdx.x/y/z)",
            )


def _check_size(loop: StmtSRef, kind: ForKind) -> None:
    """Refuse to write out more than can be compiled, nested loops of the kind included."""
    if kind not in (ForKind.UNROLLED, ForKind.VECTORIZED):
        return
    measure = limits.unrolled_size if kind == ForKind.UNROLLED else limits.lanes_of_loops
    around = loop.parent
    size = measure(loop.stmt.with_fields(kind=kind))
    while around is not None:
        if around.is_loop and around.stmt.kind == kind and isinstance(around.stmt.extent, IntImm):
            size *= around.stmt.extent.value
        around = around.parent
    name = loop.stmt.loop_var.name
    if kind == ForKind.UNROLLED and size > limits.MAX_UNROLLED:
        raise PrimitiveError(f"{limits.too_many_copies(size, name)}: {{0}}.", [loop])
    if kind == ForKind.VECTORIZED and size > limits.MAX_LANES:
        raise PrimitiveError(f"{limits.too_many_lanes(size, name)}: {{0}}.", [loop])


def set_kind(state: ScheduleState, loop: StmtSRef, kind: ForKind, tag: str | None = None) -> None:
    """Change the kind of a loop after checking that it may have it."""
    node = checks.check_loop(loop)
    if kind != ForKind.UNROLLED:
        _check_parallel(state, loop, kind, tag or "")
    _check_size(loop, kind)
    binding = None
    if tag is not None:
        binding = IterVar(None, Var(tag, node.loop_var.dtype), IterVar.ThreadIndex, tag)
    state.replace(loop, node.with_fields(kind=kind, thread_binding=binding))


class _Mark(Step):
    loop_kind: ClassVar[ForKind]

    loop: LoopRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        set_kind(sch.state, sch.sref(self.loop), self.loop_kind)
        return []


class Parallel(_Mark):
    """Run the iterations on many threads."""

    loop_kind = ForKind.PARALLEL


class Vectorize(_Mark):
    """Run the iterations as vector lanes."""

    loop_kind = ForKind.VECTORIZED


class Unroll(_Mark):
    """Write the iterations out."""

    loop_kind = ForKind.UNROLLED


class Bind(Step):
    """Give the iterations to the threads of an axis."""

    loop: LoopRV = operand()
    thread_axis: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        set_kind(sch.state, sch.sref(self.loop), ForKind.THREAD_BINDING, str(plain(self.thread_axis)))
        return []


def set_annotations(state: ScheduleState, sref: StmtSRef, annotations: dict[str, Any]) -> None:
    """Give a loop or block another annotation table."""
    old = sref.stmt
    new = old.with_fields(annotations=annotations)
    state.replace(sref, new, {} if isinstance(old, For) else {old: new})


class Annotate(Step):
    """Attach a value to a loop or block under a key."""

    block_or_loop: BlockRV | LoopRV = operand()
    ann_key: str
    ann_val: Argument = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block_or_loop)
        value = _annotation_value(sch, self.ann_val)
        old = sref.stmt.annotations
        # An annotation that is there stays as it is: to change it, remove it first.
        if self.ann_key not in old:
            set_annotations(sch.state, sref, {**old, self.ann_key: value})
        return []


def _annotation_value(sch: Schedule, value: Argument) -> Argument:
    """What a program holds for a value given to ``annotate``: sampled integers are filled in. Raises TypeError."""
    match value:
        case list() | tuple():
            return [_annotation_value(sch, x) for x in value]
        case Mapping():
            if not all(isinstance(k, (str, StringImm)) for k in value):
                raise TypeError("the keys of an annotation that is a dictionary are strings")
            return {str(plain(k)): _annotation_value(sch, v) for k, v in value.items()}
        case bool():
            return IntImm("bool", int(value))
        case PrimExpr() if not isinstance(value, StringImm):
            return sch.value_of(value)
        case str() | int() | float():
            return value
    raise TypeError(f"an annotation is a string, a number, an expression, a list or a dictionary, not {value!r}")


class Unannotate(Step):
    """Remove an annotation."""

    block_or_loop: BlockRV | LoopRV = operand()
    ann_key: str

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block_or_loop)
        old = dict(sref.stmt.annotations)
        if self.ann_key not in old:
            raise CheckIndexError(f"Cannot find annotation key: {self.ann_key}")
        del old[self.ann_key]
        set_annotations(sch.state, sref, old)
        return []


class EnterPostproc(Step):
    """Marks in a trace where post-processing begins."""

    def run(self, sch: Schedule) -> Sequence[Output]:
        return []
